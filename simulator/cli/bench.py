"""``xpusim bench``: how fast the simulator itself is on this machine, beside its targets."""

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

# Each measurement runs in a process of its own, so that memory and imports are its own.
_ENGINE = """
import resource, sys, time
from simulator.engine import play
from simulator.hardware import Execution
from simulator.program import Mode, place
from simulator.synthetic import chain
from hw_models import load_chip
from dataclasses import replace
chip = replace(load_chip("systolic-toy"), execution=Execution(sys.argv[1]))
graph, costs = chain(int(sys.argv[2]))
start = time.perf_counter()
play(graph, costs, chip, place(graph, costs, chip, Mode.EAGER))
elapsed = time.perf_counter() - start
unit = 1024 if sys.platform == "linux" else 1  # ru_maxrss is in KiB on Linux and in bytes on a Mac
print(elapsed, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
"""
_TRACE = """
import time
from workloads import build
from frontends import trace_training_step
from hw_models import load_chip
from simulator import simulate
program = build("llama-70b", "train", batch=1, seq=4096)
start = time.perf_counter()
graph = trace_training_step(program.module, program.args, program.kwargs, loss=program.loss, workload=program.workload,
                            dtype="bf16")
traced = time.perf_counter()
simulate(graph, load_chip("h200"))
print(traced - start, time.perf_counter() - traced, len(graph))
"""


class Row(NamedTuple):
    """One measurement: what, the value with its unit, the target, and whether it is met."""

    what: str
    value: str
    target: str
    met: bool


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("bench", help="measure the simulator's own speed", description=__doc__)
    parser.set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    """Measure and print; exit code 0 whatever the figures are, since they depend on the machine."""
    from rich.console import Console
    from rich.table import Table

    table = Table("measurement", "value", "target", "met", title="xpusim on this machine")
    for measure in (_help, _gpt2, _llama_70b, _stream, _units):
        for row in measure():
            table.add_row(row.what, row.value, row.target, "yes" if row.met else "no")
    Console().print(table)
    return 0


def _shell(*arguments: str) -> float:
    """Return the wall seconds of the best of three runs of ``xpusim`` with *arguments*."""
    return min(_timed(lambda: _process("-m", "simulator", *arguments)) for _ in range(3))


def _timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _process(*arguments: str) -> list[float]:
    """Run Python with *arguments* and return the numbers that it prints."""
    import subprocess

    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)
    try:
        return [float(word) for word in done.stdout.split()]
    except ValueError:
        return []


def _help() -> list[Row]:
    seconds = _shell("--help")
    return [Row("xpusim --help", f"{seconds:.3f} s", "<= 0.15 s", seconds <= 0.15)]


def _gpt2() -> list[Row]:
    seconds = _shell("run", "gpt2", "--chip", "h200")
    return [Row("gpt2 prefill from the shell, torch import included", f"{seconds:.2f} s", "<= 4 s", seconds <= 4)]


def _llama_70b() -> list[Row]:
    traced, simulated, operators = _process("-c", _TRACE)
    name = f"llama-70b training step, {operators:,.0f} operators"
    return [
        Row(f"{name}: trace", f"{traced:.2f} s", "<= 25 s", traced <= 25),
        Row(f"{name}: simulate with verdicts", f"{simulated:.2f} s", "<= 2 s", simulated <= 2),
    ]


def _stream() -> list[Row]:
    seconds, nbytes = _process("-c", _ENGINE, "stream", "1000000")
    rate = 1_000_000 / seconds
    return [
        Row("engine, one stream, eager", f"{rate:,.0f} operators/s", ">= 200,000", rate >= 200_000),
        Row("engine, 1 M operators", f"{seconds:.2f} s", "<= 6 s", seconds <= 6),
        Row("graph and engine, 1 M operators, peak memory", f"{nbytes / 1e6:.0f} MB", "<= 600 MB", nbytes <= 600e6),
    ]


def _units() -> list[Row]:
    seconds, _ = _process("-c", _ENGINE, "units", "300000")
    rate = 300_000 / seconds
    name = "engine, units on a shared memory, every operator waits for another unit"
    return [Row(name, f"{rate:,.0f} operators/s", ">= 200,000", rate >= 200_000)]
