"""What a user reads when his world, his groups or his program is wrong, word for word."""
# mypy: disallow-untyped-calls=False

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from frontends import building, check_ranks, parse_mesh, trace, trace_ranks, trace_training_step, world
from simulator.errors import TraceError, UsageError
from simulator.graph import OperatorGraph
from tests.frontends.models import Function
from tests.frontends.test_errors import line_of, message

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")


def enter(size: int, rank: int = 0, mesh: dict[str, int] | None = None) -> None:
    with world(size, rank, mesh):
        pass


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((8, 0, {"dp": 3, "tp": 2}), "8 ranks do not factor into the mesh dp=3, tp=2, which has 6"),
        ((8, 8), "rank 8 lies outside a world of 8 (ranks 0 to 7)"),
        ((8, -1), "rank -1 lies outside a world of 8 (ranks 0 to 7)"),
        ((0,), "a world has at least one rank, got 0"),
        ((4, 0, {"dp": 4, "tp": 0}), "every dimension of a mesh has at least one rank, got dp=4, tp=0"),
    ],
)
def test_a_world_that_cannot_be(given: tuple[Any, ...], text: str) -> None:
    assert message(UsageError, lambda: enter(*given)) == text
    assert not dist.is_initialized()


def test_a_world_inside_a_world() -> None:
    text = "a process group exists already; leave its world, or call dist.destroy_process_group(), first"
    with world(2):
        assert message(UsageError, lambda: enter(2)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dp=2,tp", "cannot read 'tp' of the mesh 'dp=2,tp'; expected the form dp=2,tp=4"),
        ("dp=two", "cannot read 'dp=two' of the mesh 'dp=two'; expected the form dp=2,tp=4"),
        ("dp=2,dp=4", "the mesh 'dp=2,dp=4' names dp twice"),
    ],
)
def test_a_mesh_that_cannot_be_read(text: str, expected: str) -> None:
    assert message(UsageError, lambda: parse_mesh(text)) == expected


def decides(x: Tensor) -> Tensor:
    total = x.sum()
    dist.all_reduce(total)
    if total > 0:
        return x
    return -x


def unrelated(x: Tensor) -> Tensor:
    return x.new_zeros(int(x.sum()))


def gathers(x: Tensor) -> None:
    dist.gather(x, [torch.empty_like(x), torch.empty_like(x)], dst=0)


def splits(x: Tensor) -> Any:
    world_group = dist.group.WORLD
    assert world_group is not None
    return torch.ops._c10d_functional.reduce_scatter_tensor(x, "sum", 2, world_group.group_name)


def traced(function: Callable[..., Any], rows: int = 4) -> OperatorGraph:
    with world(2):
        return trace(Function(function), (torch.ones(rows, 8),))


def test_a_decision_on_a_value_that_other_ranks_sent() -> None:
    assert message(TraceError, lambda: traced(decides)) == (
        f"data-dependent control flow at {line_of(decides, 'if total')} reads a value that comes out of "
        "c10d.allreduce_ over ranks 0, 1, which depends on the input; a trace knows shapes, not values"
    )


def test_a_collective_without_a_model() -> None:
    assert (
        message(TraceError, lambda: traced(gathers)) == "c10d.gather_ of torch.distributed has no model; use all_gather"
    )


def test_rows_that_do_not_divide() -> None:
    text = "reduce_scatter of 3 rows over 2 ranks: the rows do not divide"
    assert message(TraceError, lambda: traced(splits, rows=3)) == text


def test_a_cast_would_lose_hooks() -> None:
    with world(2), torch.device("meta"):
        model = nn.Linear(4, 4)
        model.weight.register_post_accumulate_grad_hook(lambda _: None)
        text = message(TraceError, lambda: trace_training_step(model, (torch.empty(2, 4),), dtype="bf16"))
    assert text == "weight has gradient hooks, which a cast leaves behind; build the model in its final type"


def ranks(function: Callable[[Tensor, int], Any], size: int = 2) -> dict[int, OperatorGraph]:
    def build(mesh: DeviceMesh) -> tuple[nn.Module, tuple[Tensor]]:
        rank = dist.get_rank()
        return Function(lambda x: function(x, rank)), (torch.empty(4, 4),)

    return trace_ranks(build, trace, mesh={"dp": size})


def skips(x: Tensor, rank: int) -> None:
    dist.all_reduce(x)
    if rank == 0:
        dist.all_reduce(x)


def other_kind(x: Tensor, rank: int) -> None:
    dist.all_reduce(x) if rank else dist.broadcast(x, 0)


def other_size(x: Tensor, rank: int) -> None:
    dist.all_reduce(x[: rank + 1])


def other_group(x: Tensor, rank: int) -> None:
    pair = dist.new_group([0, 1])
    dist.all_reduce(x, group=pair if rank == 0 else None)


def other_order(x: Tensor, rank: int) -> None:
    first, second = dist.new_group([0, 1]), dist.new_group([1, 0, 2])
    for group in (first, second) if rank == 0 else (second, first):
        if dist.get_rank() in dist.get_process_group_ranks(group):
            dist.all_reduce(x, group=group)


def unsent(x: Tensor, rank: int) -> None:
    if rank == 1:
        dist.recv(x, 0)


def too_long(x: Tensor, rank: int) -> None:
    dist.send(x, 1) if rank == 0 else dist.recv(x[:1], 0)


@pytest.mark.parametrize(
    ("function", "size", "text"),
    [
        (
            skips,
            2,
            "rank 0 waits at c10d.allreduce_ (call 2 over ranks 0, 1) for rank 1, which makes 1 call over ranks 0, 1; "
            "its last collective is c10d.allreduce_ over ranks 0, 1",
        ),
        (
            other_kind,
            2,
            "ranks disagree about collective 1 over ranks 0, 1: rank 0 calls broadcast of 64 bytes at c10d.broadcast_, "
            "rank 1 calls all_reduce of 64 bytes at c10d.allreduce_",
        ),
        (
            other_size,
            2,
            "ranks disagree about collective 1 over ranks 0, 1: rank 0 calls all_reduce of 16 bytes at "
            "c10d.allreduce_, rank 1 calls all_reduce of 32 bytes at c10d.allreduce_",
        ),
        (
            other_group,
            3,
            "rank 0 waits at c10d.allreduce_ (call 1 over ranks 0, 1) for rank 1, which makes 0 calls over ranks 0, 1; "
            "its last collective is c10d.allreduce_ over ranks 0, 1, 2",
        ),
        (
            other_order,
            3,
            "the ranks wait for each other: rank 0 waits at c10d.allreduce_ for rank 1; "
            "rank 1 waits at c10d.allreduce_ for ranks 0, 2; rank 2 waits at c10d.allreduce_ for ranks 0, 1",
        ),
        (
            unsent,
            2,
            "rank 1 waits at c10d.recv_ (call 1 over ranks 0, 1) for rank 0, which makes 0 calls over ranks 0, 1",
        ),
        (
            too_long,
            2,
            "ranks disagree about collective 1 over ranks 0, 1: rank 0 calls send of 64 bytes at c10d.send, "
            "rank 1 calls recv of 16 bytes at c10d.recv_",
        ),
    ],
)
def test_ranks_that_do_not_match(function: Callable[[Tensor, int], Any], size: int, text: str) -> None:
    assert message(TraceError, lambda: ranks(function, size)) == text


def test_ranks_that_match() -> None:
    def program(x: Tensor, rank: int) -> None:
        dist.all_reduce(x)
        dist.send(x, 1) if rank == 0 else dist.recv(x, 0)

    graphs = ranks(program)
    check_ranks(graphs)
    check_ranks({0: graphs[0]})  # the other rank is taken to do its part


def test_a_factory_is_built_without_memory() -> None:
    with world(2) as mesh, building():
        assert mesh.size() == 2
        assert nn.Linear(2**20, 2**20).weight.is_meta
