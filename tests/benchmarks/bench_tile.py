"""Operators a second that the tile model costs when shapes repeat: ``python -m tests.benchmarks.bench_tile``."""

import sys
from time import perf_counter

from frontends import trace
from hw_models import load_chip
from hw_models.tile import TileModel
from workloads import build


def main() -> None:
    """Trace one decode step, cost it often, print the rate."""
    program = build("llama-8b", "decode", 1, None, 1024)
    graph = trace(program.module, program.args, program.kwargs, workload=program.workload, dtype="bf16")
    model = TileModel(load_chip("h200"))
    model.costs(graph)
    start, rounds = perf_counter(), 100
    for _ in range(rounds):
        model.costs(graph)
    sys.stdout.write(f"{rounds * len(graph) / (perf_counter() - start):,.0f} operators/s\n")


if __name__ == "__main__":
    main()
