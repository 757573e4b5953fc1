"""One GEMM on several equal arrays: cut it into a grid of blocks and let the largest block decide."""

import math
from dataclasses import dataclass

import numpy as np

from hw_models.systolic.array import Array, ceil_div
from hw_models.systolic.gemm import Run, run_gemm
from hw_models.systolic.traffic import Scratchpads
from simulator.errors import UsageError


@dataclass(frozen=True, slots=True)
class Split:
    """How a GEMM was cut, and what that costs.

    m_parts, n_parts, k_parts   pieces of each dimension; their product is the number of cores
    largest                     the run of a core with the largest block, at its share of the DRAM bandwidth
    reduction_words             partial sums that each core takes in from the others, 0 if k is whole
    reduction_cycles            cycles to add them up, one row of *columns* words a cycle
    """

    m_parts: int
    n_parts: int
    k_parts: int
    largest: Run
    reduction_words: int
    reduction_cycles: int

    @property
    def cycles(self) -> int:
        """From the start to the last finished result."""
        return int(self.largest.cycles) + self.reduction_cycles


def split_gemm(
    array: Array,
    m: int,
    n: int,
    k: int,
    cores: int,
    scratchpads: Scratchpads | None = None,
    bandwidth: float = math.inf,
) -> Split:
    """Cut C[m, n] = A[m, k] B[k, n] over *cores* arrays so that it ends as early as possible.

    Every grid of m x n x k parts is tried; of equally fast ones, the one with the fewest parts of k, then of n.
    *bandwidth* is that of all cores together and is shared equally.

    >>> split = split_gemm(Array(4, 4), m=64, n=8, k=4, cores=4)
    >>> split.m_parts, split.n_parts, split.k_parts, split.cycles
    (4, 1, 1, 43)
    """
    if cores < 1:
        raise UsageError(f"cores is {cores}, wanted at least 1")
    grids = np.array(_grids(cores), dtype=np.int64)
    m_parts, n_parts, k_parts = grids.T
    sizes = ceil_div(m, m_parts), ceil_div(n, n_parts), ceil_div(k, k_parts)
    runs = run_gemm(array, sizes[0], sizes[1], sizes[2], scratchpads, bandwidth / cores)
    words = (k_parts - 1) * ceil_div(sizes[0] * sizes[1], k_parts)
    reduction = ceil_div(words, array.columns)
    best = int(np.argmin(runs.cycles + reduction))
    rows, columns, depth = (int(np.asarray(size)[best]) for size in sizes)
    return Split(
        m_parts=int(m_parts[best]),
        n_parts=int(n_parts[best]),
        k_parts=int(k_parts[best]),
        largest=run_gemm(array, rows, columns, depth, scratchpads, bandwidth / cores),
        reduction_words=int(np.asarray(words)[best]),
        reduction_cycles=int(np.asarray(reduction)[best]),
    )


def _grids(cores: int) -> list[tuple[int, int, int]]:
    """Return every (m, n, k) of whole parts whose product is *cores*, few parts of k first, then few of n."""
    divisors = [part for part in range(1, cores + 1) if cores % part == 0]
    return [(cores // k // n, n, k) for k in divisors for n in divisors if cores % k == 0 and (cores // k) % n == 0]
