"""Single calls of torch.distributed: group, payload, memory traffic, and what waits for what."""
# mypy: disallow-untyped-calls=False

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import Tensor, nn

from frontends import trace, trace_step, world
from simulator.dims import CollectiveDims
from simulator.graph import Operator, OperatorGraph, OpKind
from tests.frontends.models import Function
from tests.frontends.parallel import collectives, reaches

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")

X = 6 * 4 * 4  # bytes of the [6, 4] input in fp32


def graph_of(function: Callable[..., Any], size: int = 3, rank: int = 1) -> OperatorGraph:
    with world(size, rank):
        return trace(Function(function), (torch.ones(6, 4, device="meta"),))


def summary(op: Operator) -> tuple[Any, ...]:
    assert isinstance(op.dims, CollectiveDims)
    return op.dims.pattern, op.dims.nbytes, op.reads, op.writes, op.group


EVERYBODY = (0, 1, 2)
CALLS: dict[str, tuple[Callable[[Tensor], Any], list[tuple[Any, ...]]]] = {
    "all_reduce": (dist.all_reduce, [("all_reduce", X, X, X, EVERYBODY)]),
    "all_gather_into_tensor": (
        lambda x: dist.all_gather_into_tensor(x.new_empty(18, 4), x),
        [("all_gather", 3 * X, X, 3 * X, EVERYBODY)],
    ),
    "all_gather": (
        lambda x: dist.all_gather([torch.empty_like(x) for _ in range(3)], x),
        [("all_gather", 3 * X, X, 3 * X, EVERYBODY)],
    ),
    "reduce_scatter_tensor": (
        lambda x: dist.reduce_scatter_tensor(x.new_empty(2, 4), x),
        [("reduce_scatter", X, X, X // 3, EVERYBODY)],
    ),
    "reduce_scatter": (
        lambda x: dist.reduce_scatter(x.new_empty(2, 4), list(x.chunk(3))),
        [("reduce_scatter", X, X, X // 3, EVERYBODY)],
    ),
    "all_to_all_single": (
        lambda x: dist.all_to_all_single(torch.empty_like(x), x),
        [("all_to_all", X, X, X, EVERYBODY)],
    ),
    "uneven all_to_all": (
        lambda x: dist.all_to_all_single(x.new_empty(9, 4), x, [3, 3, 3], [1, 2, 3]),
        [("all_to_all", X, X, 9 * 4 * 4, EVERYBODY)],
    ),
    "broadcast from another": (lambda x: dist.broadcast(x, 0), [("broadcast", X, 0, X, EVERYBODY)]),
    "broadcast from here": (lambda x: dist.broadcast(x, 1), [("broadcast", X, X, 0, EVERYBODY)]),
    "send": (lambda x: dist.send(x, 2), [("send", X, X, 0, (1, 2))]),
    "recv": (lambda x: dist.recv(x, 0), [("recv", X, 0, X, (0, 1))]),
    "ring step": (
        lambda x: dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, x, 2), dist.P2POp(dist.irecv, torch.empty_like(x), 0)]
        ),
        [("send", X, X, 0, (1, 2)), ("recv", X, 0, X, (0, 1))],
    ),
    "coalesced": (
        lambda x: dist.all_reduce_coalesced([x, x.clone()]),
        [("all_reduce", 2 * X, 2 * X, 2 * X, EVERYBODY)],
    ),
    "with autograd": (
        lambda x: import_module("torch.distributed.nn.functional").all_reduce(x),
        [("all_reduce", X, X, X, EVERYBODY)],
    ),
    "barrier": (lambda x: dist.barrier(), [("all_reduce", 1, 1, 1, EVERYBODY)]),
    "functional all_reduce": (
        lambda x: funcol.all_reduce(x, "sum", dist.group.WORLD),  # type: ignore[arg-type]
        [("all_reduce", X, X, X, EVERYBODY)],
    ),
    "functional all_gather": (
        lambda x: funcol.all_gather_tensor(x, 0, dist.group.WORLD),  # type: ignore[arg-type]
        [("all_gather", 3 * X, X, 3 * X, EVERYBODY)],
    ),
    "functional reduce_scatter": (
        lambda x: funcol.reduce_scatter_tensor(x, "sum", 0, dist.group.WORLD),  # type: ignore[arg-type]
        [("reduce_scatter", X, X, X // 3, EVERYBODY)],
    ),
    "functional all_to_all": (
        lambda x: funcol.all_to_all_single(x, None, None, dist.group.WORLD),  # type: ignore[arg-type]
        [("all_to_all", X, X, X, EVERYBODY)],
    ),
    "functional broadcast": (
        lambda x: funcol.broadcast(x, 0, dist.group.WORLD),  # type: ignore[arg-type]
        [("broadcast", X, 0, X, EVERYBODY)],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_has_its_payload_its_memory_traffic_and_its_group(name: str) -> None:
    function, expected = CALLS[name]
    graph = graph_of(function)
    assert [summary(op) for op in collectives(graph)] == expected
    assert not graph.uncovered


def test_a_group_keeps_its_ranks_in_order() -> None:
    def program(x: Tensor) -> None:
        dist.all_reduce(x, group=dist.new_group([0, 2, 3]))
        dist.all_reduce(x)

    graph = graph_of(program, size=4, rank=2)
    assert [op.group for op in collectives(graph)] == [(0, 2, 3), (0, 1, 2, 3)]


def test_computation_between_start_and_wait_overlaps() -> None:
    # mm1 -> all_reduce -+            the wait stands before mm3, so mm3 waits though it reads nothing of it;
    #        mm2 --------+-> mm3      mm2 stands before the wait and does not
    def program(x: Tensor) -> Tensor:
        first = x @ x.T
        work = dist.all_reduce(first, async_op=True)
        second = x.T @ x
        assert work is not None
        work.wait()
        return x @ second

    graph = graph_of(program)
    first, reduce, second, third = graph.operators
    assert [op.kind for op in graph] == [OpKind.MATMUL, OpKind.COLLECTIVE, OpKind.MATMUL, OpKind.MATMUL]
    assert (first.deps, reduce.deps, second.deps, third.deps) == ((), (0,), (), (1, 2))


def test_a_call_without_async_is_waited_for_at_once() -> None:
    def program(x: Tensor) -> Tensor:
        dist.all_reduce(x @ x.T)
        return x.T @ x

    assert [op.deps for op in graph_of(program)] == [(), (0,), (1,)]


def test_a_functional_collective_is_waited_for_where_its_result_is_used() -> None:
    def program(x: Tensor) -> Tensor:
        summed: Tensor = funcol.all_reduce(x, "sum", dist.group.WORLD)  # type: ignore[arg-type]
        other = x.T @ x
        return summed @ other

    graph = graph_of(program)
    assert [op.target for op in graph] == ["aten.clone", "_c10d_functional.all_reduce", "aten.mm", "aten.mm"]
    assert [op.deps for op in graph] == [(), (0,), (), (1, 2)]


def test_collectives_of_one_group_keep_their_order_and_groups_do_not_wait_for_each_other() -> None:
    def program(x: Tensor) -> None:
        pair = dist.new_group([0, 1])
        works = [dist.all_reduce(x.clone(), group=group, async_op=True) for group in (None, pair, None, pair)]
        for work in works:
            assert work is not None
            work.wait()

    reduces = collectives(graph_of(program))
    ids = {op.id: place for place, op in enumerate(reduces)}
    order = [[ids[dep] for dep in op.deps if dep in ids] for op in reduces]
    assert order == [[], [], [0], [1]]


class Bucketed:
    """Own data parallelism: each gradient is reduced as soon as it is there, and waited for at the end."""

    def __init__(self, model: nn.Module) -> None:
        self.works: list[dist.Work] = []
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self.reduce)

    def reduce(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        work = dist.all_reduce(parameter.grad, async_op=True)
        assert work is not None
        self.works.append(work)

    def step(self, model: nn.Module, x: Tensor) -> None:
        model(x).sum().backward()
        for work in self.works:
            work.wait()


def test_gradients_are_reduced_while_the_backward_pass_goes_on() -> None:
    with world(4), torch.device("meta"):
        model = nn.Sequential(nn.Linear(8, 16, bias=False), nn.ReLU(), nn.Linear(16, 8, bias=False))
        graph = trace_step(Bucketed(model).step, model, (torch.empty(2, 8),), optimizer="sgd")
        assert all(parameter.grad is None for parameter in model.parameters())
    last, first = collectives(graph)
    products = [op.id for op in graph if op.kind is OpKind.MATMUL and last.id < op.id < first.id]
    assert len(products) == 1  # the gradient of the first layer's weight
    assert not reaches(graph, last.id, products[0])
    step = graph.operators[-1]
    assert step.target == "sgd"
    assert reaches(graph, last.id, step.id)
    assert reaches(graph, first.id, step.id)


def test_a_buffer_is_held_no_longer_than_its_program_holds_it() -> None:
    def program(x: Tensor) -> Tensor:
        buffer = x.new_empty(18, 4)
        dist.all_gather_into_tensor(buffer, x)
        y = buffer.sum(0)
        del buffer
        return y.exp().exp()

    graph = graph_of(program)
    (gathered,) = [each.id for each in graph.storages if each.nbytes == 3 * X]
    assert gathered not in graph.released  # given back with its last use
