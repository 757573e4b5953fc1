"""``xpusim validate``: predictions beside measurements of real silicon, with the errors by operator and regime."""

import argparse
from typing import Any


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("validate", help="compare predictions with measured times", description=__doc__)
    parser.add_argument("chip", metavar="CHIP", help="a name from 'xpusim chips', or a YAML file")
    parser.add_argument("--data", required=True, metavar="CSV", help="kernel times or step times, as in hw_models/data")
    parser.add_argument("--models", metavar="FILE", help="Python file with the MODELS that a table of steps names")
    parser.add_argument("--fidelity", default="tile", metavar="roofline|tile", help="compute model (tile)")
    parser.add_argument("--worst", type=int, default=10, metavar="N", help="rows to print, the worst first (10)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="override a field of the chip: calibration.dram=0.9",
    )
    parser.add_argument("--json", metavar="FILE", help="write everything as one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Read, predict, print, write what was asked for."""
    from pathlib import Path

    from hw_models import load_chip
    from simulator.cli.validate_predict import predict
    from simulator.cli.validate_read import read_table
    from simulator.cli.validate_report import print_report, report

    chip = load_chip(options.chip, options.set)
    form, rows = read_table(Path(options.data))
    predictions = predict(form, rows, chip, options.fidelity, Path(options.models) if options.models else None)
    found = report(form, predictions, chip, options.fidelity)
    print_report(form, predictions, found, options.worst)
    if options.json:
        import json

        from simulator.output import write_text

        write_text(Path(options.json), json.dumps(found, indent=1, allow_nan=False) + "\n")
    return 0
