"""``xpusim chips`` and ``xpusim show``: the chip library as a table, and one chip in full."""

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from simulator.dtypes import DType
    from simulator.hardware import Chip

_WIDTH = 110  # of a line that goes to a file or a pipe
_CONVENTION = (
    "Peaks are dense; a multiply-add counts as 2 FLOP.\n"
    "Ridge: FLOP per byte of DRAM traffic from which a matrix product is bound by arithmetic."
)


def add_parser(commands: Any) -> None:
    """Register both commands."""
    table = commands.add_parser("chips", help="list the chips of the library", description="List the chips.")
    table.set_defaults(run=run_chips)
    show = commands.add_parser(
        "show", help="print one chip or system in full, with its sources", description="Print one chip or system."
    )
    show.add_argument("chip", metavar="NAME", help="a name from 'xpusim chips' or 'xpusim systems', or a YAML file")
    show.add_argument(
        "--set", action="append", default=[], metavar="PATH=VALUE", help="override a field: memory.hbm.bandwidth=6TB/s"
    )
    show.set_defaults(run=run_show)


def run_chips(options: argparse.Namespace) -> int:
    """Print one line for each chip of the library."""
    from hw_models import chip_names, load_chip
    from simulator.dtypes import DType

    del options
    console = _console()
    table = _table("chip", "year", "process", ">bf16 TFLOP/s", ">int8 TOP/s", ">DRAM", ">GB/s", ">bf16 ridge")
    for name in chip_names():
        chip = load_chip(name)
        table.add_row(
            name, str(chip.year or ""), chip.process or "", _tera(chip, DType.BF16), _tera(chip, DType.INT8),
            _capacity(chip), f"{chip.dram_bandwidth / 1e9:g}", _ridge(chip, DType.BF16),
        )  # fmt: skip
    console.print(table)
    console.print(_CONVENTION, style="dim")
    return 0


def run_show(options: argparse.Namespace) -> int:
    """Print everything that is known about one chip or system and where it comes from."""
    from rich.text import Text

    from hw_models import load_chip
    from hw_models.describe import describe
    from hw_models.loader import is_system, load_system

    console = _console()
    if is_system(options.chip):
        system = load_system(options.chip, options.set)
        console.print(Text(f"{system.name}: {system.description}, {system.chips} chips", style="bold"))
        passages = describe(system)
    else:
        chip = load_chip(options.chip, options.set)
        console.print(Text(f"{chip.name}: {chip.description}", style="bold"))
        console.print(_peaks(chip))
        console.print(_CONVENTION, style="dim")
        passages = describe(chip)
    for passage in passages:
        table = _table("", "")
        table.show_header = False
        for path, text in passage.values:
            table.add_row(path, text)
        console.print()
        console.print(table)
        if passage.source:
            console.print(Text(f"source: {passage.source}", style="dim"))
    return 0


def _peaks(chip: "Chip") -> "Table":
    """Peaks of the matrix and vector units, derived from cells, clock and cores."""
    from simulator.dtypes import DType

    table = _table("peak of", ">matrix units", ">vector units", ">ridge")
    for dtype in DType:
        if dtype not in chip.matrix.dtypes and dtype not in chip.vector.flops_per_cycle:
            continue
        unit = "FLOP/s" if dtype.floating else "OP/s"
        vector = _rate(chip.vector_peak(dtype), unit) if dtype in chip.vector.flops_per_cycle else "-"
        table.add_row(str(dtype), _peak(chip, dtype, unit), vector, _ridge(chip, dtype))
    return table


def _tera(chip: "Chip", dtype: "DType") -> str:
    """Peak of the matrix units in TFLOP/s or TOP/s; a dash if they have no such mode."""
    peak = chip.matrix_peak(dtype)
    return "-" if peak is None else f"{peak / 1e12:.1f}" if peak >= 1e12 else f"{peak / 1e12:.3g}"


def _peak(chip: "Chip", dtype: "DType", unit: str) -> str:
    peak = chip.matrix_peak(dtype)
    return "-" if peak is None else _rate(peak, unit)


def _ridge(chip: "Chip", dtype: "DType") -> str:
    from hw_models.roofline import ridge_point

    return f"{ridge_point(chip, dtype):.4g}"


def _capacity(chip: "Chip") -> str:
    from hw_models.describe import size

    return size(chip.dram.capacity)


def _rate(value: int, unit: str) -> str:
    from simulator.units import decimal

    return decimal(value, unit, 4)


def _table(*columns: str) -> "Table":
    """A table without lines; a column whose name starts with ``>`` is set to the right."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", no_wrap=True)
    return table


def _console() -> "Console":
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH)
