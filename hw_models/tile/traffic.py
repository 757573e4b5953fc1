"""Bytes that a blocked matrix product moves to and from the off-chip memory: a capacity effect."""

from math import ceil, isqrt

_ACCUMULATOR = 4  # bytes of one partial sum
_SLICE = 64  # depth of K that is on the chip at a time while a block of the result accumulates


def matmul_traffic(
    m: int, n: int, k: int, batch: int, size: float, out_size: float, capacity: int, packed: float = 1
) -> float:
    """Return the least traffic of *batch* products [m, k] x [k, n] with *capacity* bytes on the chip.

    *packed* is the part of its size that the right operand takes, if it is quantised.

    Three ways are compared: a block of rows of the left operand stays while the right one streams past it, the same
    with the operands exchanged, and a square block of the result accumulates while slices of both stream by.  Where
    an operand fits as a whole each element moves once, which is the compulsory traffic.

    >>> matmul_traffic(64, 64, 64, 1, 2, 2, capacity=10**6)  # all fits: three matrices of 64 x 64 x 2 B
    24576
    >>> matmul_traffic(64, 64, 64, 1, 2, 2, capacity=8192)  # 32 rows stay at a time: the other operand is read twice
    32768
    """
    left, right, result = m * k * size, k * n * size * packed, m * n * out_size
    ways = [
        left + right * _passes(m, k * size, capacity // 2),
        right + left * _passes(n, k * size, capacity // 2),
    ]
    side = max(1, min(isqrt(capacity // (2 * _ACCUMULATOR)), capacity // max(1, int(4 * _SLICE * size))))
    ways.append(left * ceil(n / side) + right * ceil(m / side))
    return batch * (min(ways) + result)


def _passes(rows: int, row_bytes: float, capacity: int) -> int:
    """How often the other operand streams past when blocks of rows of this one stay on the chip."""
    if rows * row_bytes <= capacity:
        return 1
    held = max(1, int(capacity // row_bytes))
    return ceil(rows / held)
