"""The ladder on a CPU: the same product by loops that numba compiles, from plain loops to threads on packed blocks.

All take C-contiguous fp32 or fp64 a [m, k], b [k, n], c [m, n] of any size and write a @ b to c.  The last step is
the BLAS that numpy was built with, for comparison.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.errors import UsageError

try:
    from numba import njit
except ImportError:
    raise UsageError("the CPU ladder needs numba: pip install 'xpusim[labs]'") from None

Matrix = NDArray[np.floating[Any]]
_ROWS, _DEPTH, _COLUMNS = 64, 128, 256  # of a block: 128 KiB of b in the L2, 64 KiB of c beside it
_TAKEN = (np.float32, np.float16, np.float64)


@njit(cache=True)
def _scalar(a: Any, b: Any, c: Any) -> None:
    """One dot product an element: neighbours in b are a row apart."""
    m, k = a.shape
    zero = np.zeros(1, a.dtype)[0]
    for i in range(m):
        for j in range(b.shape[1]):
            total = zero
            for p in range(k):
                total += a[i, p] * b[p, j]
            c[i, j] = total


@njit(cache=True)
def _interchanged(a: Any, b: Any, c: Any) -> None:
    """The innermost loop goes along rows of b and c, which the compiler turns into vector instructions."""
    m, k = a.shape
    c[:] = 0
    for i in range(m):
        for p in range(k):
            x = a[i, p]
            for j in range(b.shape[1]):
                c[i, j] += x * b[p, j]


@njit(cache=True)
def _blocked(a: Any, b: Any, c: Any) -> None:
    """The same on blocks that stay in the cache while they are used."""
    m, k = a.shape
    n = b.shape[1]
    c[:] = 0
    for p0 in range(0, k, _DEPTH):
        deep = min(_DEPTH, k - p0)
        for j0 in range(0, n, _COLUMNS):
            wide = min(_COLUMNS, n - j0)
            for i in range(m):
                row = c[i, j0 : j0 + wide]
                for p in range(p0, p0 + deep):
                    x, source = a[i, p], b[p, j0 : j0 + wide]
                    for j in range(wide):
                        row[j] += x * source[j]


@njit(cache=True)
def _packed(a: Any, b: Any, c: Any) -> None:
    """Each block of b is copied to one piece of memory first: its rows share pages and fall into different sets."""
    m, k = a.shape
    n = b.shape[1]
    c[:] = 0
    block = np.empty((_DEPTH, _COLUMNS), b.dtype)
    for p0 in range(0, k, _DEPTH):
        deep = min(_DEPTH, k - p0)
        for j0 in range(0, n, _COLUMNS):
            wide = min(_COLUMNS, n - j0)
            block[:deep, :wide] = b[p0 : p0 + deep, j0 : j0 + wide]
            for i in range(m):
                row = c[i, j0 : j0 + wide]
                for p in range(deep):
                    x = a[i, p0 + p]
                    for j in range(wide):
                        row[j] += x * block[p, j]


@njit(cache=True, fastmath=True)
def _strip(a: Any, block: Any, c: Any, first: int, last: int, p0: int, deep: int, j0: int, wide: int) -> None:
    """Rows first..last of c times one packed block: eight steps of k for each time that c is read and written."""
    for i in range(first, last):
        row = c[i, j0 : j0 + wide]
        even = deep - deep % 8
        for p in range(0, even, 8):
            q = p0 + p
            x0, x1, x2, x3 = a[i, q], a[i, q + 1], a[i, q + 2], a[i, q + 3]
            x4, x5, x6, x7 = a[i, q + 4], a[i, q + 5], a[i, q + 6], a[i, q + 7]
            for j in range(wide):
                row[j] += (
                    x0 * block[p, j] + x1 * block[p + 1, j] + x2 * block[p + 2, j] + x3 * block[p + 3, j]
                    + x4 * block[p + 4, j] + x5 * block[p + 5, j] + x6 * block[p + 6, j] + x7 * block[p + 7, j]
                )  # fmt: skip
        for p in range(even, deep):
            x = a[i, p0 + p]
            for j in range(wide):
                row[j] += x * block[p, j]


@njit(cache=True, fastmath=True, nogil=True)
def _rows(a: Any, b: Any, c: Any, first: int, last: int) -> None:
    k, n = b.shape
    c[first:last] = 0
    block = np.empty((_DEPTH, _COLUMNS), b.dtype)
    for p0 in range(0, k, _DEPTH):
        deep = min(_DEPTH, k - p0)
        for j0 in range(0, n, _COLUMNS):
            wide = min(_COLUMNS, n - j0)
            block[:deep, :wide] = b[p0 : p0 + deep, j0 : j0 + wide]
            _strip(a, block, c, first, last, p0, deep, j0, wide)


def _vectorised(a: Matrix, b: Matrix, c: Matrix) -> None:
    """Sums stay in vector registers for eight steps of k; fused multiply-adds in any order."""
    _rows(a, b, c, 0, a.shape[0])


def _threaded(a: Matrix, b: Matrix, c: Matrix) -> None:
    """Strips of rows on all cores, each with packed blocks of its own."""
    firsts = range(0, a.shape[0], _ROWS)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(lambda first: _rows(a, b, c, first, min(first + _ROWS, a.shape[0])), firsts))


def _blas(a: Matrix, b: Matrix, c: Matrix) -> None:
    np.matmul(a, b, out=c)


@dataclass(frozen=True, slots=True)
class CpuStep:
    """One step: *run(a, b, c)* writes the product; *adds* says what is new."""

    name: str
    run: Callable[[Matrix, Matrix, Matrix], None]
    adds: str


CPU_LADDER = (
    CpuStep("scalar", _scalar, "three loops, a dot product an element"),
    CpuStep("interchanged", _interchanged, "innermost along the rows: vector loads"),
    CpuStep("blocked", _blocked, "128 x 256 of the right operand stay in the cache"),
    CpuStep("packed", _packed, "copied to one piece of memory first"),
    CpuStep("vectorised", _vectorised, "eight steps of k a pass over the result, fused multiply-adds"),
    CpuStep("threaded", _threaded, "strips of 64 rows on all cores"),
    CpuStep("blas", _blas, "the library of numpy"),
)


def cpu_step(name: str) -> CpuStep:
    """Return the step *name*.  Raises ValueError if there is none."""
    for each in CPU_LADDER:
        if each.name == name:
            return each
    raise ValueError(f"there is no step {name!r}; steps: {', '.join(each.name for each in CPU_LADDER)}")


def multiply(a: NDArray[Any], b: NDArray[Any], step: CpuStep) -> NDArray[Any]:
    """Return a @ b by *step*, of the operands' type: fp64, or fp32 or fp16, which are multiplied and added in fp32.

    Raises ValueError if the two cannot be multiplied.
    """
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"cannot multiply {list(a.shape)} by {list(b.shape)}: wanted [m, k] and [k, n]")
    if 0 in a.shape or 0 in b.shape:
        raise ValueError(f"nothing to multiply: {list(a.shape)} by {list(b.shape)}; every size has to be at least 1")
    if a.dtype != b.dtype or a.dtype not in _TAKEN:
        raise ValueError(
            f"cannot multiply {a.dtype} by {b.dtype}: wanted the same type twice, of float16, float32, float64"
        )
    inside = np.float64 if a.dtype == np.float64 else np.float32
    c = np.empty((a.shape[0], b.shape[1]), inside)
    step.run(np.ascontiguousarray(a, inside), np.ascontiguousarray(b, inside), c)
    return c.astype(a.dtype)


def measure(step: CpuStep, size: int, repeats: int = 5) -> float:
    """Return the least seconds of *repeats* products of two [size, size] matrices, after one that compiles."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size), np.float32) for _ in range(2))
    c = np.empty((size, size), np.float32)
    step.run(a, b, c)
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        step.run(a, b, c)
        times.append(time.perf_counter() - began)
    return min(times)
