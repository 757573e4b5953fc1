"""Both tops against the model: every result bit, every phase, every cycle, in both simulators."""

from pathlib import Path

import pytest

from hw_models.rtl_bench.cases import Top
from hw_models.rtl_bench.runner import build
from tests.rtl.rtl_gemms import run_gemms

pytestmark = pytest.mark.rtl

SHAPES = [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (8, 8), (16, 16), (1, 4), (4, 1), (3, 5), (5, 2), (4, 8), (8, 3)]
TOPS = [Top(dataflow, rows, columns) for dataflow in ("ws", "os") for rows, columns in SHAPES]
UNHIDDEN_TOPS = [Top("ws", rows, columns, hides_preload=False) for rows, columns in ((4, 4), (3, 5))]
FLOAT_TOPS = [Top("ws", 4, 3, is_float=True), Top("os", 2, 3, is_float=True)]
CROSS_CHECKED = [Top("ws", 4, 4), Top("os", 3, 5), Top("ws", 16, 16)]
SEED = 20_260_701


def name(top: Top) -> str:
    kind = "-bf16" if top.is_float else "" if top.hides_preload else "-unhidden"
    return f"{top.dataflow}-{top.rows}x{top.columns}{kind}"


@pytest.mark.parametrize("top", TOPS + UNHIDDEN_TOPS + FLOAT_TOPS, ids=name)
def test_icarus_agrees_with_the_model(top: Top, tmp_path: Path) -> None:
    judge("icarus", top, tmp_path, cases=8 if top.is_float else 14)


@pytest.mark.parametrize("top", CROSS_CHECKED, ids=name)
def test_verilator_agrees_with_the_model_on_the_same_vectors(top: Top, tmp_path: Path) -> None:
    judge("verilator", top, tmp_path, cases=14)


def judge(simulator: str, top: Top, folder: Path, cases: int) -> None:
    """Run *cases* exact and half as many stalled GEMMs; every one must pass and be reported with error 0."""
    seed = SEED + TOPS.index(top) if top in TOPS else SEED
    ran, failed, rows = run_gemms(build(simulator, top.module, top.parameters, folder / "sim"), top, seed, cases)
    assert (ran, failed) == (7, 0), f"{name(top)} in {simulator}, seed {seed}: see the log above"
    kinds = [row["kind"] for row in rows]
    assert (kinds.count("exact"), kinds.count("stalled")) == (cases, cases // 2)
    assert all(set(row["errors"].values()) == {0} for row in rows if row["kind"] == "exact")
