"""Prints a result for a person at a terminal: the verdict first, then what it rests on."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from simulator.graph import Phase
from simulator.hardware import Execution
from simulator.headline import change, headline, percent
from simulator.passes.reports import PassReport
from simulator.result import Result
from simulator.tables import (
    BoundRow,
    Row,
    bound_rows,
    bound_text,
    held_rows,
    memory_rows,
    module_rows,
    operator_rows,
    phase_rows,
    time_scale,
    uncovered_rows,
)
from simulator.units import decimal
from simulator.variants import Resource

OPERATORS = 10
HELD = 8
MODULES = 30
FULL_WIDTH = 100
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
    console.print(_panel(result))
    for title, table in _sections(result, console):
        console.print()
        console.print(Text(title, style="bold"))
        console.print(table)


def print_passes(workload: str, chip: str, reports: Sequence[PassReport], shown: int) -> None:
    """Print what each of *reports* did, and up to *shown* of the operators that it made or removed."""
    console = _standard_output()
    console.print(Text(f"{workload} compiled for {chip}", style="bold"))
    if not reports:
        console.print("no passes")
        return
    console.print(passes_table(reports, console.width))
    for report in reports:
        verb = "made" if report.made else "removed"
        for what, count in (report.made or report.gone)[:shown]:
            console.print(Text(f"{report.name} {verb} {count} x {what}"))


def _standard_output() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=FULL_WIDTH)


def _panel(result: Result) -> Panel:
    top = headline(result)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(justify="right", style="bold", no_wrap=True)
    facts.add_column(style="dim")
    for fact in top.facts:
        facts.add_row(fact.label, fact.value, fact.note)
    parts: list[RenderableType] = [Text(f"on {top.machine}"), Text(), facts, Text()]
    parts.append(Text(top.verdict, style=f"bold {COLOURS[result.bound]}"))
    if top.demand:
        parts.append(Text(top.demand))
    title = Text(top.title, style="bold")
    return Panel(Group(*parts), title=title, title_align="left", border_style="dim", padding=(0, 1))


def _sections(result: Result, console: Console) -> Iterator[tuple[str, Table]]:
    """Titles and tables, those that would be empty left out."""
    if result.passes:
        yield "Passes of the compiler, in order", passes_table(result.passes, console.width)
    if bounds := bound_rows(result):
        yield (
            "Time by bound on the critical path, and its change with more of it",
            _bounds(bounds, console),
        )
    phases = phase_rows(result)
    if sum(row.operators > 0 for row in phases) > 1:
        yield "Phases", _rows("phase", phases, _SUMS, console)
    modules = module_rows(result)
    if modules:
        kept = _largest(modules, MODULES)
        whole = "run" if result.chip.execution is Execution.STREAM else "work of all units"
        left_out = f"; the {len(kept)} largest of {len(modules)}" if len(kept) < len(modules) else ""
        yield f"Modules (share of the {whole}{left_out})", _rows("module", kept, _SUMS, console)
        if len(columns := _phase_columns(kept)) > 1:
            timed = [row for row in kept if row.operators]
            yield "Modules by phase", _rows("module", timed, columns, console)
        operators = operator_rows(result, OPERATORS)
        yield "Most expensive operators, identical ones together", _rows("operator", operators, _SINGLE, console)
    if result.memory.peak:
        yield f"Device memory at the peak{_peak_place(result)}", _memory(result)
        yield "The largest of it by name", _held(result)
    if result.uncovered:
        yield "Operators without a rule, timed by their bytes", _uncovered(result)


@dataclass(frozen=True, slots=True)
class _Column:
    """One column of a table: *text* of each cell, or *time* in the unit of the table.

    wide  whether it is left out below 100 characters.
    """

    title: str
    text: Callable[[Row], str] = lambda row: ""
    time: Callable[[Row], int] | None = None
    wide: bool = False
    justify: Literal["left", "right"] = "right"


_TIME = _Column("time", time=lambda row: row.time)
_SHARE = _Column("share", lambda row: percent(row.share))
_BOUND = _Column("bound by", bound_text, justify="left")
_RATE = _Column("FLOP/s", lambda row: decimal(row.flops_per_second, "") if row.flops else "")
_SUMS = (
    _Column("ops", lambda row: f"{row.operators:,}" if row.operators else "", wide=True),
    _TIME,
    _SHARE,
    _Column("FLOP", lambda row: decimal(row.flops, "") if row.flops else "", wide=True),
    _Column("moved", lambda row: decimal(row.traffic, "B") if row.traffic else "", wide=True),
    _RATE,
    _BOUND,
)
_SINGLE = (
    _Column("size", lambda row: row.shape, wide=True, justify="left"),
    _TIME,
    _SHARE,
    _RATE,
    _Column("B/s", lambda row: decimal(row.bytes_per_second, "") if row.traffic else ""),
    _BOUND,
)


def _phase_columns(rows: Sequence[Row]) -> list[_Column]:
    def column(phase: Phase) -> _Column:
        return _Column(str(phase), time=lambda row: row.phases.get(phase, 0))

    return [column(phase) for phase in Phase if any(row.phases.get(phase) for row in rows)]


def _rows(first: str, rows: Sequence[Row], columns: Sequence[_Column], console: Console) -> Table:
    kept = [column for column in columns if not column.wide or console.width >= FULL_WIDTH]
    scale = time_scale(column.time(row) for column in kept if column.time for row in rows)
    titles = [f"{column.title}, {scale.unit}" if column.time else column.title for column in kept]
    cells = [[scale.text(column.time(row)) if column.time else column.text(row) for column in kept] for row in rows]
    widths = [max(map(len, texts)) for texts in zip(titles, *cells, strict=True)]
    room = console.width - sum(widths) - 2 * len(kept)
    table = _table()
    table.add_column(first, no_wrap=True)
    for title, column in zip(titles, kept, strict=True):
        table.add_column(title, justify=column.justify, no_wrap=True)
    for row, texts in zip(rows, cells, strict=True):
        styles = [COLOURS[row.bound] if column is _BOUND else "" for column in kept]
        styled = [Text(text, style=style) for text, style in zip(texts, styles, strict=True)]
        table.add_row(Text(_name(row, room)), *styled)
    return table


def _name(row: Row, room: int) -> str:
    """The name with its count; where it is too long its end is kept, which tells more than its beginning."""
    count = f" x{row.repeats}" if row.repeats > 1 else ""
    left = max(8, room - len(count))
    return (row.name if len(row.name) <= left else "…" + row.name[1 - left :]) + count


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, header_style="dim", show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))


def _bounds(rows: Sequence[BoundRow], console: Console) -> Table:
    table = _table()
    scale = time_scale(row.time for row in rows)
    for title in ("bound by", f"time, {scale.unit}", "share", "", "if infinite", "if +10 %"):
        table.add_column(title, justify="left" if title in ("bound by", "") else "right", no_wrap=True)
    for row in rows:
        colour = COLOURS[row.resource]
        table.add_row(
            Text(str(row.resource), style=colour),
            scale.text(row.time),
            percent(row.share),
            Text(_bar(row.share, console), style=colour),
            change(-row.saving),
            change(row.elasticity / 10),
        )
    return table


def _bar(share: float, console: Console) -> str:
    block = "#" if console.options.ascii_only else "█"
    return (block * round(_BAR * share)).ljust(_BAR)


def _largest(rows: Sequence[Row], count: int) -> list[Row]:
    """The *count* rows that take longest, in their old order."""
    kept = sorted(range(len(rows)), key=lambda place: -rows[place].time)[:count]
    return [rows[place] for place in sorted(kept)]


def _peak_place(result: Result) -> str:
    place = result.memory.peak_operator
    return f", during {result.graph.operators[place].name}" if place is not None else ""


def _memory(result: Result) -> Table:
    table = _table()
    table.add_column("what", no_wrap=True)
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    for row in memory_rows(result):
        table.add_row(str(row.role), decimal(row.nbytes, "B"), percent(row.share))
    table.add_row("all", decimal(result.peak_memory_bytes, "B"), "", style="bold")
    return table


def _held(result: Result) -> Table:
    table = _table()
    for title in ("name", "role"):
        table.add_column(title, no_wrap=True, overflow="ellipsis")
    for title in ("tensors", "bytes", "share"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in held_rows(result, HELD):
        table.add_row(row.name, str(row.role), f"{row.count:,}", decimal(row.nbytes, "B"), percent(row.share))
    return table


def passes_table(reports: Sequence[PassReport], width: int = FULL_WIDTH) -> Table:
    """Kernels, bytes, time and bound before the first pass and after each one, and what it made most.

    Numbers are never cut: the last column has what they leave of *width* characters.
    """
    table = _table()
    states = [reports[0].before, *(report.after for report in reports)] if reports else []
    scale = time_scale(state.time for state in states)
    table.add_column("after", no_wrap=True)
    for title in ("kernels", "bytes", f"time, {scale.unit}"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    table.add_column("made most", no_wrap=True, overflow="ellipsis")
    names = ["(as traced)", *(report.name for report in reports)]
    cells = [
        (name, f"{state.kernels:,}", decimal(state.nbytes, "B"), scale.text(state.time), str(state.bound))
        for name, state in zip(names, states, strict=True)
    ]
    titles = [str(column.header) for column in table.columns[:-1]]
    room = width - sum(max(map(len, texts)) + 2 for texts in zip(titles, *cells, strict=True))
    made = ["", *(_most(report) for report in reports)]
    for row, most in zip(cells, made, strict=True):
        fitting = most if len(most) <= room else most[: max(0, room - 1)] + "…"
        table.add_row(*row[:-1], Text(row[-1], COLOURS[Resource(row[-1])]), Text(fitting))
    return table


def _most(report: PassReport) -> str:
    """What a pass made or removed most often."""
    found = report.made or report.gone
    if not found:
        return ""
    what, count = found[0]
    return ("" if report.made else "less ") + (f"{what} x{count}" if count > 1 else what)


def _uncovered(result: Result) -> Table:
    table = _table()
    table.add_column("operator", no_wrap=True, overflow="ellipsis")
    for title in ("runs", "bytes", "share of bytes"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in uncovered_rows(result):
        table.add_row(Text(row.target), f"{row.count:,}", decimal(row.nbytes, "B"), percent(row.share))
    return table
