"""Arithmetic intensity of single operators, in FLOP per byte, every operand moved once."""

from simulator.dtypes import DType


def matmul_intensity(m: float, k: float, n: float, dtype: DType = DType.BF16) -> float:
    """[m, k] x [k, n]: 2 m k n FLOP over m k + k n + m n elements.

    >>> matmul_intensity(1024, 1024, 1024)
    341.3333333333333
    """
    return 2 * m * k * n / ((m * k + k * n + m * n) * dtype.bits / 8)


def dot_intensity(n: float, dtype: DType = DType.BF16) -> float:
    """Two vectors of n: n multiplications and n - 1 additions over 2 n + 1 elements."""
    return (2 * n - 1) / ((2 * n + 1) * dtype.bits / 8)


def chain_length(ridge: float, dtype: DType = DType.FP32) -> float:
    """Return the operations on each element, read and written once, at which a chain turns compute bound."""
    return ridge * 2 * dtype.bits / 8
