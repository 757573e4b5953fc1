"""``xpusim fit``: calibrate a chip's description to kernels measured on it.

Half of the rows, drawn with a fixed seed within each operator, are fitted; the other half is only predicted, and its
error is the one to believe.  With --held-out, all rows are fitted and that table is predicted instead.  The result is
a chip file that extends the one given.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hw_models.fit import Row
    from simulator.hardware import Chip

_WIDTH = 110


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("fit", help="calibrate a chip to measured kernels", description=__doc__)
    parser.add_argument("chip", metavar="CHIP", help="a name from 'xpusim chips', or a YAML file")
    parser.add_argument(
        "--data", required=True, nargs="+", metavar="CSV", help="kernel times, as hw_models/data/h200/ops.csv"
    )
    parser.add_argument("--held-out", metavar="CSV", help="kernel times to report on, so that all of --data is fitted")
    parser.add_argument(
        "--attention",
        metavar="CSV",
        help="further --data: sdpa rows of the kernel that the framework takes by itself",
    )
    parser.add_argument("--groups", nargs="+", metavar="GROUP", help="constants to fit (all that have rows)")
    parser.add_argument("--evaluations", type=int, default=600, metavar="N", help="predictions of a group's rows (600)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the split and of the search (0)")
    parser.add_argument("--out", metavar="FILE", help="chip file to write (CHIP-fitted.yaml)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Fit group by group, write the chip file, print the errors on both halves."""
    from hw_models import load_chip
    from hw_models.fit import split
    from simulator.errors import UsageError
    from simulator.output import check_writable, write_text

    groups = _groups(options.groups)
    if options.evaluations < 1:
        raise UsageError(f"--evaluations: must be at least 1, got {options.evaluations}")
    if options.seed < 0:
        raise UsageError(f"--seed: must be at least 0, got {options.seed}")
    chip = load_chip(options.chip)
    out = Path(options.out or f"{chip.name}-fitted.yaml")
    if out.suffix not in (".yaml", ".yml"):
        raise UsageError(f"--out {out}: a chip file ends in .yaml")
    if out.exists() and Path(options.chip).exists() and out.samefile(options.chip):
        raise UsageError(f"--out {out}: is the chip that is fitted, which the new file extends; give another name")
    check_writable(out)
    rows = [row for path in options.data for row in _read(Path(path))]
    if options.attention:
        rows += _read(Path(options.attention), default_attention=True)
    fitted_rows, test = (rows, _read(Path(options.held_out))) if options.held_out else split(rows, options.seed)
    if not test:
        raise UsageError(f"{', '.join(options.data)}: {len(rows)} rows are too few to keep half of them back")
    fitted = _fit(chip, fitted_rows, groups, options)
    write_text(out, _chip_file(options, chip, fitted, fitted_rows, test, out))
    _print(chip, fitted, fitted_rows, test)
    print(f"written: {out}   (xpusim validate {out} --data {options.held_out or options.data[0]})")
    return 0


def _groups(names: Sequence[str] | None) -> Sequence[str]:
    from hw_models.fit import GROUPS
    from simulator.errors import UsageError, nearest

    for name in names or ():
        if name not in GROUPS:
            known = ", ".join(repr(each) if " " in each else each for each in GROUPS)
            raise UsageError(f"--groups: unknown group {name!r}{nearest(name, GROUPS)} (known: {known})")
    return names or tuple(GROUPS)


def _read(path: Path, default_attention: bool = False) -> "list[Row]":
    """The rows of *path* whose kernel is known; sdpa is the flash kernel, or what the framework takes by itself."""
    from dataclasses import replace

    from hw_models.fit import Row
    from simulator.cli.validate_predict import kernel_of
    from simulator.cli.validate_read import ENERGY, STEPS, read_table
    from simulator.errors import SpecError
    from simulator.units import PS_PER_SECOND

    form, rows = read_table(path)
    if form in (STEPS, ENERGY):
        raise SpecError(f"{path}: a table of {form.name}; constants are fitted to kernel times only")
    if default_attention:
        rows = [replace(row, values=row.values | {"op": "attention"}) for row in rows if row.values.get("op") == "sdpa"]
    kernels = [(kernel_of(form, row), row) for row in rows]
    found = [
        Row(kernel.op, kernel.graph, row.measured * form.base * PS_PER_SECOND, kernel.group)
        for kernel, row in kernels
        if kernel.graph is not None and len(kernel.graph)
    ]
    if not found:
        raise SpecError(f"{path}: no kernel in it is known")
    return found


def _fit(chip: "Chip", rows: "Sequence[Row]", groups: Sequence[str], options: argparse.Namespace) -> "Chip":
    from rich.console import Console
    from rich.progress import track

    from hw_models.fit import GROUPS, fit

    errors = Console(stderr=True)
    for name in track(groups, "fitting", console=errors, disable=not errors.is_terminal):
        mine = [row for row in rows if row.op in GROUPS[name].ops]
        if mine:
            chip = fit(chip, mine, GROUPS[name].bounds, options.evaluations, options.seed)
    return chip


def _chip_file(
    options: argparse.Namespace, chip: "Chip", fitted: "Chip", rows: "Sequence[Row]", test: "Sequence[Row]", out: Path
) -> str:
    """The text of a chip file that extends *chip* with the constants of *fitted*, and says where they come from."""
    import hashlib
    import os
    from datetime import date

    from hw_models.fit import mape, section
    from hw_models.tile.machine import machine
    from simulator.version import VERSION

    base = Path(options.chip)
    parent = f"./{os.path.relpath(base, out.parent)}" if base.suffix in (".yaml", ".yml") else options.chip
    files = ", ".join(
        f"{path.name} (sha256 {hashlib.sha256(path.read_bytes()).hexdigest()[:16]})" for path in map(Path, options.data)
    )
    kept = f"{Path(options.held_out).name}" if options.held_out else f"the other half (seed {options.seed})"
    source = (
        f"fitted by xpusim {VERSION} on {date.today().isoformat()} to {len(rows)} kernels of {files}, "
        f"{mape(fitted, rows):.1%} off in the mean; {len(test)} rows of {kept}, not fitted: "
        f"{mape(fitted, test):.1%}, before the fit {mape(chip, test):.1%}"
    )
    return (
        f"extends: {parent}\nname: {out.stem}\ndescription: {chip.description}, calibrated\n"
        f'calibration:\n  source: "{source}"\n{section(machine(fitted).calibration)}\n'
    )


def _print(chip: "Chip", fitted: "Chip", rows: "Sequence[Row]", test: "Sequence[Row]") -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH)
    console.print(Text(f"{chip.name}: {len(rows)} kernels fitted, {len(test)} only predicted", "bold"))
    console.print(
        "mean absolute error before and after the fit; the columns to believe are those of the rows not fitted"
    )
    halves = [_errors(chip, fitted, each) for each in (rows, test)]
    for title, key in (("operator", 0), ("regime", 1)):
        console.print(_table(title, [[(each[key], *each[2:]) for each in half] for half in halves]))


_Line = tuple[str, str, float, float, float]  # operator, regime, error before, after and of the plain roofline


def _errors(chip: "Chip", fitted: "Chip", rows: "Sequence[Row]") -> "list[_Line]":
    from hw_models.fit import regimes, relative_errors
    from hw_models.roofline import Roofline
    from hw_models.tile import TileModel

    before, after, floor = (
        [abs(each) for each in relative_errors(model, rows)]
        for model in (TileModel(chip), TileModel(fitted), Roofline(chip))
    )
    names = [row.group for row in rows]
    return list(zip(names, regimes(fitted, rows), before, after, floor, strict=True))


def _table(title: str, halves: Sequence[Sequence[tuple[Any, ...]]]) -> Any:
    from statistics import fmean

    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    heads = ("fitted", "before", "after", "not fitted", "before", "after", "roofline")
    table.add_column(f"by {title}")
    for head in heads:
        table.add_column(head, justify="right")
    names = sorted({line[0] for half in halves for line in half})
    for name in [*names, "all"]:
        cells: list[str] = []
        for half in halves:
            mine = [line[1:] for line in half if name in (line[0], "all")]
            means = [f"{fmean(column):.1%}" for column in zip(*mine, strict=True)] or ["-", "-", "-"]
            cells += [str(len(mine)), *means]
        del cells[3]  # the roofline on the fitted rows says nothing new
        table.add_row(name, *cells)
    return table
