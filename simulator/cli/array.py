"""``xpusim array``: GEMMs on one systolic array, cycle for cycle: phases, stalls, words moved, and what binds."""

import argparse
import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from simulator.errors import UsageError
from simulator.version import VERSION


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("array", help="a GEMM on a systolic array, cycle for cycle", description=__doc__)
    subcommands = parser.add_subparsers(dest="subcommand", metavar="[sweep]")
    if find_spec("simulator.cli.array_sweep") is not None:
        import_module("simulator.cli.array_sweep").add_parser(subcommands)
    parser.add_argument("--data", metavar="CSV", help="many GEMMs, in the format of hw_models/data/scalesim")
    parser.add_argument("--json", metavar="FILE", help="write everything as one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Read, run, print, write what was asked for."""
    from hw_models.array_model.runs import read_runs, run_all
    from simulator.output import check_writable, write_text

    if options.data is None:
        raise UsageError("array: nothing to run: give --data")
    if options.json:
        check_writable(Path(options.json))
    rows = run_all(read_runs(Path(options.data)))
    print(f"{len(rows)} GEMMs, {sum(row['cycles'] for row in rows):,} cycles")
    if options.json:
        write_text(Path(options.json), json.dumps({"version": VERSION, "rows": rows}, indent=1) + "\n")
    return 0
