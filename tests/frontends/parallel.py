"""Parallel programs for the tests of the distributed frontend, and what one reads off their graphs."""

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from simulator.dims import CollectiveDims
from simulator.graph import Operator, OperatorGraph, OpKind, Phase

SEQUENCE = Shard(1)


class Attention(nn.Module):
    def __init__(self, width: int, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for each in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.gelu(self.up(x)))  # type: ignore[no-any-return]


class Layer(nn.Module):
    def __init__(self, width: int, head_dim: int) -> None:
        super().__init__()
        self.n1, self.attention = nn.RMSNorm(width), Attention(width, head_dim)
        self.n2, self.mlp = nn.RMSNorm(width), Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.n1(x))
        return x + self.mlp(self.n2(x))  # type: ignore[no-any-return]


class Stack(nn.Module):
    """Layers and nothing around them: 12 h^2 weights each, and two norms."""

    def __init__(self, layers: int, width: int, head_dim: int = 8) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, head_dim) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def tensor_parallel(model: Stack, mesh: DeviceMesh, sequence: bool = False) -> Stack:
    """Megatron's split of every layer; with *sequence*, norms and residuals are split along the sequence."""
    whole = (Replicate(),)
    outside = (SEQUENCE,) if sequence else whole
    for layer in model.layers:
        plan: dict[str, Any] = {
            "attention": PrepareModuleInput(input_layouts=outside, desired_input_layouts=whole),
            "mlp": PrepareModuleInput(input_layouts=outside, desired_input_layouts=whole),
            **{name: ColwiseParallel() for name in ("attention.q", "attention.k", "attention.v", "mlp.up")},
            **{name: RowwiseParallel(output_layouts=outside[0]) for name in ("attention.o", "mlp.down")},
        }
        if sequence:
            plan |= {"n1": SequenceParallel(), "n2": SequenceParallel()}
        parallelize_module(layer, mesh, plan)
    return model


def inputs(batch: int, seq: int, width: int) -> tuple[Tensor]:
    """Activations that ask for a gradient, as those of a layer further down do."""
    return (torch.empty(batch, seq, width, requires_grad=True),)


def collectives(graph: OperatorGraph) -> list[Operator]:
    return [op for op in graph if op.kind is OpKind.COLLECTIVE]


def dims(op: Operator) -> CollectiveDims:
    assert isinstance(op.dims, CollectiveDims)
    return op.dims


def calls(graph: OperatorGraph, phase: Phase | None = None) -> Counter[tuple[str, int]]:
    """How often each pattern is called with each payload."""
    chosen = [op for op in collectives(graph) if phase in (None, op.phase)]
    return Counter((dims(op).pattern, dims(op).nbytes) for op in chosen)


def payload(graph: OperatorGraph, *patterns: str) -> int:
    return sum(dims(op).nbytes for op in collectives(graph) if dims(op).pattern in patterns)


def reaches(graph: OperatorGraph, start: int, end: int) -> bool:
    """Whether *end* has to wait for *start*, over any number of operators between."""
    late = {start}
    for op in graph.operators[start + 1 : end + 1]:
        if late.intersection(op.deps):
            late.add(op.id)
    return end in late
