"""Bytes of attention on paper: written out, and in blocks that stay in SRAM.  Every size in bytes, every count in one.

Written out, the scores cross the memory between kernels: they grow with the square of the length.  In blocks, queries
are read once and keys and values once for each block of queries, unless a cache holds them in between: what crosses
depends on how many queries fit beside a block of keys (Dao et al., arXiv:2205.14135, theorem 2).
"""

from dataclasses import dataclass
from math import ceil

from simulator.dims import AttentionDims

_SUMS = 4  # bytes of one fp32 number: log-sums and accumulators


@dataclass(frozen=True, slots=True)
class Kernel:
    """DRAM bytes that one kernel reads and writes."""

    name: str
    reads: int
    writes: int

    @property
    def total(self) -> int:
        return self.reads + self.writes


def tensors(dims: AttentionDims, size: int) -> tuple[int, int, int]:
    """Bytes of the queries, of keys and values together, and of the scores, *size* bytes an element.

    >>> tensors(AttentionDims(1, 2, 1, 4, 8, 16, 16), 2)
    (256, 512, 128)
    """
    queries = dims.batch * dims.heads * dims.q_len * dims.head_dim * size
    keys = dims.batch * dims.kv_heads * dims.kv_len * (dims.head_dim + dims.value_dim) * size
    return queries, keys, dims.batch * dims.heads * dims.q_len * dims.kv_len * size


def naive(dims: AttentionDims, size: int, cache: int = 0, scaled: bool = True) -> tuple[Kernel, ...]:
    """Attention written out: scores, their scaling, the softmax and the sum of values, one kernel each.

    cache   bytes between kernels and memory: scores that fit are read from there, and still written out.
    scaled  whether scaling is a kernel of its own, as in eager PyTorch; in a formula it is not.
    """
    queries, keys, scores = tensors(dims, size)
    once = 0 if scores <= cache else scores
    out = queries // dims.head_dim * dims.value_dim
    key = keys * dims.head_dim // (dims.head_dim + dims.value_dim)
    return (
        Kernel("scores", queries + key, scores),
        *((Kernel("scale", once, scores),) if scaled else ()),
        Kernel("softmax", once, scores),
        Kernel("values", once + keys - key, out),
    )


def flash(dims: AttentionDims, size: int, block_q: int, cache: int = 0, block_k: int = 128) -> Kernel:
    """Attention in blocks of *block_q* queries; *cache* holds keys and values of a key head between blocks if they fit.

    Without a cache each block of queries fetches the blocks of keys that its mask leaves.
    """
    queries, keys, _ = tensors(dims, size)
    of_head = keys // (dims.batch * dims.kv_heads)
    if of_head > cache:
        blocks = ceil(dims.q_len / block_q)
        group = dims.heads // dims.kv_heads
        keys = round(keys * blocks * group * (visited(dims, block_q, block_k)))
    out = queries // dims.head_dim * dims.value_dim
    return Kernel("flash", queries + keys, out + dims.batch * dims.heads * dims.q_len * _SUMS)


def flash_backward(dims: AttentionDims, size: int) -> tuple[Kernel, Kernel, Kernel]:
    """The three kernels of the backward pass, keys and queries cached between blocks: row sums, dQ, dK with dV."""
    queries, keys, _ = tensors(dims, size)
    sums = dims.batch * dims.heads * dims.q_len * _SUMS
    return (
        Kernel("row_sums", 2 * queries, sums),
        Kernel("query_gradient", 2 * queries + keys + 2 * sums, queries),
        Kernel("key_gradient", 2 * queries + keys + 2 * sums, keys),
    )


def visited(dims: AttentionDims, block_q: int, block_k: int) -> float:
    """Part of all blocks of scores that a causal mask leaves; 1 without one.

    >>> visited(AttentionDims(1, 1, 1, 4096, 4096, 64, 64, causal=True), 128, 128)  # (T + 1) / 2T, T = 32
    0.515625
    """
    across = ceil(dims.kv_len / block_k)
    if not dims.causal:
        return 1.0
    shift = dims.kv_len - dims.q_len
    lasts = (min(dims.kv_len, first + block_q + shift) for first in range(0, dims.q_len, block_q))
    counts = [ceil(last / block_k) for last in lasts]
    return sum(counts) / (len(counts) * across)


def intensity(dims: AttentionDims, nbytes: int) -> float:
    """FLOP per byte."""
    return dims.flops / nbytes


def block_sram(block_q: int, block_k: int, head: int, size: int, stages: int = 1, scores: int = 0) -> int:
    """Bytes that one block needs: its queries, *stages* blocks of keys and of values, and its scores.

    scores  bytes of one score kept in SRAM; 0 where registers hold them.

    >>> block_sram(32, 32, 64, size=4, scores=4)  # the textbook kernel in fp32: (3 x 32 x 64 + 32 x 32) x 4
    28672
    >>> block_sram(128, 64, 128, size=2, stages=3) // 1024  # KiB: what ptxas reports for the kernel of this lab
    128
    """
    return (block_q + 2 * stages * block_k) * head * size + block_q * block_k * scores


def whole_sram(block_q: int, block_k: int, head: int, size: int) -> int:
    """Bytes of one block where nothing else holds accumulators: two stages of keys, scores and output in fp32."""
    return block_sram(block_q, block_k, head, size, stages=2, scores=_SUMS) + block_q * (head + 2) * _SUMS


def largest_block(sram: int, head: int, size: int, block_k: int = 64, most: int = 4096) -> int:
    """Queries, a multiple of 16, of the largest block that fits into *sram* bytes by `whole_sram`; 0 if 16 do not.

    >>> largest_block(128 * 1024, 128, 2)
    48
    """
    fits = (count for count in range(most, 0, -16) if whole_sram(count, min(count, block_k), head, size) <= sram)
    return next(fits, 0)


def exponentials_per_cycle(macs_per_cycle: float, head: int) -> float:
    """Exponentials a cycle that keep up with *macs_per_cycle*: a pair takes two products of *head* and one of them.

    >>> exponentials_per_cycle(2048, 128)
    8.0
    """
    return macs_per_cycle / (2 * head)
