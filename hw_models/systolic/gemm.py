"""One call for everything about a GEMM on an array: cycles by phase, stalls, SRAM and DRAM words, utilisation."""

import math
from dataclasses import dataclass
from typing import Any

from hw_models.systolic.array import Array, Count, Mapping, Sizes, check_count, map_gemm
from hw_models.systolic.cycles import Phases, folds, phases_of
from hw_models.systolic.stalls import Bandwidth, dram_traffic
from hw_models.systolic.traffic import Scratchpads, Words, sram_words


@dataclass(frozen=True, slots=True)
class Run:
    """A GEMM on an array; every number is one integer, or an array with one for each shape.

    folds         tiles of the operand that stays in the cells
    phases        stall-free cycles
    stall_cycles  cycles lost to DRAM, on top of the phases
    sram          words between scratchpads and array
    dram          words between DRAM and scratchpads; None without scratchpads
    """

    array: Array
    mapping: Mapping
    folds: Count
    phases: Phases
    stall_cycles: Count
    sram: Words
    dram: Words | None

    @property
    def cycles(self) -> Count:
        """All cycles, from the first word from DRAM to the last result."""
        return self.phases.cycles + self.stall_cycles

    @property
    def macs(self) -> Count:
        """Multiply-accumulates: m n k."""
        return self.mapping.across * self.mapping.along * self.mapping.time

    @property
    def mapping_efficiency(self) -> Any:
        """Share of cells that hold something, averaged over folds; from 0 to 1."""
        return self.mapping.across * self.mapping.along / (1.0 * self.folds * self.array.cells)

    @property
    def utilisation(self) -> Any:
        """Multiply-accumulates done of those that all cells could do in all cycles; from 0 to 1."""
        return self.macs / (1.0 * self.array.cells * self.cycles)


def run_gemm(
    array: Array,
    m: Sizes,
    n: Sizes,
    k: Sizes,
    scratchpads: Scratchpads | None = None,
    bandwidth: Bandwidth = math.inf,
    input_words: Sizes | None = None,
) -> Run:
    """Run C[m, n] = A[m, k] B[k, n] for one shape or for arrays of shapes.

    bandwidth   words a cycle between DRAM and the scratchpads, shared by reads and writes; one, or one a shape
    input_words  distinct words of A if it is a convolution's unrolled input; half a scratchpad that holds them all
                 gets each of them once.  None: all of A's are distinct.

    >>> run = run_gemm(Array(4, 4), m=7, n=5, k=9, scratchpads=Scratchpads(1024, 1024, 1024), bandwidth=4.0)
    >>> run.phases.cycles, run.stall_cycles, run.dram
    (53, 11, Words(ifmap=63, filter=45, ofmap=35))
    """
    mapping = map_gemm(array, m, n, k)
    check_count(array, mapping)
    count, stall_free = folds(array, mapping), phases_of(array, mapping)
    words = sram_words(array, mapping)
    if scratchpads is None:
        return Run(array, mapping, count, stall_free, 0 * count, words, None)
    traffic = dram_traffic(array, mapping, scratchpads, bandwidth, input_words)
    return Run(array, mapping, count, stall_free, traffic.stall_cycles, words, traffic.words)
