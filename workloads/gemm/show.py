"""Prints tables and outcomes on a terminal or, as wide as it takes, to a file."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from workloads.gemm.check import Outcome
from workloads.lab import LabTable


def console(width: int) -> Console:
    """Return the terminal, or *width* columns of a file."""
    here = Console(highlight=False)
    return here if here.is_terminal else Console(highlight=False, width=width)


def tables(shown: Sequence[LabTable], width: int) -> None:
    """Print each table under its title."""
    from simulator.cli.lab import rich_table  # noqa: PLC0415

    out = console(width)
    for table in shown:
        out.print(Text(table.title, style="bold"))
        out.print(rich_table(table))
        out.print(Text(table.note, style="dim"))


def outcomes(found: Sequence[Outcome], width: int) -> None:
    """Print one line a step and type: how many sizes are right, and the largest error."""
    out = console(width)
    for key in dict.fromkeys((each.step, each.dtype) for each in found):
        own = [each for each in found if (each.step, each.dtype) == key]
        errors = [each.error for each in own if each.error is not None]
        refused = sum(1 for each in own if each.refused)
        note = f", {refused} refused: {next(each.refused for each in own if each.refused)}" if refused else ""
        right = sum(each.right for each in own)
        out.print(f"{key[0]} {key[1]}: {right} of {len(own)} right, largest error {max(errors):.1e}{note}")
