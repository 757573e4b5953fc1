"""Prints a result for a person at a terminal: the verdict first, then what it rests on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from simulator.graph import Phase
from simulator.hardware import Execution
from simulator.headline import Headline, gain, headline, percent
from simulator.result import Result
from simulator.tables import (
    BoundRow,
    Row,
    bound_rows,
    memory_rows,
    module_rows,
    operator_rows,
    phase_rows,
    uncovered_rows,
)
from simulator.units import decimal, seconds
from simulator.variants import Resource

OPERATORS = 10
MODULES = 30
PIPED_WIDTH = 100
COLOURS = {
    Resource.COMPUTE: "blue",
    Resource.BANDWIDTH: "dark_orange",
    Resource.LAUNCH: "magenta",
    Resource.CAPACITY: "red",
    Resource.INTERCONNECT: "green",
}
_BAR = 24


def print_result(result: Result, console: Console | None = None) -> None:
    """Print *result*; without a *console* to standard output, as plain text if that is not a terminal."""
    console = console or _standard_output()
    console.print(_panel(headline(result), result))
    sections: tuple[Callable[[Result, Console], Table | None], ...] = (
        _bounds,
        _phases,
        _modules,
        _module_phases,
        _operators,
        _memory,
        _uncovered,
    )
    for section in sections:
        table = section(result, console)
        if table is not None:
            console.print(table)


def _standard_output() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPED_WIDTH)


def _panel(top: Headline, result: Result) -> Panel:
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(justify="right", style="bold", no_wrap=True)
    facts.add_column(style="dim")
    for fact in top.facts:
        facts.add_row(fact.label, fact.value, fact.note)
    verdict = Text(top.verdict, style=f"bold {COLOURS[result.bound]}")
    body = Group(facts, Text(), verdict, Text(top.demand)) if top.demand else Group(facts, Text(), verdict)
    title = Text.assemble((top.title, "bold"), "  on  ", (top.machine, "bold"))
    return Panel(body, title=title, title_align="left", border_style="dim", padding=(0, 1))


@dataclass(frozen=True, slots=True)
class _Column:
    """One column of a table; *narrow* tells whether it is kept below 100 characters."""

    title: str
    text: Callable[[Row], str]
    narrow: bool = True
    justify: Literal["left", "right"] = "right"


_TIME = _Column("time", lambda row: seconds(row.time))
_SHARE = _Column("share", lambda row: percent(row.share))
_FLOPS = _Column("FLOP", lambda row: decimal(row.flops, ""), narrow=False)
_BYTES = _Column("moved", lambda row: decimal(row.traffic, "B") if row.operators else "", narrow=False)
_RATE = _Column("FLOP/s", lambda row: decimal(row.flops_per_second, "") if row.flops else "")
_STREAM = _Column("B/s", lambda row: decimal(row.bytes_per_second, "") if row.traffic else "")
_COUNT = _Column("ops", lambda row: f"{row.operators:,}" if row.operators else "", narrow=False)
_SHAPE = _Column("size", lambda row: row.shape, narrow=False, justify="left")
_BOUND = _Column("bound by", lambda row: bound_text(row), justify="left")


def bound_text(row: Row) -> str:
    """The resource that binds a line, with its share where others bind parts of it."""
    return str(row.bound) if row.bound_share > 0.9995 else f"{row.bound} {percent(row.bound_share)}"


def _rows(
    title: str, first: str, rows: Sequence[Row], columns: Sequence[_Column], console: Console, rest: Row | None = None
) -> Table:
    kept = [column for column in columns if column.narrow or console.width >= PIPED_WIDTH]
    table = _table(title)
    table.add_column(first, no_wrap=True, overflow="ellipsis", ratio=1)
    for column in kept:
        table.add_column(column.title, justify=column.justify, no_wrap=True)
    for row in [*rows, rest] if rest else rows:
        cells: list[Text] = []
        for column in kept:
            style = COLOURS[row.bound] if column is _BOUND else ""
            cells.append(Text(column.text(row), style=style))
        table.add_row(_name(row, console, [column.text(row) for column in kept]), *cells)
    return table


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        header_style="dim",
        expand=False,
        pad_edge=False,
    )


def _name(row: Row, console: Console, cells: Sequence[str]) -> Text:
    return Text(row.name + (f" x{row.repeats}" if row.repeats > 1 else ""))


def _bounds(result: Result, console: Console) -> Table | None:
    rows = bound_rows(result)
    if not rows:
        return None
    table = _table("Time by bound, along the critical path")
    for title, right in (("bound by", False), ("time", True), ("share", True), ("", False)):
        table.add_column(title, justify="right" if right else "left", no_wrap=True)
    table.add_column("if infinite", justify="right", no_wrap=True)
    table.add_column("if 10 % more", justify="right", no_wrap=True)
    for row in rows:
        saved = f"-{percent(row.saving)}" if row.saving > 0 else "0 %"
        colour = COLOURS[row.resource]
        cells = (Text(str(row.resource), style=colour), seconds(row.time), percent(row.share))
        table.add_row(*cells, Text(_bar(row, console), style=colour), saved, gain(row.elasticity))
    return table


def _bar(row: BoundRow, console: Console) -> str:
    block = "#" if console.options.ascii_only else "█"
    return (block * round(_BAR * row.share)).ljust(_BAR)


def _phases(result: Result, console: Console) -> Table | None:
    rows = phase_rows(result)
    if sum(row.operators > 0 for row in rows) < 2:
        return None
    columns = (_COUNT, _TIME, _SHARE, _FLOPS, _BYTES, _RATE, _BOUND)
    return _rows("Phases", "phase", rows, columns, console)


def _modules(result: Result, console: Console) -> Table | None:
    rows = module_rows(result)
    if not rows:
        return None
    columns = (_COUNT, _TIME, _SHARE, _FLOPS, _BYTES, _RATE, _BOUND)
    kept = _largest(rows, MODULES)
    title = f"Modules (share {_share_of(result)})"
    if len(kept) < len(rows):
        title += f", the {len(kept)} largest of {len(rows)}"
    return _rows(title, "module", kept, columns, console)


def _largest(rows: Sequence[Row], count: int) -> list[Row]:
    kept = sorted(range(len(rows)), key=lambda place: -rows[place].time)[:count]
    return [rows[place] for place in sorted(kept)]


def _share_of(result: Result) -> str:
    return "of the run" if result.chip.execution is Execution.STREAM else "of the work of all units"


def _module_phases(result: Result, console: Console) -> Table | None:
    rows = [row for row in module_rows(result) if row.operators]
    used = [phase for phase in Phase if any(row.phases.get(phase) for row in rows)]
    if len(used) < 2:
        return None

    def column(phase: Phase) -> _Column:
        return _Column(str(phase), lambda row: seconds(row.phases.get(phase, 0)))

    return _rows("Modules by phase", "module", _largest(rows, MODULES), [column(phase) for phase in used], console)


def _operators(result: Result, console: Console) -> Table | None:
    rows = operator_rows(result, OPERATORS)
    if not rows:
        return None
    columns = (_SHAPE, _TIME, _SHARE, _RATE, _STREAM, _BOUND)
    return _rows("Most expensive operators, identical ones together", "operator", rows, columns, console)


def _memory(result: Result, console: Console) -> Table | None:
    rows = memory_rows(result)
    if not rows:
        return None
    table = _table(f"Device memory at the peak ({decimal(result.chip.dram.capacity, 'B')})")
    table.add_column("what", no_wrap=True)
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(str(row.role), decimal(row.nbytes, "B"), percent(row.share))
    return table


def _uncovered(result: Result, console: Console) -> Table | None:
    rows = uncovered_rows(result)
    if not rows:
        return None
    table = _table("Operators without a rule, timed by their bytes")
    table.add_column("operator", no_wrap=True, overflow="ellipsis")
    table.add_column("runs", justify="right", no_wrap=True)
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("share of bytes", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(Text(row.target), f"{row.count:,}", decimal(row.nbytes, "B"), percent(row.share))
    return table
