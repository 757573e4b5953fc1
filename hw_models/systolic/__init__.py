"""Systolic arrays: exact cycles of our RTL and of SCALE-Sim, with the memory behind them.

Closed forms over one shape or over arrays of shapes; rtl/README.md derives them, tests/rtl holds them against Verilog.
"""

from hw_models.systolic.area import Area, array_area, cell_area
from hw_models.systolic.array import Array, Convention, Dataflow, Mapping, map_gemm
from hw_models.systolic.cores import Split, split_gemm
from hw_models.systolic.cycles import Phases, folds, phases
from hw_models.systolic.gemm import Run, run_gemm
from hw_models.systolic.stepper import Phase, Place, Step, count_phases, play
from hw_models.systolic.traffic import Scratchpads, Words

__all__ = [
    "Area",
    "Array",
    "Convention",
    "Dataflow",
    "Mapping",
    "Phase",
    "Phases",
    "Place",
    "Run",
    "Scratchpads",
    "Split",
    "Step",
    "Words",
    "array_area",
    "cell_area",
    "count_phases",
    "folds",
    "map_gemm",
    "phases",
    "play",
    "run_gemm",
    "split_gemm",
]
