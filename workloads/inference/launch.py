"""How the Triton kernels are launched: sizes of blocks, grids, and the buffers that they fill.  Needs Triton."""
# mypy: disable-error-code="no-untyped-call"

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from simulator.packing import GROUP
from workloads.inference import kernels_attention, kernels_linear, kernels_rows

LOG2_E = math.log2(math.e)
_KEYS = 64  # that a decode program takes at a time
_TILES = 65536  # of one matrix whose groups are split; each has a counter
_MOST_ROWS = 4  # of the kernel of multiply-adds


@dataclass(frozen=True, slots=True)
class Tile:
    """How a product with packed weights is cut.

    rows     of x in a program; 1, 2, 4: the kernel of multiply-adds, more: tensor cores; 0: unpack, then torch.
    outputs  of the matrix in a program.
    ahead    scales are loaded one round before they are used.
    waves    programs that the groups are split for, in multiples of the multiprocessors; 0: no split.
    """

    rows: int
    outputs: int
    waves: int
    warps: int = 4
    stages: int = 3
    ahead: bool = False


def tiles_for(rows: int) -> tuple[Tile, ...]:
    """Tiles that are tried for that many rows of x; the first is what is used where nothing was measured."""
    if rows <= 16:
        wide = Tile(16, 64, 8, 4, 4), Tile(16, 64, 4, 4, 6), Tile(16, 128, 4, 8, 4), Tile(16, 64, 4, 4, 4, ahead=True)
        height = min(_MOST_ROWS, bucket(rows))
        lanes = (
            Tile(height, 16, 4, 4, 4),
            Tile(height, 32, 8, 4, 4),
            Tile(height, 16, 8, 4, 2),
            Tile(height, 8, 8, 2, 3),
        )
        return (*wide, *lanes) if rows <= 2 * _MOST_ROWS else wide
    if rows <= 32:
        return Tile(32, 64, 4, 4, 4), Tile(32, 128, 4, 8, 4), Tile(32, 64, 4, 4, 4, ahead=True)
    if rows <= 64:
        return Tile(64, 64, 4, 4, 4), Tile(64, 128, 2, 8, 4), Tile(64, 64, 4, 4, 4, ahead=True), Tile(0, 32, 0)
    if rows <= 256:
        return (
            Tile(64, 128, 2, 8, 4), Tile(128, 128, 1, 8, 3), Tile(128, 128, 1, 8, 3, ahead=True), Tile(0, 32, 0)
        )  # fmt: skip
    return Tile(0, 32, 0), Tile(128, 128, 0, 8, 3)


@dataclass(slots=True)
class Tuned:
    """Tiles that were found to be fastest, by (bits, rows up to, outputs, inputs)."""

    found: dict[tuple[int, int, int, int], Tile]

    def tile(self, bits: int, rows: int, outputs: int, inputs: int) -> Tile:
        """The tile for a product: measured, or the first of the list."""
        return self.found.get((bits, bucket(rows), outputs, inputs), tiles_for(rows)[0])


TUNED = Tuned({})


def bucket(rows: int) -> int:
    """Return the power of two that *rows* are tuned with.

    >>> [bucket(rows) for rows in (1, 3, 16, 17)]
    [1, 4, 16, 32]
    """
    return 1 << (rows - 1).bit_length()


def linear(x: Tensor, data: Tensor, scales: Tensor, zeros: Tensor, bits: int, tile: Tile | None = None) -> Tensor:
    """Return x W^T of a packed matrix: x [rows, inputs] in bf16, fp16 or fp32, data [outputs, bytes]."""
    rows, inputs = x.shape
    outputs, groups = data.shape[0], scales.shape[0]
    found = tile or TUNED.tile(bits, rows, outputs, inputs)
    if not found.rows:
        return torch.mm(x, dequantised(data, scales, zeros, bits, inputs, x.dtype).t())
    x = x if x.stride(1) == 1 else x.contiguous()
    blocks, strips = _blocks(outputs, found.outputs), _blocks(rows, found.rows)
    wanted = max(1, min(groups, found.waves * _cores(x.device) // (blocks * strips)))
    per_part = _blocks(groups, wanted)
    parts = _blocks(groups, per_part)
    out = x.new_empty((rows, outputs))
    partial = out if parts == 1 else x.new_empty((parts, rows, outputs), dtype=torch.float32)
    lanes = found.rows <= _MOST_ROWS
    kernel = kernels_linear.matvec if lanes else kernels_linear.gemm
    special = {"STAGES": found.stages} if lanes else {"FAST": _fast(x), "AHEAD": found.ahead}
    kernel[(blocks, parts, strips)](
        x, data, scales, zeros, out, partial, _counters(x.device), rows, outputs, inputs, groups, per_part,
        x.stride(0), data.stride(0), BITS=bits, BLOCK_M=found.rows, BLOCK_N=found.outputs, SPLIT=parts > 1,
        EVEN=inputs % GROUP == 0, num_warps=found.warps, num_stages=found.stages, **special,
    )  # fmt: skip
    return out


def dequantised(data: Tensor, scales: Tensor, zeros: Tensor, bits: int, inputs: int, dtype: torch.dtype) -> Tensor:
    """Return the matrix [outputs, inputs] in *dtype*."""
    outputs, groups = data.shape[0], scales.shape[0]
    out = torch.empty((outputs, inputs), dtype=dtype, device=data.device)
    kernels_linear.dequantise[(_blocks(outputs, 32), groups)](
        data,
        scales,
        zeros,
        out,
        outputs,
        inputs,
        data.stride(0),
        BITS=bits,
        BLOCK_N=32,
        EVEN=inputs % GROUP == 0,
        num_warps=4,
    )
    return out


def attention(
    q: Tensor, keys: Tensor, values: Tensor, tables: Tensor, starts: Tensor, lengths: Tensor, decodes: int,
    longest: int, window: int,
) -> Tensor:  # fmt: skip
    """Return attention [T, N, H] of *q* over the paged cache: single tokens by one kernel, runs by the other."""
    out = torch.empty_like(q)
    if decodes:
        _decode(q, keys, values, tables, lengths, decodes, window, out)
    if longest:
        _prefill(q, keys, values, tables[decodes:], starts[decodes:], lengths[decodes:], longest, window, out)
    return out


def _decode(
    q: Tensor, keys: Tensor, values: Tensor, tables: Tensor, lengths: Tensor, count: int, window: int, out: Tensor
) -> None:
    heads, head = q.shape[1:]
    page, kv_heads = keys.shape[1:3]
    group = heads // kv_heads
    most = _blocks(tables.shape[1] * page, _KEYS)  # parts that a full table has keys for
    parts = max(1, min(64, most, _blocks(4 * _cores(q.device), count * kv_heads)))
    partial = q.new_empty((count, heads, parts, head), dtype=torch.float32)
    sums = q.new_empty((count, heads, parts), dtype=torch.float32)
    kernels_attention.decode[(parts, count * kv_heads)](
        q, keys, values, tables, lengths, partial, sums, q.stride(0), keys.stride(0), keys.stride(1), tables.stride(0),
        kv_heads, group, window, parts, head**-0.5 * LOG2_E,
        HEAD=head, BLOCK_M=max(16, bucket(group)), BLOCK_N=_KEYS, BLOCK_D=bucket(head), PAGE=page,
        num_warps=4, num_stages=3,
    )  # fmt: skip
    kernels_attention.combine[(count * heads,)](
        partial, sums, out, parts, HEAD=head, BLOCK_P=bucket(min(16, parts)), BLOCK_D=bucket(head), num_warps=2
    )


def _prefill(
    q: Tensor, keys: Tensor, values: Tensor, tables: Tensor, starts: Tensor, lengths: Tensor, longest: int,
    window: int, out: Tensor,
) -> None:  # fmt: skip
    heads, head = q.shape[1:]
    page, kv_heads = keys.shape[1:3]
    narrow = q.dtype == torch.float32  # twice the bytes of a tile
    rows = 32 if narrow else 128 if longest > 64 else 64
    kernels_attention.prefill[(_blocks(longest, rows), heads, lengths.shape[0])](
        q, keys, values, tables, starts, lengths, out, q.stride(0), keys.stride(0), keys.stride(1), tables.stride(0),
        heads, heads // kv_heads, window, head**-0.5 * LOG2_E,
        HEAD=head, BLOCK_M=rows, BLOCK_N=32 if narrow else 64, BLOCK_D=bucket(head), PAGE=page,
        num_warps=8 if rows == 128 else 4, num_stages=3,
    )  # fmt: skip


def add_norm(x: Tensor, y: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return x + y (x without y) and its RMSNorm."""
    out = torch.empty_like(x)
    total = x if y is None else torch.empty_like(x)
    width = x.shape[1]
    block = bucket(width)
    kernels_rows.add_norm[(x.shape[0],)](
        x, x if y is None else y, weight, total, out, width, eps, BLOCK=block, ADDED=y is not None,
        num_warps=4 if block <= 2048 else 8,
    )  # fmt: skip
    return total, out


def place(
    qkv: Tensor, keys: Tensor, values: Tensor, cos: Tensor | None, sin: Tensor | None, positions: Tensor,
    slots: Tensor, q_norm: Tensor | None, k_norm: Tensor | None, eps: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return queries [T, N, H] and keys [T, K, H], normed and rotated; write keys and values to the cache."""
    kv_heads, head = keys.shape[2:]
    tokens = qkv.shape[0]
    heads = qkv.shape[1] // head - 2 * kv_heads
    q, k = qkv.new_empty((tokens, heads, head)), qkv.new_empty((tokens, kv_heads, head))
    kernels_rows.place[(tokens, _blocks(heads + 2 * kv_heads, 8))](
        qkv, q, k, keys, values, qkv if cos is None else cos, qkv if sin is None else sin, positions, slots,
        qkv if q_norm is None else q_norm, qkv if k_norm is None else k_norm, heads, kv_heads, eps,
        HEAD=head, HALF=bucket(head // 2), HEADS=8, ROTATED=cos is not None, NORMED=q_norm is not None, num_warps=2,
    )  # fmt: skip
    return q, k


def gate(x: Tensor) -> Tensor:
    """Return silu(first half) x second half of *x* [T, 2 F]."""
    tokens, width = x.shape[0], x.shape[1] // 2
    out = x.new_empty((tokens, width))
    kernels_rows.gate[(tokens, _blocks(width, 1024))](x, out, width, BLOCK=1024, num_warps=4)
    return out


def _fast(x: Tensor) -> bool:
    """Whether codes may become bf16 by their bits: not in the interpreter, which knows no assembly."""
    return x.is_cuda and x.dtype == torch.bfloat16


def _blocks(length: int, size: int) -> int:
    return -(-length // size)


@cache
def _cores(device: torch.device) -> int:
    """Multiprocessors; the interpreter has one, and a few more keep its split paths in use."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


@cache
def _counters(device: torch.device) -> Tensor:
    """Programs of each tile that have finished; the last one resets its own."""
    return torch.zeros(_TILES, dtype=torch.int32, device=device)
