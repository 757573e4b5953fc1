"""Packed weights and paged keys on a CPU: loops that numba compiles, which copy neither a matrix nor a sequence.

Threads share the outputs.  The codes of one output and one group become fp32 once, in the first-level cache, and are
multiplied with each row of x.  Many rows are torch's business, over a strip of the matrix that stays in a cache.
"""
# mypy: disable-error-code="untyped-decorator, no-untyped-def, call-arg"

import numba
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from simulator.packing import GROUP

_STRIP = 32  # outputs that a thread takes at a time
_ROWS = 8  # of x, up to which unpacking costs more than multiplying
_OUTPUTS = 512  # that are unpacked at a time for more rows
_compiled = numba.njit(parallel=True, fastmath=True, nogil=True, cache=True)


@_compiled
def _eight(x, sums, data, scales, zeros, out):
    rows, groups = sums.shape
    outputs = data.shape[0]
    for strip in numba.prange((outputs + _STRIP - 1) // _STRIP):
        codes = np.empty(GROUP, dtype=np.float32)
        for n in range(strip * _STRIP, min(outputs, (strip + 1) * _STRIP)):
            for row in range(rows):
                out[row, n] = np.float32(0)
            for group in range(groups):
                base = group * GROUP
                for j in range(GROUP):
                    codes[j] = np.float32(np.int32(data[n, base + j]))
                for row in range(rows):
                    total = np.float32(0)
                    for j in range(GROUP):
                        total += codes[j] * x[row, base + j]
                    out[row, n] += scales[group, n] * total + zeros[group, n] * sums[row, group]


@_compiled
def _four(x, sums, data, scales, zeros, out):
    rows, groups = sums.shape
    outputs = data.shape[0]
    half = GROUP // 2
    for strip in numba.prange((outputs + _STRIP - 1) // _STRIP):
        codes = np.empty(GROUP, dtype=np.float32)
        for n in range(strip * _STRIP, min(outputs, (strip + 1) * _STRIP)):
            for row in range(rows):
                out[row, n] = np.float32(0)
            for group in range(groups):
                base = group * GROUP
                for j in range(half):
                    pair = np.int32(data[n, group * half + j])
                    codes[j] = np.float32(pair & 15)
                    codes[j + half] = np.float32(pair >> 4)
                for row in range(rows):
                    total = np.float32(0)
                    for j in range(GROUP):
                        total += codes[j] * x[row, base + j]
                    out[row, n] += scales[group, n] * total + zeros[group, n] * sums[row, group]


@_compiled
def _unpack(data, scales, zeros, bits, first, out):
    """Fill *out* [outputs, inputs] with the matrix from output *first* on."""
    half = GROUP // 2
    for n in numba.prange(out.shape[0]):
        for group in range(scales.shape[0]):
            base = group * GROUP
            scale, zero = scales[group, first + n], zeros[group, first + n]
            if bits == 8:
                for j in range(GROUP):
                    out[n, base + j] = np.float32(np.int32(data[first + n, base + j])) * scale + zero
            else:
                for j in range(half):
                    pair = np.int32(data[first + n, group * half + j])
                    out[n, base + j] = np.float32(pair & 15) * scale + zero
                    out[n, base + j + half] = np.float32(pair >> 4) * scale + zero


@_compiled
def _attend(q, keys, values, tables, lengths, window, out):
    """One new token of each sequence: q and out [sequences, heads, H], keys and values [blocks, page, kv heads, H]."""
    sequences, heads, head = q.shape
    page, kv_heads = keys.shape[1], keys.shape[2]
    group = heads // kv_heads
    scale = np.float32(1 / np.sqrt(head))
    for pair in numba.prange(sequences * heads):
        s, n = pair // heads, pair % heads
        k = n // group
        length = lengths[s]
        first = max(0, length - window) if window else 0
        weights = np.empty(length - first, dtype=np.float32)
        top = np.float32(-np.inf)
        for at in range(first, length):
            block, row = tables[s, at // page], at % page
            score = np.float32(0)
            for j in range(head):
                score += q[s, n, j] * keys[block, row, k, j]
            weights[at - first] = score * scale
            top = max(top, score * scale)
        total = np.float32(0)
        for at in range(length - first):
            weights[at] = np.exp(weights[at] - top)
            total += weights[at]
        for j in range(head):
            out[s, n, j] = np.float32(0)
        for at in range(first, length):
            block, row, weight = tables[s, at // page], at % page, weights[at - first] / total
            for j in range(head):
                out[s, n, j] += weight * values[block, row, k, j]


def attention(q: Tensor, keys: Tensor, values: Tensor, tables: Tensor, lengths: Tensor, window: int) -> Tensor:
    """Return the attention [S, N, H] of one new token *q* of each sequence over the paged cache, all in fp32."""
    out = torch.empty_like(q)
    pages = keys.numpy(), values.numpy(), tables.numpy(), lengths.numpy()
    _attend(q.contiguous().numpy(), *pages, window, out.numpy())
    return out


def linear(x: Tensor, data: Tensor, scales: Tensor, zeros: Tensor, bits: int) -> Tensor:
    """Return x W^T of a packed matrix, computed in fp32, in the type of *x*."""
    rows, (outputs, groups) = len(x), (data.shape[0], scales.shape[0])
    wide = functional.pad(x.float(), (0, groups * GROUP - x.shape[1])).contiguous()
    parts = data.numpy(), scales.float().numpy(), zeros.float().numpy()
    out = torch.empty((rows, outputs), dtype=torch.float32)
    if rows <= _ROWS:
        sums = wide.view(rows, groups, GROUP).sum(2)
        (_four if bits == 4 else _eight)(wide.numpy(), sums.numpy(), *parts, out.numpy())
        return out.to(x.dtype)
    strip = torch.empty((min(outputs, _OUTPUTS), groups * GROUP), dtype=torch.float32)
    for first in range(0, outputs, _OUTPUTS):
        last = min(outputs, first + _OUTPUTS)
        _unpack(*parts, bits, first, strip[: last - first].numpy())
        out[:, first:last] = wide @ strip[: last - first].t()
    return out.to(x.dtype)
