"""Wrong hardware must fail: each mutant is one small change to one file, and the GEMM tests have to notice it."""

import shutil
from pathlib import Path

import pytest

from hw_models.rtl_bench.cases import Top
from hw_models.rtl_bench.runner import build
from hw_models.rtl_bench.tools import RTL
from tests.rtl.rtl_gemms import run_gemms

pytestmark = pytest.mark.rtl

MUTANTS = [
    # of one top: a file, what is right in it, and what is wrong
    ("ws", "mac_int.v", "y = p + {{", "y = p - {{"),
    ("os", "mac_int.v", "product = a * w", "product = a * $signed({1'b0, w[DATA_W-2:0]})"),
    ("ws", "skew.v", "REVERSE != 0 ? LANES - 1 - i : i", "REVERSE != 0 ? LANES - 1 - i : i - (i == 2)"),
    ("os", "skew.v", "REVERSE != 0 ? LANES - 1 - i : i", "REVERSE != 0 ? LANES - 1 - i : i - (i == 2)"),
    ("ws", "ws_pe.v", "first_in ? shadow : active", "active"),
    ("ws", "ws_pe.v", "first_in ? shadow : active", "shadow"),
    ("os", "os_pe.v", "else if (drain_in) y_out <= y_in;", "else y_out <= y_in;"),
    ("ws", "accumulator_bank.v", "first_k ? y : total", "total"),
    ("ws", "ws_sequencer.v", "!shadow_full || (row_valid && row_first)", "!shadow_full"),
    ("os", "os_sequencer.v", "chain_busy <= pair_rows - ONE", "chain_busy <= pair_rows"),
    ("os", "os_sequencer.v", "pair_last && chain_busy != ZERO", "1'b0"),
    ("ws", "phase_counters.v", "else if (seen_lost)", "else if (seen_gap)"),
    ("ws", "skid_buffer.v", "if (!full) kept <= s_data;", "kept <= s_data;"),
]


@pytest.mark.parametrize(("dataflow", "file", "right", "wrong"), MUTANTS)
def test_a_mutant_does_not_survive(dataflow: str, file: str, right: str, wrong: str, tmp_path: Path) -> None:
    shutil.copytree(RTL, tmp_path / "rtl")
    source = tmp_path / "rtl" / file
    text = source.read_text()
    assert text.count(right) == 1
    source.write_text(text.replace(right, wrong))
    top = Top(dataflow, 4, 3)
    mutant = build("icarus", top.module, top.parameters, tmp_path / "sim", sorted((tmp_path / "rtl").glob("*.v")))
    ran, failed, _ = run_gemms(mutant, top, seed=7, cases=10)
    assert ran == 7
    assert failed > 0, "the tests did not notice"
