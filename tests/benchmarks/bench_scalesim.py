"""SCALE-Sim 3.0.0 and xpusim on the same GEMMs: ``python -m tests.benchmarks.bench_scalesim --out FILE.json``.

Makes an environment with SCALE-Sim (out/scalesim-venv) the first time.  The larger GEMMs take it minutes and gigabytes.
The ratio is its processor time over our time by the clock, so that other work on the machine does not flatter us.
"""

import argparse
import datetime
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from hw_models.systolic import Array, Convention, Dataflow, Scratchpads, run_gemm
from tests.benchmarks.scalesim_runner import REQUIREMENTS, Hardware, environment, run

SHAPES = ((256, 256, 256), (512, 512, 512), (1024, 2304, 768))
HARDWARE = Hardware(128, 128, "ws")
Shape = tuple[int, ...]


def ours(hardware: Hardware, shape: Shape) -> tuple[int, float]:
    """Return cycles and the seconds that they took, the best of many."""
    array = Array(hardware.rows, hardware.columns, Dataflow(hardware.dataflow), Convention.SCALESIM)
    pads = Scratchpads(1024 * hardware.ifmap_kb, 1024 * hardware.filter_kb, 1024 * hardware.ofmap_kb)
    m, n, k = shape
    best, cycles = float("inf"), 0
    for _ in range(200):
        start = perf_counter()
        cycles = int(run_gemm(array, m, n, k, pads).cycles)
        best = min(best, perf_counter() - start)
    return cycles, best


def compare(python: Path, shape: Shape) -> dict[str, Any]:
    """Run both on one GEMM."""
    topology = f"Layer,M,N,K,\ngemm,{','.join(map(str, shape))},\n"
    with tempfile.TemporaryDirectory() as scratch:
        theirs = run(python, HARDWARE, topology, "gemm", Path(scratch))
    cycles, seconds = ours(HARDWARE, shape)
    (layer,) = theirs.layers
    return {
        "gemm": shape,
        "scalesim_seconds": theirs.seconds,
        "scalesim_cpu_seconds": theirs.cpu_seconds,
        "scalesim_peak_bytes": theirs.peak_bytes,
        "scalesim_cycles": int(layer["Total Cycles"]) - int(layer["Stall Cycles"]) + 1,
        "xpusim_seconds": seconds,
        "xpusim_cycles": cycles,
        "ratio": theirs.cpu_seconds / seconds,
    }


def processor() -> str:
    """The model name by lscpu, or what Python knows."""
    try:
        said = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in said.splitlines() if line.startswith("Model name")), "")


def main() -> None:
    """Run every shape, print a line for each, write everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, default=Path("out/scalesim-venv"), help="environment with SCALE-Sim")
    parser.add_argument("--gemm", action="append", help="M,N,K; may be repeated")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    given = parser.parse_args()
    shapes = [tuple(map(int, text.split(","))) for text in given.gemm or ()] or SHAPES
    python = environment(given.venv)
    rows = []
    for shape in shapes:
        row = compare(python, shape)
        rows.append(row)
        sys.stdout.write(
            f"{' x '.join(map(str, shape))}: SCALE-Sim {row['scalesim_seconds']:.1f} s "
            f"({row['scalesim_cpu_seconds']:.1f} s of the processor), "
            f"{row['scalesim_peak_bytes'] / 1e9:.2f} GB, {row['scalesim_cycles']:,} cycles; "
            f"xpusim {1e6 * row['xpusim_seconds']:.0f} us, {row['xpusim_cycles']:,} cycles; "
            f"{row['ratio']:,.0f} times as fast\n"
        )
        sys.stdout.flush()
    if given.out:
        found = {
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "processor": processor(),
            "python": platform.python_version(),
            "requirements": REQUIREMENTS,
            "command": "python -m tests.benchmarks.bench_scalesim --out docs/data/scalesim_speed.json",
            "array": "128 x 128 ws, scratchpads 256, 256, 128 kB, bandwidth CALC, no trace files written",
            "rows": rows,
        }
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
