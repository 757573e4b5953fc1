"""``xpusim validate``: predictions beside measurements of real silicon, with the errors by operator and regime."""

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.hardware import Chip


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("validate", help="compare predictions with measured times", description=__doc__)
    parser.add_argument("chip", metavar="CHIP", help="a name from 'xpusim chips' or 'xpusim systems', or a YAML file")
    parser.add_argument("--data", metavar="CSV", help="times or energies, as in hw_models/data (all that are there)")
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
    from hw_models.loader import is_system
    from simulator.output import check_writable, write_text

    if options.json:
        check_writable(Path(options.json))
    if is_system(options.chip):
        from simulator.cli.collective_data import validate

        found = validate(options.chip, options.set, options.data, options.worst)
    else:
        chip = load_chip(options.chip, options.set)
        found = _one_table(options, chip) if options.data else _packaged(options, chip)
    if options.json:
        import json

        write_text(Path(options.json), json.dumps(found, indent=1, allow_nan=False) + "\n")
    return 0


def _one_table(options: argparse.Namespace, chip: "Chip") -> dict[str, Any]:
    from pathlib import Path

    from simulator.cli.validate_predict import predict
    from simulator.cli.validate_read import read_table
    from simulator.cli.validate_report import print_report, report

    form, rows = read_table(Path(options.data))
    predictions = predict(form, rows, chip, options.fidelity, Path(options.models) if options.models else None)
    found = report(form, predictions, chip, options.fidelity)
    print_report(form, predictions, found, options.worst)
    return found


def _packaged(options: argparse.Namespace, chip: "Chip") -> dict[str, Any]:
    """Every table that comes with the project for this chip: those with fitted rows apart from those without."""
    from hw_models.measured import measured_chips, measurements
    from simulator.cli.validate_predict import predict
    from simulator.cli.validate_read import read_table
    from simulator.cli.validate_report import print_tables, report
    from simulator.errors import UsageError
    from simulator.version import VERSION

    known = measurements(chip.name)
    if not known:
        names = ", ".join(measured_chips())
        raise UsageError(
            f"no measurements of {chip.name} come with xpusim (there are some of: {names}); give --data CSV"
        )
    if options.models:
        raise UsageError("--models goes with --data")
    tables = []
    for each in known:
        form, rows = read_table(each.path)
        found = report(form, predict(form, rows, chip, options.fidelity, each.models), chip, options.fidelity)
        tables.append({"table": each.name, "fitted": each.fitted, **found})
    print_tables(tables, chip, options.fidelity)
    return {"version": VERSION, "chip": chip.name, "fidelity": options.fidelity, "tables": tables}
