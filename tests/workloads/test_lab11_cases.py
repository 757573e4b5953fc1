"""Lab 11: cycles, SRAM and DRAM words of systolic arrays, against SCALE-Sim 3.0.0 and closed forms.

SCALE-Sim's totals are the index of the last cycle, one less than the cycles.
"""

import csv
import json
import time
from collections.abc import Callable
from math import inf

import pytest

from hw_models import load_chip
from hw_models.systolic import Array, Convention, Dataflow, Scratchpads, phases, run_gemm
from tests.workloads.lab_cases import CASES

FLOWS = (Dataflow.OUTPUT, Dataflow.WEIGHT, Dataflow.INPUT)
CALC = Scratchpads(256 * 1024, 256 * 1024, 256 * 1024)


def rows() -> dict[str, dict[str, str]]:
    with CASES.open(newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file) if row["lab"] == "11"}


def printed(side: int, dataflow: Dataflow, m: int, n: int, k: int) -> int:
    """What SCALE-Sim prints as total cycles."""
    return int(phases(Array(side, side, dataflow, Convention.SCALESIM), m, n, k).cycles) - 1


def by_size(m: int, n: int, k: int) -> list[list[int]]:
    return [[printed(side, dataflow, m, n, k) for dataflow in FLOWS] for side in (32, 16, 8)]


def words() -> list[int]:
    run = run_gemm(Array(16, 16, Dataflow.OUTPUT, Convention.SCALESIM), 64, 64, 64, CALC, inf)
    assert run.dram is not None
    sram, dram = run.sram, run.dram
    return [int(each) for each in (sram.ifmap, sram.filter, sram.ofmap, dram.ifmap, dram.filter, dram.ofmap)]


def vector_words() -> dict[str, object]:
    runs = [run_gemm(Array(16, 16, dataflow, Convention.SCALESIM), 1, 256, 256) for dataflow in FLOWS]
    return {"filter": [int(run.sram.filter) for run in runs], "ofmap_ws": int(runs[1].sram.ofmap)}


def large() -> list[object]:
    start = time.perf_counter()
    found = [printed(32, Dataflow.OUTPUT, 512, 512, 512), printed(32, Dataflow.OUTPUT, 1024, 1600, 1600)]
    return [*found, "<1 s each" if time.perf_counter() - start < 1 else "slower"]


def conventions() -> list[int]:
    cycles = int(phases(Array(4, 4, Dataflow.OUTPUT, Convention.SCALESIM), 4, 4, 4).cycles)
    return [cycles, printed(4, Dataflow.OUTPUT, 4, 4, 4)]


ANSWERS: dict[str, Callable[[], object]] = {
    "L11-X1": lambda: by_size(256, 32, 64),
    "L11-X2": lambda: by_size(128, 128, 64),
    "L11-X3": words,
    "L11-X4": vector_words,
    "L11-X5": large,
    "L11-X6": lambda: [printed(32, dataflow, 256, 128, 256) for dataflow in FLOWS],
    "L11-X7": conventions,
}


@pytest.mark.parametrize("name", ANSWERS)
def test_exact_case(name: str) -> None:
    assert ANSWERS[name]() == json.loads(rows()[name]["expected"])


def test_x12_a_report_of_scale_sim_1_is_not_its_own_closed_form() -> None:
    # os lays 256 x 768 results over 128 x 128 cells: 2 x 6 folds of K + R + C - 2 = 510 cycles: 6,120, less one.
    reported, closed = json.loads(rows()["L11-X12"]["expected"])
    assert printed(128, Dataflow.OUTPUT, 256, 768, 256) == closed
    assert reported == 12 * 3 * 128  # what the user saw: folds of 3 x 128 cycles, without the rest of the stream


@pytest.mark.parametrize(("depth", "index"), [(64, 0), (4096, 1)])
def test_x13_utilisation_of_a_128x128_array_is_bounded_by_its_fill(depth: int, index: int) -> None:
    expected = json.loads(rows()["L11-X13"]["expected"])[index]
    array = load_chip("tpu-v5e").matrix.array
    assert array is not None
    run = run_gemm(Array(array.rows, array.columns, Dataflow.OUTPUT, Convention.SCALESIM), 128, 128, depth)
    assert float(run.utilisation) == pytest.approx(expected, rel=1e-3)


def test_x14_words_a_cycle_that_keep_an_array_busy() -> None:
    # A tile of 128 x 128 results needs (128 + 128) K words for 128 x 128 K multiply-adds: 1/64 word each, times 1,024
    # cells: 16 words a cycle.  As blocks of the array: half of each scratchpad holds 128 rows or columns of K words, so
    # with as much bandwidth the stream never waits, and with half of it, it does.
    expected = float(rows()["L11-X14"]["expected"])
    side, tile, depth = 32, 128, 512
    pads = Scratchpads(2 * tile * depth, 2 * tile * depth, 2 * tile * tile)
    run = run_gemm(Array(side, side, Dataflow.OUTPUT), tile, tile, depth, pads, inf)
    assert run.dram is not None
    assert (run.dram.ifmap + run.dram.filter) / run.macs * side**2 == expected


def test_every_case_is_answered_or_said_to_be_out_of_reach() -> None:
    # X8, X9: Timeloop's architectures and energy tables; X10: area and time of synthesised gemmini; X11: a trained
    # MNIST network on a 2x2 array in Q8.8.  None of them is a question to this model.
    here = {*ANSWERS, "L11-X12", "L11-X13", "L11-X14"}
    assert set(rows()) == here | {"L11-X8", "L11-X9", "L11-X10", "L11-X11"}
