"""``python -m workloads.megatron [--data CSV]``: measured Megatron steps on A100s beside the predicted ones."""

import argparse
import sys
from pathlib import Path

from simulator.errors import XpuError
from simulator.headline import percent
from simulator.report.parallel import plain_table, plan_words, standard_console
from simulator.units import binary
from workloads.megatron.rows import DATA, predict, read_rows


def main() -> int:
    """Print one line for each row, and the mean error."""
    parser = argparse.ArgumentParser(prog="python -m workloads.megatron", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA / "batch_time.csv", metavar="CSV", help="rows like its own")
    try:
        rows = read_rows(parser.parse_args().data)
        found = [predict(row) for row in rows]
    except (OSError, XpuError) as error:
        sys.stderr.write(f"workloads.megatron: {error}\n")
        return 2
    table = plain_table("model", "mode", "plan", ">measured s", ">predicted s", ">off", ">MFU", ">exposed", ">memory")
    errors = []
    for row, run in zip(rows, found, strict=True):
        errors.append(run.seconds / row.seconds - 1)
        held = binary(run.memory[run.fullest].total)
        cells = (f"{row.seconds:.2f}", f"{run.seconds:.2f}", f"{errors[-1]:+.1%}", percent(run.mfu))
        table.add_row(row.name, row.mode, plan_words(row.plan), *cells, percent(run.exposed_share), held)
    console = standard_console()
    console.print(table)
    console.print(f"mean absolute error {sum(map(abs, errors)) / len(errors):.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
