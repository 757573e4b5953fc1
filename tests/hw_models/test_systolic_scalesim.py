"""SCALE-Sim 3.0.0's own figures, row by row, where they are sound (hw_models/data/scalesim/README.md)."""

import csv
from pathlib import Path

import pytest

from hw_models.systolic import Array, Convention, Dataflow, folds, map_gemm, run_gemm

DATA = Path(__file__).parents[2] / "hw_models" / "data" / "scalesim" / "gemm_cycles.csv"
with DATA.open() as file:
    ROWS = list(csv.DictReader(file))


def test_all_rows_are_there() -> None:
    assert len(ROWS) == 56
    assert {row["dataflow"] for row in ROWS} == {"ws", "os", "is"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_cycles_efficiency_and_sram_words_are_equal(row: dict[str, str]) -> None:
    array = Array(int(row["array_rows"]), int(row["array_cols"]), Dataflow(row["dataflow"]), Convention.SCALESIM)
    shape = int(row["M"]), int(row["N"]), int(row["K"])
    run = run_gemm(array, *shape)
    assert run.cycles == int(row["total_cycles"]) - int(row["stall_cycles"]) + 1  # they give the last index
    assert folds(array, map_gemm(array, *shape)) == int(row["row_folds"]) * int(row["col_folds"])
    assert run.phases.cycles == run.folds * int(row["cycles_per_fold"])
    assert 100 * run.mapping_efficiency == pytest.approx(float(row["mapping_efficiency_pct"]), rel=1e-5)
    if array.dataflow is not Dataflow.OUTPUT:  # their os counts of ofmap words are unsound
        assert run.sram.ifmap == int(row["sram_ifmap_reads"])
        assert run.sram.filter == int(row["sram_filter_reads"])
        assert run.sram.ofmap == int(row["sram_ofmap_writes"])
