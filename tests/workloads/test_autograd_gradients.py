"""Every operator's gradient against central differences, and its value against numpy or torch."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.workloads.lab_cases import CASES
from workloads.autograd import Tensor, cross_entropy, linear, log_softmax, no_grad, normalise, softmax
from workloads.autograd.check import gradient_error
from workloads.autograd.functional import pad, windows
from workloads.autograd.state import Array, Shape

TOLERANCE = 1e-6


def draw(*shapes: Shape, low: float = -2.0) -> list[Array]:
    """Distinct values in (low, 2), none so near to 0 that a step of a difference could cross a kink."""
    generator = np.random.default_rng(sum(len(shape) for shape in shapes))
    arrays = [generator.uniform(low, 2, shape) for shape in shapes]
    return [np.where(np.abs(array) < 0.01, 0.5, array) for array in arrays]


BROADCASTS = [
    ((3, 4), (3, 4)),
    ((3, 4), (4,)),
    ((3, 1), (1, 4)),
    ((2, 3, 4), (3, 1)),
    ((), (2, 3)),
    ((1, 4), (2, 1, 1)),
]
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "pow": lambda a, b: a**b,
}


@pytest.mark.parametrize("shapes", BROADCASTS, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, shapes: tuple[Shape, Shape]) -> None:
    for left, right in (shapes, shapes[::-1]):
        assert gradient_error(BINARY[name], draw(left, right, low=0.2 if name in ("pow", "div") else -2.0)) < TOLERANCE


UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "neg": lambda x: -x,
    "exp": Tensor.exp,
    "tanh": Tensor.tanh,
    "relu": Tensor.relu,
    "leaky_relu": lambda x: x.leaky_relu(0.5),
    "gelu": Tensor.gelu,
    "square": lambda x: x**2,
    "cube": lambda x: x**3.0,
    "scalar left": lambda x: 2.0 - 3.0 / x + 1.5**x,
    "scalar right": lambda x: (x * 2 + 1) / 4 - 1,
    "sum": Tensor.sum,
    "sum of an axis": lambda x: x.sum(1),
    "sum of axes": lambda x: x.sum((0, -1), keepdims=True),
    "mean": Tensor.mean,
    "mean of an axis": lambda x: x.mean(-1, keepdims=True),
    "max": Tensor.max,
    "max of an axis": lambda x: x.max(0),
    "max of axes": lambda x: x.max((1, 2), keepdims=True),
    "reshape": lambda x: x.reshape(4, -1),
    "reshape of a view": lambda x: x.transpose().reshape(6, 4),
    "transpose": lambda x: x.transpose(),
    "transpose of axes": lambda x: x.transpose(2, 0, 1),
    "slice": lambda x: x[:, 1:, ::2],
    "integer": lambda x: x[1],
    "new axis": lambda x: x[:, None],
    "gather": lambda x: x[np.array([1, 0, 1, 1])],
    "gather of pairs": lambda x: x[np.array([1, 0, 1]), np.array([0, 2, 0])],
    "mask": lambda x: x[np.array([False, True])],
    "softmax": softmax,
    "softmax of an axis": lambda x: softmax(x, 1),
    "log_softmax": log_softmax,
    "log_softmax of an axis": lambda x: log_softmax(x, 0),
    "normalise": lambda x: normalise(x, -1),
    "normalise over axes": lambda x: normalise(x, (0, 2)),
    "used twice": lambda x: x * x + x,
    "used by a slice and a sum": lambda x: x[0] * x.sum(0),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    assert gradient_error(UNARY[name], draw((2, 3, 4))) < TOLERANCE


def test_log() -> None:
    assert gradient_error(Tensor.log, draw((2, 3), low=0.2)) < TOLERANCE


PRODUCTS = [
    ((3, 4), (4, 2)),
    ((2, 3, 4), (4, 2)),
    ((2, 3, 4), (2, 4, 2)),
    ((1, 3, 4), (5, 4, 2)),
    ((3, 4), (5, 4, 2)),
    ((2, 1, 3, 4), (5, 4, 2)),
]


@pytest.mark.parametrize("shapes", PRODUCTS, ids=str)
def test_matmul(shapes: tuple[Shape, Shape]) -> None:
    left, right = draw(*shapes)
    assert gradient_error(lambda a, b: a @ b, [left, right]) < TOLERANCE
    np.testing.assert_allclose((Tensor(left) @ Tensor(right)).data, left @ right, rtol=1e-12)


def test_matmul_of_views() -> None:
    assert gradient_error(lambda a, b: a.transpose() @ b[:, ::2], draw((2, 4, 3), (4, 6))) < TOLERANCE


@pytest.mark.parametrize("rows", [(5,), (2, 5)], ids=str)
def test_linear(rows: Shape) -> None:
    assert gradient_error(linear, draw((*rows, 3), (3, 4), (4,))) < TOLERANCE


def test_cross_entropy() -> None:
    (logits,) = draw((5, 3))
    labels = np.array([0, 2, 1, 1, 0])
    assert gradient_error(lambda x: cross_entropy(x, labels), [logits]) < TOLERANCE
    wanted = torch.nn.functional.cross_entropy(torch.tensor(logits), torch.tensor(labels))
    assert cross_entropy(Tensor(logits), labels).item() == pytest.approx(wanted.item(), rel=1e-12)


def test_softmax_of_large_numbers_does_not_overflow() -> None:
    np.testing.assert_allclose(softmax(Tensor([1000.0, 1000.0, -1000.0])).data, [0.5, 0.5, 0.0])
    np.testing.assert_allclose(log_softmax(Tensor([1000.0, 0.0])).data, [0.0, -1000.0])


def test_padded_windows() -> None:
    assert gradient_error(lambda x: windows(pad(x, 1), 3, 2), draw((2, 2, 5, 4))) < TOLERANCE


def test_equal_largest_elements_share_the_gradient() -> None:
    x = Tensor([1.0, 3.0, 3.0], requires_grad=True)
    x.max().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.5, 0.5]  # as torch.amax does


ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[torch.Tensor], torch.Tensor]]] = {
    "gelu": (Tensor.gelu, torch.nn.functional.gelu),
    "tanh": (Tensor.tanh, torch.tanh),
    "relu": (Tensor.relu, torch.relu),
    "leaky_relu": (Tensor.leaky_relu, torch.nn.functional.leaky_relu),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_activations_are_pytorchs_and_keep_the_type(name: str, dtype: type) -> None:
    ours, theirs = ACTIVATIONS[name]
    values: Array = np.linspace(-4, 4, 33).astype(dtype)
    out = ours(Tensor(values)).data
    assert out.dtype == dtype
    np.testing.assert_allclose(out, theirs(torch.tensor(values)).numpy(), rtol=2e-6, atol=1e-6)


def test_the_check_finds_a_wrong_gradient() -> None:
    def wrong(x: Tensor) -> Tensor:
        with no_grad():
            constant = x * x
        return x * x + constant  # the second term moves with x, and its gradient is missing

    assert gradient_error(wrong, [np.array([1.0, 2.0])]) > 0.5


def test_lab_case_x3_is_the_tolerance_of_this_file() -> None:
    (row,) = [line for line in CASES.read_text().splitlines() if line.startswith("L01-X3,")]
    assert "< 1e-6" in row
    assert TOLERANCE <= 1e-6
