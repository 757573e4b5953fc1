"""Writes the data and the figures of lab 11.

python -m workloads.accelerator --data docs/data/lab11.json --figures docs/images
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from hw_models import load_chip
from simulator.errors import XpuError
from simulator.output import check_writable, write_text
from simulator.version import VERSION
from workloads.accelerator.data import as_data, dumps
from workloads.accelerator.grid import OURS, base_chip
from workloads.accelerator.lab import Run, runs, weights_a_second
from workloads.accelerator.plot import draw, draw_sizes
from workloads.figure import save

COMMAND = "python -m workloads.accelerator --data docs/data/lab11.json --figures docs/images"


def main() -> None:
    """Sweep and write; exit code 2 if it cannot be written."""
    parser = argparse.ArgumentParser(prog="python -m workloads.accelerator", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, metavar="FILE", help="every point of every sweep, JSON")
    parser.add_argument("--figures", type=Path, required=True, metavar="FOLDER", help="for lab11_*.png")
    options = parser.parse_args()
    try:
        check_writable(options.data)
        check_writable(options.figures / "lab11_sizes.png")
        found = list(runs(base_chip(load_chip("h200"))))
        write_text(options.data, text(found))
        for name, figure in figures(found):
            save(figure, options.figures / f"{name}.png")
    except XpuError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


def text(found: list[Run]) -> str:
    """Return the sweeps as JSON, after the command that made them."""
    settings = " ".join(f"--set {each}" for each in OURS)
    head: dict[str, Any] = {
        "provenance": {
            "command": COMMAND,
            "xpusim": VERSION,
            "one of them": f"xpusim array sweep llama-8b --phase prefill --chip edge-npu {settings} --json FILE",
            "keys": "workloads/accelerator/data.py",
        }
    }
    parts = [dumps(as_data(run.sweep, run.given, run.every)).rstrip() for run in found]
    opening = json.dumps(head, indent=1).removesuffix("\n}")
    return f'{opening},\n "sweeps": [\n' + ",\n".join(parts) + "\n ]\n}\n"


def figures(found: list[Run]) -> Iterator[tuple[str, Figure]]:
    """Yield the name and the figure of each run, and of what all of them need."""
    for run in found:
        yield f"lab11_{run.model}_{run.phase}", draw(run.sweep, run.given)
    base = found[0].sweep.program.chip
    every = {f"{run.model} {run.phase}": run.every for run in found}
    yield "lab11_sizes", draw_sizes(every, weights_a_second(base))


if __name__ == "__main__":
    main()
