"""docs/systolic.md: its table is that of docs/data, and says what formulas, RTL and SCALE-Sim say."""

import json
from typing import Any

import pytest

from hw_models.systolic import Convention
from tests.benchmarks.three_way import BEGIN, DATA, END, PAGE, ROOT, closed_form, on_rtl, with_table

ROWS: list[dict[str, Any]] = json.loads(DATA.read_text())["rows"]


def test_the_page_holds_the_table_of_the_data() -> None:
    page = PAGE.read_text()
    assert (page.count(BEGIN), page.count(END)) == (1, 1)
    assert with_table(page, ROWS) == page, "run: python -m tests.benchmarks.three_way"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['dataflow']}-{row['gemm']}")
def test_formulas_give_what_rtl_and_scalesim_gave(row: dict[str, Any]) -> None:
    assert closed_form(row, Convention.RTL) == sum(row["rtl"].values())
    assert closed_form(row, Convention.SCALESIM) == row["scalesim_total_cycles"] + 1


def test_the_table_has_the_hard_cases() -> None:
    assert len(ROWS) >= 12
    assert {row["dataflow"] for row in ROWS} == {"ws", "os", "is"}
    assert any(row["gemm"][0] == 1 for row in ROWS)
    assert any(row["gemm"][2] > 2 * row["rows"] and row["dataflow"] == "ws" for row in ROWS)
    assert any(row["gemm"][1] % row["columns"] for row in ROWS)


@pytest.mark.rtl
@pytest.mark.parametrize("row", [ROWS[1], ROWS[10]], ids=["ws", "os"])
def test_the_rtl_still_gives_the_same(row: dict[str, Any]) -> None:
    m, n, k = row["gemm"]
    assert on_rtl(row["dataflow"], row["rows"], row["columns"], (m, n, k)) == row["rtl"]


def test_speeds_on_the_page_are_those_of_the_data() -> None:
    page = PAGE.read_text()
    rows = json.loads((ROOT / "docs" / "data" / "scalesim_speed.json").read_text())["rows"]
    for row in rows:
        assert row["scalesim_cycles"] == row["xpusim_cycles"]
        shape = " x ".join(map(str, row["gemm"]))
        assert f"| {shape} | {row['scalesim_cpu_seconds']:.1f} s |" in page
        assert f"| {row['ratio']:,.0f} |" in page
