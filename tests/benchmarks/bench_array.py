"""How fast the array model is, beside its targets: ``python -m tests.benchmarks.bench_array [--json FILE]``.

Each measurement runs in a process of its own, so that memory is its own.  llama-8b is traced first and read from a
file, so that its time and memory are those of the simulation and not of PyTorch.
"""

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.bench_scalesim import processor

_PEAK = """
import resource, sys
unit = 1024 if sys.platform == "linux" else 1  # ru_maxrss is in KiB on Linux and in bytes on a Mac
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
"""
_ONE = """
import timeit
from hw_models.systolic import Array, Scratchpads, run_gemm
array, pads = Array(128, 128), Scratchpads(1 << 18, 1 << 18, 1 << 17)
def once(): return run_gemm(array, 1024, 2304, 768, pads, 64.0).cycles
def plain(): return run_gemm(array, 1024, 2304, 768).cycles
print(*(min(timeit.repeat(each, number=500, repeat=15)) / 500 for each in (once, plain)))
"""
_MANY = (
    """
import time
import numpy as np
from hw_models.systolic import Array, Scratchpads, run_gemm
array, pads = Array(128, 128), Scratchpads(1 << 18, 1 << 18, 1 << 17)
m, n, k = np.random.default_rng(1).integers(1, 8192, (3, 1_000_000))
def rate(*memory):
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        run_gemm(array, m, n, k, *memory).cycles.sum()
        best = min(best, time.perf_counter() - start)
    return 1e6 / best
rates = rate(pads, 64.0), rate()
"""
    + _PEAK
    + "print(*rates, peak)"
)
_TRACE = """
import sys
from frontends import trace
from simulator.graph_io import save_graph
from workloads import build
program = build("llama-8b", "prefill", 1, 2048, None)
save_graph(trace(program.module, program.args, program.kwargs, workload=program.workload, dtype="bf16"), sys.argv[1])
"""
_LOAD = """
import sys, time
from hw_models import load_chip
from simulator import simulate
from simulator.costs import compute_model
from simulator.graph_io import load_graph
graph, chip = load_graph(sys.argv[1]), load_chip("tpu-v5e")
start = time.perf_counter()
"""
_COSTS = _LOAD + "compute_model('systolic', chip).costs(graph)\nprint(time.perf_counter() - start)"
_SIMULATE = (
    f"{_LOAD}simulate(graph, chip, fidelity='systolic')\nelapsed = time.perf_counter() - start{_PEAK}"
    "print(elapsed, peak)"
)


def numbers(code: str, *arguments: str) -> list[float]:
    """Run *code* in a fresh Python and return the numbers that it prints."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def measure() -> list[tuple[str, float, str, float | None, bool]]:
    """Return what, value, unit, target and whether less is better."""
    full, plain = numbers(_ONE)
    many_full, many_plain, many_peak = numbers(_MANY)
    with tempfile.TemporaryDirectory() as scratch:
        graph = str(Path(scratch) / "graph.json")
        numbers(_TRACE, graph)
        (costed,), (simulated, peak) = numbers(_COSTS, graph), numbers(_SIMULATE, graph)
    return [
        ("1 GEMM with scratchpads and DRAM", 1e6 * full, "us", 50, True),
        ("1 GEMM, cycles and SRAM words only", 1e6 * plain, "us", None, True),
        ("1 M GEMMs at once, with scratchpads and DRAM", many_full / 1e6, "M GEMM/s", 1, False),
        ("1 M GEMMs at once, cycles and SRAM words only", many_plain / 1e6, "M GEMM/s", 1, False),
        ("1 M GEMMs at once, peak memory", many_peak / 1e6, "MB", 300, True),
        ("llama-8b prefill of 2048 on 128 x 128 (tpu-v5e): costs", costed, "s", 1, True),
        ("llama-8b prefill, simulated with verdicts", simulated, "s", 1, True),
        ("llama-8b prefill, simulated: peak memory", peak / 1e6, "MB", 300, True),
    ]


def main() -> None:
    """Print a line for each measurement; write all with --json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="file to write")
    given = parser.parse_args()
    rows = measure()
    for what, value, unit, target, less in rows:
        wanted = "" if target is None else f"{'<=' if less else '>='} {target:g}"
        met = target is None or (value <= target if less else value >= target)
        sys.stdout.write(f"{what:<58} {value:>9.3g} {unit:<9} {wanted:<8} {'' if met else 'missed'}\n")
    if given.json:
        names = ("what", "value", "unit", "target")
        found = {
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "processor": processor(),
            "command": "python -m tests.benchmarks.bench_array --json docs/data/array_speed.json",
            "rows": [dict(zip(names, row[:4], strict=True)) for row in rows],
        }
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
