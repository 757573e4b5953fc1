"""The engine itself: order, memory, no_grad, errors word for word, and graphs as text and pictures."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from simulator.errors import OutputError, UsageError
from workloads.autograd import MLP, SGD, AdamW, Linear, Tensor, cross_entropy, no_grad, softmax
from workloads.autograd.draw import dot, draw, to_networkx
from workloads.autograd.engine import reachable
from workloads.autograd.functional import windows
from workloads.autograd.state import Array


def leaf(*values: float) -> Tensor:
    return Tensor(np.array(values), requires_grad=True)


def gradient(tensor: Tensor) -> Array:
    assert tensor.grad is not None
    return tensor.grad


def test_by_hand() -> None:
    # f = (a b + b)^2 at a = 2, b = 3: inner 9; df/da = 2 x 9 x b = 54; df/db = 2 x 9 x (a + 1) = 54
    a, b = leaf(2.0), leaf(3.0)
    f = (a * b + b) ** 2
    f.backward()
    assert (f.item(), gradient(a).item(), gradient(b).item()) == (81.0, 54.0, 54.0)


def test_a_diamond_is_walked_once() -> None:
    # each level doubles: 2^40 paths lead to x, and 40 nodes
    x = leaf(1.0)
    y = x
    for _ in range(40):
        y = y + y
    y.backward()
    assert gradient(x).item() == 2.0**40


def test_gradients_add_up_over_calls() -> None:
    x = leaf(3.0)
    (x * 2).backward()
    (x * 5).backward()
    assert gradient(x).item() == 7.0


@pytest.mark.parametrize("run_backward", [True, False])
def test_a_chain_of_10000_needs_no_recursion(run_backward: bool) -> None:
    x = leaf(1.0)
    y = x
    for _ in range(10_000):
        y = y * 1.0
    if run_backward:
        y.backward()
        assert gradient(x).item() == 1.0
    else:
        del y  # freeing a chain must not recurse either


def test_backward_frees_the_graph_and_all_that_it_saved() -> None:
    gc.collect()
    gc.disable()  # reference counts alone must do it: there are no cycles
    try:
        x = Tensor(np.ones((4, 4)), requires_grad=True)
        hidden = (x @ x).exp()
        loss = (hidden * hidden).sum()
        watched: list[weakref.ref[Any]] = [weakref.ref(each) for each in (hidden.data, hidden.node)]
        del hidden
        assert all(ref() is not None for ref in watched)  # the loss holds them
        loss.backward()
        assert [ref() for ref in watched] == [None, None]
        assert gradient(x).shape == (4, 4)
    finally:
        gc.enable()


def test_a_thousand_steps_leave_nothing_behind() -> None:
    model = MLP((4, 8, 2), np.random.default_rng(0))
    optimizer = SGD(model.parameters(), 0.1, momentum=0.9)
    x, labels = Tensor(np.ones((3, 4))), np.array([0, 1, 1])

    def steps(count: int) -> int:
        for _ in range(count):
            optimizer.zero_grad()
            cross_entropy(model(x), labels).backward()
            optimizer.step()
        gc.collect()
        return sum(type(each) is Tensor for each in gc.get_objects())

    assert steps(1000) == steps(1)


def test_nothing_is_saved_for_what_needs_no_gradient() -> None:
    weights, x = Tensor(np.ones((4, 2)), requires_grad=True), Tensor(np.ones((3, 4)))
    used = weakref.ref(weights.data)
    out = x @ weights
    assert out.node is not None
    assert out.node.parents == (weights,)
    weights.data = np.zeros((4, 2))
    assert used() is None  # only the gradient of x would have needed the old weights


def test_a_result_that_no_gradient_needs_is_freed_at_once() -> None:
    x = Tensor(np.ones((4, 4)), requires_grad=True)
    before = x @ x
    values = weakref.ref(before.data)
    after = before.relu()  # whose gradient needs its own result only
    del before
    assert values() is None
    after.sum().backward()
    assert gradient(x).tolist() == [[8.0] * 4] * 4


def test_no_grad_records_nothing_and_ends() -> None:
    x = leaf(1.0)
    with no_grad():
        assert (x * x).node is None
    with pytest.raises(ZeroDivisionError), no_grad():
        raise ZeroDivisionError
    assert (x * x).node is not None
    assert (x.detach() * 2).requires_grad is False


def test_a_gradient_of_ones_times_something_larger() -> None:
    x = leaf(1.0, 2.0)
    (x * x).backward([1.0, 10.0])
    assert gradient(x).tolist() == [2.0, 40.0]


def test_a_gradient_that_is_a_broadcast_is_memory_of_its_own() -> None:
    x = Tensor(np.ones((2, 3)), requires_grad=True)
    x.sum().backward()
    assert gradient(x).flags.writeable
    assert gradient(x).strides == (24, 8)


def test_numpy_leaves_arithmetic_to_the_tensor() -> None:
    out = np.array([2.0, 3.0]) * leaf(1.0, 1.0)
    assert isinstance(out, Tensor)
    assert out.data.tolist() == [2.0, 3.0]
    product = np.ones((2, 3)) @ Tensor(np.ones((3, 1)), requires_grad=True)
    assert isinstance(product, Tensor)
    assert product.operator == "matmul"


def test_a_power_of_nought_is_flat_everywhere() -> None:
    x = leaf(0.0, 2.0)
    (x**0).sum().backward()
    assert gradient(x).tolist() == [0.0, 0.0]


def test_scalars_do_not_widen_float32() -> None:
    x = Tensor(np.ones(3, np.float32), requires_grad=True)
    y = ((x * 2.5 + 1) ** 2).mean()
    y.backward()
    assert [y.data.dtype.name, gradient(x).dtype.name] == ["float32", "float32"]


def test_repr_says_shape_and_origin() -> None:
    x = leaf(1.0, 2.0)
    assert repr(x) == "Tensor([1. 2.], shape (2,), requires_grad)"
    assert repr(x.sum()) == "Tensor(3., shape (), by sum)"


def two(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [Tensor(np.ones(shape), requires_grad=True) for shape in shapes]


def twice() -> None:
    loss = leaf(2.0) * 3
    loss.backward()
    loss.backward()


def freed_below() -> None:
    shared = leaf(2.0).exp()
    (shared * 2).backward()
    (shared * 3).backward()


ERRORS: list[tuple[Callable[[], object], str]] = [
    (lambda: two((2, 3))[0] @ two((4, 5))[0], "matmul: (2, 3) x (4, 5): the inner sizes 3 and 4 differ"),
    (
        lambda: two((2, 3, 4))[0] @ two((5, 4, 2))[0],
        "matmul: (2, 3, 4) x (5, 4, 2): the batches do not broadcast",
    ),
    (lambda: two((3,))[0] @ two((3, 4))[0], "matmul: (3,) x (3, 4): both need two axes or more; reshape first"),
    (lambda: two((2, 3))[0] + two((4,))[0], "add: shapes (2, 3) and (4,) do not broadcast"),
    (lambda: two((2, 3))[0] / np.ones((3, 2)), "div: shapes (2, 3) and (3, 2) do not broadcast"),
    (two((2, 3))[0].backward, "backward needs a scalar, got shape (2, 3): take its sum or mean first"),
    (lambda: two((2,))[0].backward(np.ones(3)), "backward: the gradient has shape (3,), the tensor (2,)"),
    (
        lambda: Tensor(1.0).backward(),
        "nothing to differentiate: no tensor that needs a gradient led to this one",
    ),
    (
        twice,
        "backward has already run through this mul, and what it had saved is freed: run the forward pass again, or add "
        "the losses up before backward",
    ),
    (
        freed_below,
        "backward has already run through this exp, and what it had saved is freed: run the forward pass again, or add "
        "the losses up before backward",
    ),
    (
        lambda: cross_entropy(two((2, 3))[0], [0, 3]),
        "label 3 of row 1: 3 classes have labels 0 to 2",
    ),
    (lambda: cross_entropy(two((2, 3))[0], [-1, 0]), "label -1 of row 0: 3 classes have labels 0 to 2"),
    (
        lambda: cross_entropy(two((2, 3))[0], [0, 1, 2]),
        "cross entropy needs logits [rows, classes] and labels [rows], got shapes (2, 3) and (3,)",
    ),
    (lambda: cross_entropy(two((2, 3))[0], [0.0, 1.0]), "cross entropy needs whole numbers as labels, got float64"),
    (lambda: two((2, 3))[0].sum(2), "sum: no axis 2 in shape (2, 3)"),
    (lambda: softmax(two((2, 3))[0], 2), "softmax: no axis 2 in shape (2, 3)"),
    (lambda: two((2, 3))[0].reshape(4, 2), "reshape: 6 elements of shape (2, 3) do not fit into (4, 2)"),
    (lambda: two((2, 3))[0].transpose(0, 0), "transpose: (0, 0) is no order of the axes of shape (2, 3)"),
    (
        lambda: two((2, 3))[0][5],
        "index of a tensor of shape (2, 3): index 5 is out of bounds for axis 0 with size 2",
    ),
    (lambda: windows(two((1, 1, 2, 2))[0], 3, 1), "windows of 3 x 3 do not fit into images of shape (1, 1, 2, 2)"),
    (lambda: Linear(0, 3, np.random.default_rng(0)), "Linear(0, 3): both sizes must be at least 1"),
    (lambda: MLP((3,), np.random.default_rng(0)), "an MLP needs at least two sizes, got (3,)"),
    (lambda: SGD([], 0.1), "an optimizer needs at least one parameter"),
    (lambda: AdamW([leaf(1.0)], -1.0), "learning rate -1.0: must be above 0"),
    (lambda: AdamW([leaf(1.0)]).step(), "no parameter has a gradient: call backward before step"),
]


@pytest.mark.parametrize(("act", "message"), ERRORS, ids=[message[:40] for _, message in ERRORS])
def test_errors_say_what_and_where_in_one_line(act: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        act()
    assert str(caught.value) == message


def test_a_second_backward_changes_no_gradient() -> None:
    x = leaf(2.0)
    loss = x * 3
    loss.backward()
    with pytest.raises(UsageError):
        loss.backward()
    assert gradient(x).item() == 3.0


def test_the_drawn_graph_is_the_recorded_one() -> None:
    model = MLP((3, 4, 2), np.random.default_rng(0))
    model.name_parts()
    loss = cross_entropy(model(Tensor(np.ones((5, 3)))), np.zeros(5, np.int64))
    graph = to_networkx(loss)
    assert nx.is_directed_acyclic_graph(graph)
    assert len(graph) == len(list(reachable(loss.origin))) == 9  # 4 parameters; linear, relu, linear, log_softmax, nll
    assert [node["label"] for _, node in graph.nodes(data=True) if not node["leaf"]] == [
        "linear\n5 x 4", "relu\n5 x 4", "linear\n5 x 2", "log_softmax\n5 x 2", "nll\nscalar",
    ]  # fmt: skip
    assert "layers.0.weight\\n3 x 4" in dot(loss)


def test_pictures(tmp_path: Path) -> None:
    loss = (leaf(1.0, 2.0) * 3).sum()
    for name in ("graph.png", "graph.svg"):
        draw(loss, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    with pytest.raises(OutputError, match=r"^cannot draw graph\.txt: the name must end in \.png, \.svg, \.pdf$"):
        draw(loss, "graph.txt")
