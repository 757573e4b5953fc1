"""Other shapes of parallel programs: pipeline stages, experts, tensors that stay distributed, a user's own file."""
# mypy: disallow-untyped-calls=False

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from frontends import load_factory, mesh_arguments, trace, trace_ranks, trace_step, trace_training_step, world
from simulator.dims import AttentionDims
from simulator.errors import TraceError
from simulator.graph import OperatorGraph, OpKind, Phase
from simulator.graph_io import load_graph, save_graph
from tests.frontends.parallel import Attention, Mlp, calls, collectives, reaches
from tests.frontends.test_errors import message

WIDTH, ROWS, MICRO = 16, 4, 3
ACTIVATION = ROWS * WIDTH * 4


class Stage:
    """One of two pipeline stages: all micro-batches forward, then all backward (GPipe)."""

    def __init__(self, rank: int) -> None:
        self.first, self.other = rank == 0, 1 - rank

    def step(self, model: nn.Module, batch: Tensor) -> None:
        outputs = [self.forward(model, rows) for rows in batch.chunk(MICRO)]
        for rows, output in reversed(outputs):
            self.backward(rows, output)

    def forward(self, model: nn.Module, rows: Tensor) -> tuple[Tensor, Tensor]:
        if self.first:
            output = model(rows)
            dist.send(output.detach(), self.other)
            return rows, output
        received = torch.empty_like(rows)
        dist.recv(received, self.other)
        return received.requires_grad_(), model(received).sum()

    def backward(self, rows: Tensor, output: Tensor) -> None:
        if self.first:
            gradient = torch.empty_like(output)
            dist.recv(gradient, self.other)
            output.backward(gradient)
        else:
            output.backward()
            assert rows.grad is not None
            dist.send(rows.grad, self.other)


def pipeline(mesh: DeviceMesh) -> tuple[Callable[..., None], nn.Module, tuple[Tensor]]:
    return Stage(mesh.get_rank()).step, Mlp(WIDTH), (torch.empty(ROWS * MICRO, WIDTH),)


def test_pipeline_stages_hand_on_activations_and_gradients() -> None:
    first, last = trace_ranks(pipeline, trace_step, mesh={"pp": 2}).values()
    assert calls(first) == {("send", ACTIVATION): MICRO, ("recv", ACTIVATION): MICRO}
    assert calls(last) == calls(first)
    assert [op.group for op in collectives(first)] == [(0, 1)] * MICRO + [(1, 0)] * MICRO
    # The last stage also has the gradient of its input to work out: a third of its backward products.
    assert last.model_flops - first.model_flops == MICRO * 2 * ROWS * WIDTH * 4 * WIDTH
    products = [op.id for op in last if op.kind is OpKind.MATMUL]
    assert reaches(last, collectives(last)[0].id, products[0])


def test_pipeline_stages_that_both_send_first_wait_for_each_other() -> None:
    def program(mesh: DeviceMesh) -> tuple[Callable[..., None], nn.Module, tuple[Tensor]]:
        other = 1 - mesh.get_rank()

        def step(model: nn.Module, rows: Tensor) -> None:
            received = torch.empty_like(rows)
            dist.recv(received, other)
            dist.send(model(received), other)

        return step, Mlp(WIDTH), (torch.empty(ROWS, WIDTH),)

    assert message(TraceError, lambda: trace_ranks(program, trace_step, mesh={"pp": 2})) == (
        "the ranks wait for each other: rank 0 waits at c10d.recv_ for rank 1; rank 1 waits at c10d.recv_ for rank 0"
    )


class Experts(nn.Module):
    """Tokens travel to the rank of their expert and back: an all-to-all each way."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.expert, self._group = Mlp(WIDTH), group

    def forward(self, x: Tensor) -> Tensor:
        there = funcol.all_to_all_single_autograd(x, None, None, self._group)
        return funcol.all_to_all_single_autograd(self.expert(there), None, None, self._group)


def test_experts_exchange_their_tokens_twice_each_way() -> None:
    def program(mesh: DeviceMesh) -> tuple[nn.Module, tuple[Tensor]]:
        return Experts(mesh["ep"].get_group()), (torch.empty(8, WIDTH, requires_grad=True),)

    graph = trace_ranks(program, trace_training_step, mesh={"dp": 2, "ep": 4}, ranks=[6])[6]
    exchange = ("all_to_all", 8 * WIDTH * 4)
    assert calls(graph, Phase.FORWARD) == calls(graph, Phase.BACKWARD) == {exchange: 2}
    assert {op.group for op in collectives(graph)} == {(4, 5, 6, 7)}


class Distributed(nn.Module):
    """Attention and norm whose tensors stay DTensors throughout."""

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.attention = parallelize_module(
            Attention(WIDTH, 4),
            mesh,
            {
                **{name: ColwiseParallel(use_local_output=False) for name in "qkv"},
                "o": RowwiseParallel(use_local_output=False),
            },
        )
        self.norm.weight = nn.Parameter(distribute_tensor(self.norm.weight.detach(), mesh, [Replicate()]))
        self._mesh = mesh

    def forward(self, x: Tensor) -> Tensor:
        y = self.attention(self.norm(DTensor.from_local(x, self._mesh, [Replicate()])))
        split = y.redistribute(placements=[Shard(1)])
        return self.norm(split).to_local()  # type: ignore[no-any-return]


def test_fused_operators_are_sharded_where_tensors_stay_distributed() -> None:
    def program(mesh: DeviceMesh) -> tuple[nn.Module, tuple[Tensor]]:
        return Distributed(mesh), (torch.empty(2, 8, WIDTH, requires_grad=True),)

    graph = trace_ranks(program, trace_training_step, mesh={"tp": 2})[0]
    attention = [op.dims for op in graph if isinstance(op.dims, AttentionDims)]
    assert [(dims.heads, dims.backward) for dims in attention] == [(2, False), (2, True)]  # of 4
    norms = [op.outputs[0].shape for op in graph if op.target == "xpusim.rms_norm"]
    assert norms == [(2, 8, WIDTH), (2, 4, WIDTH)]
    assert not graph.uncovered


FILE = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import init_process_group


def build(mesh, world, rank, batch=2):
    init_process_group("nccl")
    assert (dist.get_world_size(), dist.get_rank()) == (world, rank)
    assert mesh["tp"].size() == 4
    return Net(), (torch.empty(batch, 8),)


class Net(nn.Module):
    def forward(self, x):
        dist.all_reduce(x)
        return x
"""


def test_a_file_of_the_user_gets_mesh_world_and_rank(tmp_path: Path) -> None:
    (tmp_path / "parallel_program.py").write_text(FILE)
    with world(8, 5, {"dp": 2, "tp": 4}) as mesh:
        target = f"{tmp_path / 'parallel_program.py'}:build"
        module, args, kwargs = load_factory(target, {"batch": 3}, optional=mesh_arguments(mesh))
        graph = trace(module, args, kwargs)
    assert calls(graph) == {("all_reduce", 3 * 8 * 4): 1}
    assert collectives(graph)[0].group == tuple(range(8))


def test_a_program_of_torchrun_finds_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    import os  # noqa: PLC0415  read inside the world only

    monkeypatch.delenv("RANK", raising=False)
    with world(8, 5):
        assert [os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")] == ["5", "5", "8"]
    assert "RANK" not in os.environ
    assert not dist.is_initialized()


def test_a_parallel_graph_is_written_and_read(tmp_path: Path) -> None:
    graph = trace_ranks(pipeline, trace_step, mesh={"pp": 2}, ranks=[0])[0]
    save_graph(graph, tmp_path / "graph.json")
    again: OperatorGraph = load_graph(tmp_path / "graph.json")
    assert again.operators == graph.operators
