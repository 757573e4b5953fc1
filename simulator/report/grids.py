"""The tables of the page: bounds, modules, operators, phases, memory, uncovered operators."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulator.graph import Phase
from simulator.headline import change, number, percent
from simulator.report.markup import Markup, join, tag
from simulator.tables import BoundRow, HeldRow, MemoryRow, Row, TimeScale, UncoveredRow, bound_text, time_scale
from simulator.units import decimal

MOST_ROWS = 500  # of a table; the JSON file has all


@dataclass(frozen=True, slots=True)
class Column:
    """One column: *cell* gives what is shown, *value* what the rows are sorted by; numbers are set to the right."""

    title: str
    cell: Callable[[Row], object]
    value: Callable[[Row], float | str]
    kind: str = "n"


def bounds_table(rows: Sequence[BoundRow]) -> Markup:
    """Time by bound, with what more of each resource would bring."""
    scale = time_scale(row.time for row in rows)
    titles = ("bound by", f"time, {scale.unit}", "share of the run", "change if infinite", "change if 10 % more")
    body = [
        tag(
            "tr",
            tag("th", tag("i", "", class_=f"key {row.resource}"), str(row.resource), scope="row"),
            tag("td", scale.text(row.time), class_="n"),
            tag("td", percent(row.share), class_="n"),
            tag("td", change(-row.saving), class_="n"),
            tag("td", change(row.elasticity / 10), class_="n"),
        )
        for row in rows
    ]
    return tag("table", _head(titles), tag("tbody", join(body)), class_="small")


def module_table(rows: Sequence[Row]) -> Markup:
    """Modules in program order, each with a bar of its time by bound."""
    scale = time_scale(row.time for row in rows)
    longest = max((row.time for row in rows), default=0)
    phases = _phases(rows, scale)
    columns = [
        _name("module"),
        Column("time by bound", lambda row: _bar(row, longest), lambda row: row.time, "bar"),
        *(column for column in _sums(scale) if not phases or column.title not in ("operators", "B/s")),
        *phases,
    ]
    return _table("modules", rows, columns)


def phase_table(rows: Sequence[Row]) -> Markup:
    """Forward, backward, recompute and optimizer."""
    return _table("phases", rows, [_name("phase"), *_sums(time_scale(row.time for row in rows))])


def operator_table(rows: Sequence[Row]) -> Markup:
    """Operators, most expensive first."""
    scale = time_scale(row.time for row in rows)
    each = time_scale(row.time // max(1, row.operators) for row in rows)
    columns = [
        _name("operator"),
        Column("size", lambda row: row.shape, lambda row: row.shape, "code"),
        Column("runs", lambda row: f"{row.operators:,}", lambda row: row.operators),
        _time("time", scale, lambda row: row.time),
        _time("each", each, lambda row: row.time // max(1, row.operators)),
        Column("share", lambda row: percent(row.share), lambda row: row.share),
        Column("FLOP/B", lambda row: number(row.intensity) if row.flops else "", lambda row: row.intensity),
        *_rates(),
        _bound(),
        Column("how it was timed", lambda row: row.detail, lambda row: row.detail, "source"),
    ]
    return _table("operators", rows, columns)


def memory_table(rows: Sequence[MemoryRow], peak: int) -> Markup:
    """Bytes by role at the peak."""
    lines = [(str(row.role), decimal(row.nbytes, "B"), percent(row.share)) for row in rows]
    return _plain(("at the peak", "bytes", "share"), [*lines, ("all", decimal(peak, "B"), "100 %")])


def held_table(rows: Sequence[HeldRow]) -> Markup:
    """The largest storages at the peak, by name."""
    lines = [(row.name, str(row.role), f"{row.count:,}", decimal(row.nbytes, "B"), percent(row.share)) for row in rows]
    return _plain(("largest at the peak", "role", "tensors", "bytes", "share"), lines)


def uncovered_table(rows: Sequence[UncoveredRow]) -> Markup:
    """Operators without a rule."""
    lines = [(row.target, f"{row.count:,}", decimal(row.nbytes, "B"), percent(row.share)) for row in rows]
    return _plain(("operator", "runs", "bytes", "share of all bytes"), lines)


def _plain(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> Markup:
    body = []
    for first, *others in lines:
        cells = [tag("td", text, class_="n") for text in others]
        body.append(tag("tr", tag("th", first, scope="row"), *cells))
    return tag("table", _head(titles), tag("tbody", join(body)), class_="small")


def _head(titles: Sequence[str]) -> Markup:
    first, *others = titles
    cells = [tag("th", title, scope="col", class_="n") for title in others]
    return tag("thead", tag("tr", tag("th", first, scope="col"), *cells))


def _table(name: str, rows: Sequence[Row], columns: Sequence[Column]) -> Markup:
    titles = [tag("button", column.title, type="button") for column in columns]
    head = [
        tag("th", title, scope="col", class_=column.kind if column.kind in ("n", "bar") else None)
        for title, column in zip(titles, columns, strict=True)
    ]
    shown = sorted(rows, key=lambda row: -row.time)[:MOST_ROWS] if len(rows) > MOST_ROWS else rows
    body = [tag("tr", *(_cell(row, column) for column in columns)) for row in shown]
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", join(body)), id=name, class_="sortable")
    parts = [tag("div", table, class_="scroll", tabindex=0)]
    if len(rows) > len(shown):
        parts.append(tag("p", f"The {len(shown)} largest of {len(rows)} rows; --json writes all.", class_="note"))
    return join(parts)


def _cell(row: Row, column: Column) -> Markup:
    value = column.value(row)
    shown = column.cell(row)
    sort = None if isinstance(value, str) else f"{value:.6g}"
    kind = column.kind if row.operators or column.kind != "name" else "name wait"
    return tag("td", shown, class_=kind, data_v=sort)


def _name(title: str) -> Column:
    def cell(row: Row) -> Markup:
        count = tag("span", f" x{row.repeats}", class_="times") if row.repeats > 1 else Markup()
        return join([row.name, count])

    return Column(title, cell, lambda row: row.name, "name")


def _time(title: str, scale: TimeScale, time: Callable[[Row], int]) -> Column:
    return Column(f"{title}, {scale.unit}", lambda row: scale.text(time(row)), time)


def _sums(scale: TimeScale) -> list[Column]:
    return [
        _time("time", scale, lambda row: row.time),
        Column("share", lambda row: percent(row.share), lambda row: row.share),
        Column("operators", lambda row: f"{row.operators:,}" if row.operators else "", lambda row: row.operators),
        Column("FLOP", lambda row: decimal(row.flops, "") if row.flops else "", lambda row: row.flops),
        Column("moved", lambda row: decimal(row.traffic, "B") if row.traffic else "", lambda row: row.traffic),
        *_rates(),
        _bound(),
    ]


def _rates() -> list[Column]:
    return [
        Column(
            "FLOP/s",
            lambda row: decimal(row.flops_per_second, "") if row.flops else "",
            lambda row: row.flops_per_second,
        ),
        Column(
            "B/s",
            lambda row: decimal(row.bytes_per_second, "") if row.traffic else "",
            lambda row: row.bytes_per_second,
        ),
    ]


def _bound() -> Column:
    def cell(row: Row) -> Markup:
        return join([tag("i", "", class_=f"key {row.bound}"), bound_text(row)])

    return Column("bound by", cell, lambda row: str(row.bound), "bound")


def _phases(rows: Sequence[Row], scale: TimeScale) -> list[Column]:
    used = [phase for phase in Phase if any(row.phases.get(phase) for row in rows)]

    def column(phase: Phase) -> Column:
        return _time(str(phase), scale, lambda row: row.phases.get(phase, 0))

    return [column(phase) for phase in used] if len(used) > 1 else []


def _bar(row: Row, longest: int) -> Markup:
    """The time of a row as a bar, as long as its part of the longest row, in the colours of its bounds."""
    parts = [
        tag("i", "", class_=str(resource), style=f"width:{100 * time / longest:.2f}%", title=str(resource))
        for resource, time in row.bounds.items()
        if time and longest
    ]
    return tag("span", *parts, class_="line")
