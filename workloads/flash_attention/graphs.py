"""Attention as operator graphs: written out in PyTorch, and as the one operator of this lab."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from frontends import trace
from simulator.dims import AttentionDims
from simulator.dtypes import DType
from simulator.graph import OperatorGraph, OpKind
from workloads.flash_attention.traced import attention

TORCH = {DType.BF16: torch.bfloat16, DType.FP16: torch.float16, DType.FP32: torch.float32}


class Written(nn.Module):
    """softmax(Q K^T x scale) V, one operator after another, without a mask; key heads repeated for their group."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return [batch, heads, queries, head size]."""
        group = query.shape[1] // key.shape[1]
        if group > 1:
            key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
        scores = query @ key.mT * query.shape[3] ** -0.5
        out: Tensor = scores.softmax(-1) @ value
        return out


class Fused(nn.Module):
    """The same as one operator."""

    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return [batch, heads, queries, head size]."""
        return attention(query, key, value, causal=self.causal)


def graph_of(module: nn.Module, dims: AttentionDims, dtype: DType) -> OperatorGraph:
    """Trace *module* on tensors of the sizes *dims* on the meta device."""
    query = torch.empty(dims.batch, dims.heads, dims.q_len, dims.head_dim, dtype=TORCH[dtype], device="meta")
    keys = [
        torch.empty(dims.batch, dims.kv_heads, dims.kv_len, dims.head_dim, dtype=TORCH[dtype], device="meta")
        for _ in range(2)
    ]
    return trace(module, (query, *keys))


def with_reads(graph: OperatorGraph, reads: int) -> OperatorGraph:
    """The same graph, whose attention fetches *reads* bytes: what its blocks fetch again on the way included."""
    found = OperatorGraph(graph.workload, list(graph.storages), outputs=graph.outputs, released=dict(graph.released))
    for op in graph:
        found.add(replace(op, reads=reads) if op.kind is OpKind.ATTENTION else op)
    return found
