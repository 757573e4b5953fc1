"""The operators of a step in plain torch: for CPUs and Apple's GPUs, and what the Triton kernels are compared with."""

import torch
from torch import Tensor
from torch.nn import functional

from simulator.packing import GROUP

_ROWS = 512  # outputs of a packed matrix that are unpacked at a time


def add_norm(x: Tensor, y: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return x + y (x without y) and its RMSNorm."""
    total = x if y is None else x + y
    return total, functional.rms_norm(total, total.shape[-1:], weight, eps)


def gate(x: Tensor) -> Tensor:
    """Return silu(first half) x second half of *x* [T, 2 F]."""
    first, second = x.chunk(2, dim=-1)
    return functional.silu(first) * second


def rotate(x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor) -> Tensor:
    """Turn *x* [T, heads, H] by the angles of *positions* [T]; *cos* and *sin* are [context, H / 2]."""
    c, s = cos[positions][:, None], sin[positions][:, None]
    a, b = x.to(cos.dtype).chunk(2, dim=-1)
    return torch.cat((a * c - b * s, a * s + b * c), dim=-1).to(x.dtype)


def store(cache: Tensor, new: Tensor, slots: Tensor) -> None:
    """Write *new* [T, K, H] to the *slots* of *cache* [blocks, page, K, H]; a negative slot is padding."""
    kept = slots >= 0
    cache.view(-1, *cache.shape[2:])[slots[kept].long()] = new[kept]


def place(
    qkv: Tensor, keys: Tensor, values: Tensor, cos: Tensor | None, sin: Tensor | None, positions: Tensor,
    slots: Tensor, q_norm: Tensor | None, k_norm: Tensor | None, eps: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return queries [T, N, H] and keys [T, K, H], normed and rotated; write keys and values to the cache."""
    kv_heads, head = keys.shape[2:]
    split = qkv.view(len(qkv), -1, head)
    q, k, v = torch.split(split, [split.shape[1] - 2 * kv_heads, kv_heads, kv_heads], dim=1)
    if q_norm is not None:
        q, k = functional.rms_norm(q, (head,), q_norm, eps), functional.rms_norm(k, (head,), k_norm, eps)
    if cos is not None and sin is not None:
        q, k = rotate(q, cos, sin, positions), rotate(k, cos, sin, positions)
    store(keys, k, slots)
    store(values, v, slots)
    return q, k


def attention(
    q: Tensor, keys: Tensor, values: Tensor, tables: Tensor, starts: Tensor, lengths: Tensor, decodes: int, window: int
) -> Tensor:
    """Return the attention of *q* [T, N, H] over the paged cache; arguments as `workloads.inference.batch.Batch`."""
    parts = []
    if decodes:
        positions = lengths[:decodes, None] - 1
        parts.append(_gathered(q[:decodes, None], positions, keys, values, tables[:decodes], window)[:, 0])
    begins, ends = starts.tolist(), lengths.tolist()
    for sequence in range(decodes, len(ends)):
        first, last, end = begins[sequence], begins[sequence + 1], ends[sequence]
        if last > first:
            positions = torch.arange(end - (last - first), end, device=q.device)[None]
            table = tables[sequence : sequence + 1, : -(-end // keys.shape[1])]
            parts.append(_gathered(q[None, first:last], positions, keys, values, table, window)[0])
    return torch.cat(parts) if len(parts) != 1 else parts[0]


def _gathered(q: Tensor, positions: Tensor, keys: Tensor, values: Tensor, tables: Tensor, window: int) -> Tensor:
    """*q* [S, Q, N, H] at *positions* [S, Q]; the keys of each sequence are copied into one piece."""
    count, span = tables.shape[0], tables.shape[1] * keys.shape[1]
    k, v = (cache[tables].view(count, span, *cache.shape[2:]).transpose(1, 2) for cache in (keys, values))
    behind = positions[..., None] - torch.arange(span, device=q.device)
    seen = (behind >= 0) & (behind < window) if window else behind >= 0
    grouped = q.shape[2] != keys.shape[2]
    y = functional.scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=seen[:, None], enable_gqa=grouped)
    return y.transpose(1, 2)


def linear(x: Tensor, data: Tensor, scales: Tensor, zeros: Tensor, bits: int) -> Tensor:
    """Return x W^T of a packed matrix, unpacking _ROWS of its outputs at a time."""
    outputs, groups = data.shape[0], scales.shape[0]
    padded = functional.pad(x, (0, groups * GROUP - x.shape[1]))
    parts = []
    for first in range(0, outputs, _ROWS):
        codes = data[first : first + _ROWS].view(-1, groups, GROUP * bits // 8)
        if bits == 4:
            codes = torch.cat((codes & 15, codes >> 4), dim=2)
        scale, zero = (part[:, first : first + _ROWS].t()[..., None].to(x.dtype) for part in (scales, zeros))
        parts.append(padded @ (codes.to(x.dtype) * scale + zero).flatten(1).t())
    return torch.cat(parts, dim=1)
