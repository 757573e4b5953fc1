"""How the Triton kernels are launched: sizes of blocks, grids, and the buffers that they fill.

Needs Triton; `backend` says whether it can be had.  On a machine without a GPU the kernels run in Triton's interpreter
if ``TRITON_INTERPRET=1`` is set before this is imported.
"""
# mypy: disable-error-code="no-untyped-call"

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from workloads.flash_attention import kernels, kernels_backward, kernels_decode

LOG2_E = math.log2(math.e)
DECODE_QUERIES = 16  # up to this many, keys are split over programs
_SMALL = 16  # no tensor core takes fewer rows
_COMBINED = 16  # parts that are put together at a time


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows of queries and of keys of one program, its warps, and the depth of its pipeline of loads."""

    queries: int
    keys: int
    warps: int
    stages: int


def forward_blocks(head: int) -> Blocks:
    """Blocks of the forward kernel for a head size; the search of ``device-run`` found them on an H200."""
    return Blocks(128, 128, 8, 3) if head == 64 else Blocks(128, 64, 8, 3)


def query_blocks(_head: int) -> Blocks:
    """Blocks of the kernel that makes dQ; found as those of the forward kernel."""
    return Blocks(128, 64, 8, 3)


def key_blocks(head: int) -> Blocks:
    """Blocks of the kernel that makes dK and dV; with more keys its two accumulators no longer fit the registers."""
    return Blocks(64, 128, 8, 3) if head == 64 else Blocks(32, 64, 4, 2)


def decode_blocks(head: int, rows: int) -> Blocks:
    """Blocks of the decode kernel for *rows* (head, query) rows of one key head."""
    return Blocks(min(64, max(_SMALL, _power(rows))), 128 if head == 64 else 64, 4, 3)


def forward(
    query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float, blocks: Blocks | None = None
) -> tuple[Tensor, Tensor]:
    """Return output and log-sum-exp [batch, heads, queries] (fp32) by the kernels; inputs as `checks` wants them."""
    batch, heads, q_len, head = query.shape
    if q_len <= DECODE_QUERIES and blocks is None:
        return decode(query, key, value, causal, scale)
    found = blocks or forward_blocks(head)
    out = torch.empty_like(query)
    logsum = query.new_empty((batch, heads, q_len), dtype=torch.float32)
    kernels.forward[(_blocks(q_len, found.queries), batch * heads)](
        query, key, value, out, logsum,
        *_strides(query), *_strides(key), *_strides(value), *_strides(out),
        heads, heads // key.shape[1], q_len, key.shape[2], scale * LOG2_E,
        **_constants(found, head), CAUSAL=causal, num_warps=found.warps, num_stages=found.stages,
    )  # fmt: skip
    return out, logsum


def decode(
    query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float, parts: int = 0
) -> tuple[Tensor, Tensor]:
    """Return what `forward` does, the keys split into *parts* (0: as many as fill the device, at most one a block)."""
    batch, heads, q_len, head = query.shape
    kv_heads, kv_len = key.shape[1:3]
    rows = heads // kv_heads * q_len
    found = decode_blocks(head, rows)
    groups = _blocks(rows, found.queries)
    chunks = _blocks(kv_len, found.keys)
    wanted = parts or 2 * _cores(query) // max(1, batch * kv_heads * groups)
    part = _blocks(chunks, max(1, min(chunks, wanted))) * found.keys
    count = _blocks(kv_len, part)
    partial = query.new_empty((batch, kv_heads, rows, count, head), dtype=torch.float32)
    sums = query.new_empty((batch, kv_heads, rows, count), dtype=torch.float32)
    kernels_decode.decode[(count, batch * kv_heads, groups)](
        query, key, value, partial, sums, *_strides(query), *_strides(key), *_strides(value),
        kv_heads, heads // kv_heads, q_len, kv_len, part, count, scale * LOG2_E,
        **_constants(found, head), CAUSAL=causal and q_len > 1, num_warps=found.warps, num_stages=found.stages,
    )  # fmt: skip
    out = torch.empty_like(query)
    logsum = query.new_empty((batch, heads, q_len), dtype=torch.float32)
    kernels_decode.combine[(batch * heads * q_len,)](
        partial, sums, out, logsum, *_strides(out), heads, q_len, count,
        HEAD=head, BLOCK_P=_COMBINED, BLOCK_D=_power(head), num_warps=4,
    )  # fmt: skip
    return out, logsum


def backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsum: Tensor, causal: bool, scale: float,
    query_sizes: Blocks | None = None, key_sizes: Blocks | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return dQ, dK and dV in the layouts of *query*, *key* and *value*."""
    batch, heads, q_len, head = query.shape
    kv_heads, kv_len = key.shape[1:3]
    grad = grad if grad.stride(3) == 1 else grad.contiguous()  # autograd hands over expanded gradients, of a sum say
    delta = torch.empty_like(logsum)
    kernels_backward.row_sums[(_blocks(q_len, 64), batch * heads)](
        out, grad, delta, *_strides(out), *_strides(grad), heads, q_len, HEAD=head, BLOCK_M=64, BLOCK_D=_power(head)
    )
    dq, dk, dv = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
    read = (query, key, value, grad, logsum, delta)
    strides = (*_strides(query), *_strides(key), *_strides(value), *_strides(grad))
    found = query_sizes or query_blocks(head)
    kernels_backward.query_gradient[(_blocks(q_len, found.queries), batch * heads)](
        *read, dq, *strides, *_strides(dq), heads, heads // kv_heads, q_len, kv_len, scale,
        **_constants(found, head), CAUSAL=causal, num_warps=found.warps, num_stages=found.stages,
    )  # fmt: skip
    found = key_sizes or key_blocks(head)
    kernels_backward.key_gradient[(_blocks(kv_len, found.keys), batch * kv_heads)](
        *read, dk, dv, *strides, *_strides(dk), *_strides(dv), kv_heads, heads // kv_heads, q_len, kv_len, scale,
        **_constants(found, head), CAUSAL=causal, num_warps=found.warps, num_stages=found.stages,
    )  # fmt: skip
    return dq, dk, dv


def _constants(blocks: Blocks, head: int) -> dict[str, Any]:
    return {"HEAD": head, "BLOCK_M": blocks.queries, "BLOCK_N": blocks.keys, "BLOCK_D": _power(head)}


def _strides(tensor: Tensor) -> tuple[int, ...]:
    """Strides of batch, head and row; that of an axis of length 1 may be anything, and 0 is aligned."""
    return tuple(tensor.stride(axis) if tensor.shape[axis] > 1 else 0 for axis in range(3))


def _blocks(length: int, size: int) -> int:
    return -(-length // size)


def _power(size: int) -> int:
    return 1 << (size - 1).bit_length()


def _cores(tensor: Tensor) -> int:
    return torch.cuda.get_device_properties(tensor.device).multi_processor_count if tensor.is_cuda else 4
