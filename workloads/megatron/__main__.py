"""``python -m workloads.megatron [--data CSV]``: measured Megatron steps on A100s beside the predicted ones."""

import argparse
import sys
from pathlib import Path

from rich.table import Table

from simulator.errors import XpuError
from simulator.headline import percent
from simulator.report.parallel import plain_table, standard_console
from simulator.report.plans import short
from simulator.units import binary
from workloads.megatron.figure1 import memory_rows
from workloads.megatron.rows import DATA, predict, read_rows


def main() -> int:
    """Print one line for each row, and the mean error."""
    parser = argparse.ArgumentParser(prog="python -m workloads.megatron", description=__doc__)
    parser.add_argument("--data", type=Path, metavar="CSV", help="other rows with the columns of batch_time.csv")
    data = parser.parse_args().data
    try:
        rows = read_rows(data or DATA / "batch_time.csv")
        found = [predict(row) for row in rows]
    except (OSError, XpuError) as error:
        sys.stderr.write(f"workloads.megatron: {error}\n")
        return 2
    table = plain_table("model", "plan", ">measured", ">predicted", ">off", ">MFU", ">exposed", ">memory")
    errors = []
    for row, run in zip(rows, found, strict=True):
        errors.append(run.seconds / row.seconds - 1)
        held = binary(run.memory[run.fullest].total)
        cells = (f"{row.seconds:.2f} s", f"{run.seconds:.2f} s", f"{errors[-1]:+.1%}", percent(run.mfu))
        table.add_row(row.name, short(row.plan), *cells, percent(run.exposed_share), held)
    console = standard_console()
    console.print(table)
    console.print(f"mean absolute error {sum(map(abs, errors)) / len(errors):.1%}")
    if data is None:
        console.print(_memory())
    return 0


def _memory() -> Table:
    """Figure 1 of the paper beside our count."""
    table = plain_table("model", "mode", ">parameters", ">counted", ">off", ">activations", ">counted", ">off")
    for each in memory_rows(DATA / "fig1_memory.csv"):
        cells: list[str] = []
        for printed, counted in zip(each.printed, each.counted, strict=True):
            cells += [binary(printed), binary(counted), f"{counted / printed - 1:+.1%}"]
        table.add_row(each.name, each.mode, *cells)
    return table


if __name__ == "__main__":
    sys.exit(main())
