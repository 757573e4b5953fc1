"""Closed form, RTL and SCALE-Sim on the same GEMMs: ``python -m tests.benchmarks.three_way``.

Runs the Verilog in Icarus and SCALE-Sim in an environment of its own (out/scalesim-venv, made the first time), writes
docs/data/three_way.json, and puts the table into docs/systolic.md.
"""

import argparse
import datetime
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from hw_models.rtl_bench.cases import Top
from hw_models.rtl_bench.check import check
from hw_models.systolic import Array, Convention, Dataflow, folds, map_gemm, phases
from tests.benchmarks.scalesim_runner import REQUIREMENTS, Hardware, environment, run

ROOT = Path(__file__).parents[2]
DATA = ROOT / "docs" / "data" / "three_way.json"
PAGE = ROOT / "docs" / "systolic.md"
BEGIN, END = "<!-- three-way table, made by tests/benchmarks/three_way.py -->", "<!-- end of the table -->"
DEPTH = 64  # rows of results that the accumulators of the RTL hold
CASES = (
    ("ws", 4, 4, (4, 4, 4), "one full tile"),
    ("ws", 4, 4, (7, 5, 9), "edge tiles in n and k, 3 K folds"),
    ("ws", 4, 4, (1, 4, 4), "M = 1, one tile"),
    ("ws", 4, 4, (1, 16, 16), "M = 1: weights cannot hide behind one row"),
    ("ws", 8, 8, (64, 8, 64), "8 K folds, all weights but the first hidden"),
    ("ws", 4, 8, (33, 17, 50), "not square, edges everywhere"),
    ("ws", 16, 16, (20, 16, 33), "K one more than two folds"),
    ("os", 4, 4, (4, 4, 4), "one full tile"),
    ("os", 4, 4, (7, 5, 9), "edge tiles: the last one drains 3 rows"),
    ("os", 4, 4, (1, 16, 16), "M = 1: tiles of one row"),
    ("os", 8, 3, (17, 7, 2), "K shorter than the drain"),
    ("os", 16, 16, (32, 32, 64), "4 full tiles"),
    ("is", 4, 4, (7, 5, 9), "the ws array with both operands transposed"),
    ("is", 8, 4, (1, 24, 20), "M = 1: the input stays, weights stream"),
)
PHASES = ("preload", "fill", "stream", "drain")


def measure(python: Path) -> list[dict[str, Any]]:
    """Run every case on the RTL and in SCALE-Sim."""
    return [
        {
            "dataflow": dataflow,
            "rows": rows,
            "columns": columns,
            "gemm": shape,
            "shows": shows,
            "rtl": on_rtl(dataflow, rows, columns, shape),
            "scalesim_total_cycles": on_scalesim(python, dataflow, rows, columns, shape),
        }
        for dataflow, rows, columns, shape, shows in CASES
    ]


def on_rtl(dataflow: str, rows: int, columns: int, shape: tuple[int, int, int]) -> dict[str, int]:
    """Return the cycles of the hardware counters; RuntimeError if a result or a cycle is not the model's."""
    m, n, k = shape
    top = Top("os" if dataflow == "os" else "ws", rows, columns, DEPTH)
    outcome = check(top, (n, m, k) if dataflow == "is" else shape, seed=1)
    if not outcome.agrees:
        raise RuntimeError(f"{dataflow} {rows} x {columns} {shape}: {outcome}")
    return {name: outcome.rtl[name] for name in PHASES}


def on_scalesim(python: Path, dataflow: str, rows: int, columns: int, shape: tuple[int, int, int]) -> int:
    """Return its Total Cycles, with room for everything in its scratchpads."""
    topology = f"Layer,M,N,K,\ngemm,{','.join(map(str, shape))},\n"
    with tempfile.TemporaryDirectory() as scratch:
        report = run(python, Hardware(rows, columns, dataflow), topology, "gemm", Path(scratch))
    (layer,) = report.layers
    if int(layer["Stall Cycles"]):
        raise RuntimeError(f"{dataflow} {rows} x {columns} {shape}: stalled with all the room there is")
    return int(layer["Total Cycles"])


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table in Markdown; both closed forms are worked out here and now."""
    lines = [
        "| array | M x N x K | folds | closed form | RTL | preload, fill, stream, drain | closed form, SCALE-Sim's way "
        "| SCALE-Sim + 1 | what it shows |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ours, theirs = (closed_form(row, convention) for convention in (Convention.RTL, Convention.SCALESIM))
        array = Array(row["rows"], row["columns"], Dataflow(row["dataflow"]))
        cells = (
            f"{row['rows']} x {row['columns']} {row['dataflow']}",
            " x ".join(map(str, row["gemm"])),
            f"{folds(array, map_gemm(array, *row['gemm']))}",
            f"{ours:,}",
            f"{sum(row['rtl'].values()):,}",
            ", ".join(f"{row['rtl'][name]:,}" for name in PHASES),
            f"{theirs:,}",
            f"{row['scalesim_total_cycles'] + 1:,}",
            row["shows"],
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def closed_form(row: dict[str, Any], convention: Convention) -> int:
    """Return the cycles of a row by the formulas."""
    depth = DEPTH if convention is Convention.RTL and row["dataflow"] != "os" else None
    array = Array(row["rows"], row["columns"], Dataflow(row["dataflow"]), convention, depth)
    return int(phases(array, *row["gemm"]).cycles)


def with_table(page: str, rows: list[dict[str, Any]]) -> str:
    """Return the page with its table replaced."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(rows)}\n{END}{after}"


def main() -> None:
    """Measure, write the data, renew the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, default=ROOT / "out" / "scalesim-venv", help="environment with SCALE-Sim")
    rows = measure(environment(parser.parse_args().venv))
    found = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": "python -m tests.benchmarks.three_way",
        "rtl": "Icarus Verilog, rtl/, int8, seed 1",
        "scalesim": REQUIREMENTS,
        "rows": rows,
    }
    DATA.write_text(json.dumps(found, indent=1) + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), rows))
    sys.stdout.write(table(rows) + "\n")


if __name__ == "__main__":
    main()
