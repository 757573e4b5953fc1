"""One GEMM on several equal arrays: cut it into a grid of blocks and let the largest block decide."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from hw_models.systolic.array import Array, ceil_div, check_count, map_gemm
from hw_models.systolic.cycles import phases
from hw_models.systolic.gemm import Run, run_gemm
from hw_models.systolic.traffic import Scratchpads
from simulator.errors import UsageError

MOST_CORES = 4096


@dataclass(frozen=True, slots=True)
class Split:
    """How a GEMM was cut, and what that costs.

    m_parts, n_parts, k_parts   pieces of each dimension; their product is the number of cores at work
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
    def busy_cores(self) -> int:
        """Cores that have a block; the others idle, because sharing the bandwidth with them would cost more."""
        return self.m_parts * self.n_parts * self.k_parts

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

    Every grid of up to *cores* m x n x k parts counts; of equally fast ones, that with the fewest parts of k, then of
    n, then of m.  *bandwidth* is that of all cores together; those at work share it equally, and each fetches all that
    its block needs.  So it can be best to leave cores idle, and one core more never takes longer.

    >>> split = split_gemm(Array(4, 4), m=64, n=8, k=4, cores=4)
    >>> split.m_parts, split.n_parts, split.k_parts, split.cycles
    (4, 1, 1, 43)
    """
    if not 1 <= cores <= MOST_CORES:
        raise UsageError(f"cores is {cores}, wanted at {'least 1' if cores < 1 else f'most {MOST_CORES:,}'}")
    check_count(array, map_gemm(array, m, n, k))
    parts = _grids(cores)
    parts = parts[:, (parts <= np.array([[m], [n], [k]])).all(axis=0)]
    sizes: npt.NDArray[np.int64] = -(-np.array([[m], [n], [k]]) // parts)
    reduction = -(-_reduction_words(sizes, parts) // array.columns)
    least = np.asarray(phases(array, sizes[0], sizes[1], sizes[2]).cycles + reduction)
    if scratchpads is not None:  # some core takes in, or gives out, every word at least once
        once = sizes[0] * sizes[2] + sizes[2] * sizes[1] + sizes[0] * sizes[1]
        least = np.maximum(least, 0.999 * once * parts.prod(axis=0) / bandwidth)

    def cycles(which: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
        speed = bandwidth / parts[:, which].prod(axis=0)
        rows, columns, depth = sizes[:, which]
        run = run_gemm(array, rows, columns, depth, scratchpads, speed)
        total: npt.NDArray[np.int64] = run.cycles + reduction[which]
        return total

    bound = cycles(np.argmin(least, keepdims=True))[0]
    worth = np.flatnonzero(least <= bound)
    best = int(worth[np.argmin(cycles(worth))])
    m_parts, n_parts, k_parts = parts[:, best].tolist()
    rows, columns, depth = sizes[:, best].tolist()
    return Split(
        m_parts=m_parts,
        n_parts=n_parts,
        k_parts=k_parts,
        largest=run_gemm(array, rows, columns, depth, scratchpads, bandwidth / (m_parts * n_parts * k_parts)),
        reduction_words=int(_reduction_words(sizes, parts)[best]),
        reduction_cycles=int(reduction[best]),
    )


def _reduction_words(sizes: npt.NDArray[np.int64], parts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the partial sums that each core takes in: its share of a block, from all others along k."""
    words: npt.NDArray[np.int64] = (parts[2] - 1) * ceil_div(sizes[0] * sizes[1], parts[2])
    return words


@lru_cache(maxsize=4)
def _grids(cores: int) -> npt.NDArray[np.int64]:
    """Return every m, n, k of whole parts whose product is at most *cores*; few parts of k first, then few of n."""
    grids = [
        (m, n, k) for k in range(1, cores + 1) for n in range(1, cores // k + 1) for m in range(1, cores // k // n + 1)
    ]
    return np.array(grids, dtype=np.int64).T
