"""bf16 x bf16 + fp32 -> fp32 as the cells do it, on bit patterns and in exact integers; slow, and plainly right.

Policy: the product is exact and the sum is rounded once, to nearest even; subnormals are kept everywhere; overflow
gives infinity; every NaN result is 0x7fc00000; an exact zero sum of opposite signs is +0.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

NAN = 0x7FC00000
INFINITY = 0x7F800000
UNIT = 400  # values are held as whole multiples of 2**-UNIT, finer than any product


def fma(a: int, w: int, p: int) -> int:
    """Return the bits of a * w + p, for bf16 bits *a* and *w* and fp32 bits *p*."""
    x, y = float_of(a << 16), float_of(w << 16)
    with np.errstate(invalid="ignore", over="ignore"):
        special = np.float64(x) * np.float64(y) + np.float64(float_of(p))  # exact enough for infinities and NaN
    if np.isnan(special):
        return NAN
    if np.isinf(special):
        return INFINITY | (0x80000000 if special < 0 else 0)
    product_sign, p_sign = (a ^ w) >> 15 & 1, p >> 31
    total = _scaled(a << 16) * _scaled(w << 16) // 2**UNIT + _scaled(p)
    return round_to_fp32(total, negative_zero=bool(product_sign and p_sign))


def add(x: int, y: int) -> int:
    """Return the bits of the fp32 sum of two fp32 bit patterns."""
    with np.errstate(invalid="ignore", over="ignore"):
        special = np.float64(float_of(x)) + np.float64(float_of(y))
    if np.isnan(special):
        return NAN
    if np.isinf(special):
        return INFINITY | (0x80000000 if special < 0 else 0)
    return round_to_fp32(_scaled(x) + _scaled(y), negative_zero=bool(x >> 31 and y >> 31))


def round_to_fp32(total: int, negative_zero: bool) -> int:
    """Round *total* x 2**-UNIT to fp32, to nearest even, and return its bits."""
    if total == 0:
        return 0x80000000 if negative_zero else 0
    sign = 0x80000000 if total < 0 else 0
    size = abs(total)
    exponent = max(size.bit_length() - 24, UNIT - 149)  # of the last place: 24 bits, and never below 2**-149
    quotient, rest = size >> exponent, size & ((1 << exponent) - 1)
    half = 1 << (exponent - 1)
    quotient += rest > half or (rest == half and quotient & 1)
    # A significand of 2**23 or more carries its leading one into the exponent field, as does a carry to 2**24.
    bits = ((exponent - (UNIT - 149)) << 23) + quotient
    return sign | min(bits, INFINITY)


def _scaled(bits: int) -> int:
    """Return a finite fp32 value as a whole multiple of 2**-UNIT."""
    field, fraction = bits >> 23 & 0xFF, bits & 0x7FFFFF
    magnitude = (fraction | 0x800000 if field else fraction) << (max(field, 1) - 150 + UNIT)
    return -magnitude if bits >> 31 else magnitude


def float_of(bits: int) -> float:
    """Return the value of an fp32 bit pattern."""
    return float(np.uint32(bits).view(np.float32))


def matmul(a: npt.NDArray[Any], b: npt.NDArray[Any], fold: int | None) -> npt.NDArray[np.uint32]:
    """Return the fp32 bits of a @ b: a chain of fused steps over k, in folds of *fold* that are then added up.

    A fold that reaches past the edge of k is filled up with +0 x +0, as the array does.
    """
    m, n, k = a.shape[0], b.shape[1], a.shape[1]
    size = fold or k
    out = np.zeros((m, n), dtype=np.uint32)
    for row, column in np.ndindex(m, n):
        total = 0
        for start in range(0, k, size):
            part = 0
            for i in range(start, start + size):
                part = fma(int(a[row, i]), int(b[i, column]), part) if i < k else fma(0, 0, part)
            total = add(total, part) if start else part
        out[row, column] = total
    return out


def random_bf16(generator: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.uint16]:
    """Return bf16 bits: mostly near one, so that sums cancel and round; some anywhere; a few zero, tiny or infinite."""
    near = (generator.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    anywhere = generator.integers(0, 1 << 16, shape, dtype=np.uint16)
    special = generator.choice(np.array([0, 0x8000, 1, 0x807F, 0x7F80, 0x7F7F], dtype=np.uint16), shape)
    kind = generator.random(shape)
    return np.where(kind < 0.9, near, np.where(kind < 0.96, anywhere, special)).astype(np.uint16)
