"""Runs many GEMMs on one elaborated top, and collects what passed."""

import json
from dataclasses import asdict
from typing import Any

from hw_models.rtl_bench.cases import Top
from hw_models.rtl_bench.runner import Simulation


def run_gemms(simulation: Simulation, top: Top, seed: int, cases: int) -> tuple[int, int, list[dict[str, Any]]]:
    """Run cocotb_gemm; return tests run, tests failed, and the report of the GEMMs that passed."""
    report = simulation.folder / "report.jsonl"
    report.unlink(missing_ok=True)
    environment = {
        "RTL_TOP": json.dumps(asdict(top)),
        "RTL_SEED": str(seed),
        "RTL_CASES": str(cases),
        "RTL_REPORT": str(report),
    }
    ran, failed = simulation.run("tests.rtl.cocotb_gemm", environment)
    rows = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
    return ran, failed, rows
