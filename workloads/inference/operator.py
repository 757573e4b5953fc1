"""The torch operators ``xpusim_inference::*`` of a step, and the functions that choose between them and plain torch.

On a CUDA device, where Triton is there, they run its kernels; on meta tensors they have shapes only, so that a step can
be traced; everywhere else the reference runs, and a CPU unpacks weights in compiled loops.  As operators they can be
captured in a CUDA graph, and the simulator has a rule for each (`workloads.inference.traced`).
"""

import os
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional

from workloads.inference import reference
from workloads.inference.batch import Batch


@cache
def kernels_on(device: str) -> bool:
    """Whether tensors on that type of device go to the Triton kernels."""
    if device == "cuda":
        return find_spec("triton") is not None
    return device == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"


def _own(x: Tensor) -> bool:
    """Whether *x* goes to the operators below: kernels can run, or nothing but shapes is wanted."""
    return x.is_meta or (kernels_on(x.device.type) and x.dtype != torch.float64)


@torch.library.custom_op("xpusim_inference::linear", mutates_args=())
def linear_op(x: Tensor, data: Tensor, scales: Tensor, zeros: Tensor, bits: int) -> Tensor:
    """x [rows, inputs] times the transpose of a packed matrix."""
    from workloads.inference import launch  # noqa: PLC0415  needs Triton

    return launch.linear(x, data, scales, zeros, bits)


@torch.library.custom_op("xpusim_inference::attention", mutates_args=())
def attention_op(
    q: Tensor, keys: Tensor, values: Tensor, tables: Tensor, starts: Tensor, lengths: Tensor, decodes: int,
    longest: int, window: int,
) -> Tensor:  # fmt: skip
    """Attention of new tokens over paged keys and values; arguments as `Batch`."""
    from workloads.inference import launch  # noqa: PLC0415  needs Triton

    return launch.attention(q, keys, values, tables, starts, lengths, decodes, longest, window)


@torch.library.custom_op("xpusim_inference::add_norm", mutates_args=())
def add_norm_op(x: Tensor, y: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x + y and its RMSNorm."""
    from workloads.inference import launch  # noqa: PLC0415  needs Triton

    return launch.add_norm(x, y, weight, eps)


@torch.library.custom_op("xpusim_inference::norm", mutates_args=())
def norm_op(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm of x."""
    from workloads.inference import launch  # noqa: PLC0415  needs Triton

    return launch.add_norm(x, None, weight, eps)[1]


@torch.library.custom_op("xpusim_inference::place", mutates_args=("keys", "values"))
def place_op(
    qkv: Tensor, keys: Tensor, values: Tensor, cos: Tensor | None, sin: Tensor | None, positions: Tensor,
    slots: Tensor, q_norm: Tensor | None, k_norm: Tensor | None, eps: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Queries and keys, normed and rotated; keys and values also go to the cache."""
    from workloads.inference import launch  # noqa: PLC0415  needs Triton

    return launch.place(qkv, keys, values, cos, sin, positions, slots, q_norm, k_norm, eps)


@torch.library.custom_op("xpusim_inference::gate", mutates_args=())
def gate_op(x: Tensor) -> Tensor:
    """silu(first half) x second half."""
    from workloads.inference import launch  # noqa: PLC0415  needs Triton

    return launch.gate(x)


@linear_op.register_fake
def _(x: Tensor, data: Tensor, scales: Tensor, zeros: Tensor, bits: int) -> Tensor:
    return x.new_empty((x.shape[0], data.shape[0]))


@attention_op.register_fake
def _(
    q: Tensor, keys: Tensor, values: Tensor, tables: Tensor, starts: Tensor, lengths: Tensor, decodes: int,
    longest: int, window: int,
) -> Tensor:  # fmt: skip
    return torch.empty_like(q)


@add_norm_op.register_fake
def _(x: Tensor, y: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x)


@norm_op.register_fake
def _(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return torch.empty_like(x)


@place_op.register_fake
def _(
    qkv: Tensor, keys: Tensor, values: Tensor, cos: Tensor | None, sin: Tensor | None, positions: Tensor,
    slots: Tensor, q_norm: Tensor | None, k_norm: Tensor | None, eps: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    kv_heads, head = keys.shape[2:]
    tokens, heads = qkv.shape[0], qkv.shape[1] // head - 2 * kv_heads
    return qkv.new_empty((tokens, heads, head)), qkv.new_empty((tokens, kv_heads, head))


@gate_op.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty((x.shape[0], x.shape[1] // 2))


def linear(x: Tensor, data: Tensor, scales: Tensor, zeros: Tensor, bits: int) -> Tensor:
    """Return x W^T [rows, outputs] of a packed matrix."""
    if _own(x):
        y: Tensor = linear_op(x, data, scales, zeros, bits)
        return y
    if x.device.type == "cpu" and x.dtype != torch.float64 and find_spec("numba"):
        from workloads.inference import compiled  # noqa: PLC0415  numba is in the labs extra

        return compiled.linear(x, data, scales, zeros, bits)
    return reference.linear(x, data, scales, zeros, bits)


def attention(q: Tensor, keys: Tensor, values: Tensor, batch: Batch, window: int) -> Tensor:
    """Return the attention [T, N, H] of *q* over the paged cache."""
    where = batch.tables, batch.starts, batch.lengths, batch.decodes
    if _own(q):
        y: Tensor = attention_op(q, keys, values, *where, batch.longest, window)
        return y
    if batch.decodes == len(q) and q.device.type == "cpu" and q.dtype == torch.float32 and find_spec("numba"):
        from workloads.inference import compiled  # noqa: PLC0415  numba is in the labs extra

        return compiled.attention(q, keys, values, batch.tables, batch.lengths, window)
    return reference.attention(q, keys, values, *where, window)


def fresh_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return the causal attention [T, N, H] of one sequence that starts here: no cache is read."""
    grouped = q.shape[1] != k.shape[1]
    q, k, v = (each.transpose(0, 1)[None] for each in (q, k, v))
    y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
    return y[0].transpose(0, 1)


def add_norm(x: Tensor, y: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return x + y (x without y) and its RMSNorm."""
    if not _own(x):
        return reference.add_norm(x, y, weight, eps)
    return (x, norm_op(x, weight, eps)) if y is None else add_norm_op(x, y, weight, eps)


def gate(x: Tensor) -> Tensor:
    """Return silu(first half) x second half of *x* [T, 2 F]."""
    return gate_op(x) if _own(x) else reference.gate(x)


def place(
    qkv: Tensor, keys: Tensor, values: Tensor, cos: Tensor | None, sin: Tensor | None, positions: Tensor,
    slots: Tensor, q_norm: Tensor | None, k_norm: Tensor | None, eps: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return queries [T, N, H] and keys [T, K, H], normed and rotated; write keys and values to the cache."""
    place = place_op if _own(qkv) else reference.place
    return place(qkv, keys, values, cos, sin, positions, slots, q_norm, k_norm, eps)
