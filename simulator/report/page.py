"""Puts the page together: the verdict first, then what it rests on, then what it assumes."""

from collections.abc import Iterator
from pathlib import Path

from simulator.hardware import Execution
from simulator.headline import CONVENTIONS, Headline, headline, percent
from simulator.output import write_text
from simulator.report.activity import activity
from simulator.report.chip import chip_table
from simulator.report.grids import (
    bounds_table,
    held_table,
    memory_table,
    module_table,
    operator_table,
    phase_table,
    uncovered_table,
)
from simulator.report.markup import Markup, join, tag
from simulator.report.memory import memory_plot
from simulator.report.roofline import roofline
from simulator.result import Result
from simulator.tables import (
    bound_rows,
    held_rows,
    memory_rows,
    module_rows,
    operator_rows,
    phase_rows,
    uncovered_rows,
)
from simulator.version import VERSION

_HERE = Path(__file__).parent
_HELD = 12  # names in the table of what is alive at the peak


def write_report(result: Result, path: Path) -> None:
    """Write the page to *path*; OutputError if that cannot be done."""
    write_text(path, page(result))


def page(result: Result) -> str:
    """Return the whole page as text."""
    top = headline(result)
    sections = list(_sections(result))
    links = [tag("a", title, href=f"#{name}") for name, title, _ in sections]
    head = [
        Markup('<meta charset="utf-8"/>'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1"/>'),
        Markup('<meta name="color-scheme" content="light dark"/>'),
        Markup('<link rel="icon" href="data:,"/>'),
        tag("title", f"{top.title} on {result.chip.name}"),
        tag("style", Markup(_text("page.css"))),
    ]
    body = [
        tag("header", _masthead(top, result), tag("nav", *links)),
        tag("main", *(_section(name, title, content) for name, title, content in sections)),
        tag("footer", f"xpusim {VERSION}. {result.chip.name}, {result.mode} mode, {result.fidelity} model."),
        tag("script", Markup(_text("page.js"))),
    ]
    return "<!doctype html>\n" + tag("html", tag("head", *head), tag("body", *body), lang="en") + "\n"


def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _masthead(top: Headline, result: Result) -> Markup:
    return join(
        [
            tag("p", "xpusim", class_="brand"),
            tag("h1", top.title),
            tag("p", f"on {top.machine}", class_="machine"),
            tag("div", tag("p", top.verdict), tag("p", top.demand), class_=f"verdict {result.bound}"),
            tag("dl", *(_fact(*each) for each in ((f.label, f.value, f.note) for f in top.facts)), class_="facts"),
        ]
    )


def _fact(label: str, value: str, note: str) -> Markup:
    return tag("div", tag("dt", label), tag("dd", value), tag("dd", note, class_="note"))


def _section(name: str, title: str, content: Markup) -> Markup:
    return tag("section", tag("h2", title), content, id=name)


def _sections(result: Result) -> Iterator[tuple[str, str, Markup]]:
    """Anchor, title and content of each section, in reading order."""
    yield "bounds", "Time by bound", _bounds(result)
    yield "roofline", "Roofline", roofline(result)
    yield "modules-section", "Time by module", _modules(result)
    if result.memory.peak:
        yield "memory", "Memory over time", _memory(result)
    yield "units", "Units over time", _units(result)
    yield "operators-section", "Operators", _operators(result)
    yield "uncovered", "Not covered by a rule", _uncovered(result)
    yield "chip", "Chip", tag("div", chip_table(result.chip), class_="scroll", tabindex=0)
    yield "conventions", "Conventions", tag("ul", *(tag("li", line) for line in CONVENTIONS))


def _bounds(result: Result) -> Markup:
    rows = bound_rows(result)
    if not rows:
        return tag("p", "Nothing took time.", class_="note")
    parts = [
        tag(
            "i",
            f"{row.resource} {percent(row.share)}" if row.share >= 0.16 else "",
            class_=str(row.resource),
            style=f"width:{100 * row.share:.2f}%",
            title=f"{row.resource} {percent(row.share)}",
        )
        for row in rows
        if row.time
    ]
    note = (
        "Share: what binds the operators on the critical path. Change: of the run's time if this resource alone is "
        "made larger and everything is played again; the next limit then stops the gain."
    )
    table = tag("div", bounds_table(rows), class_="scroll", tabindex=0)
    return join([tag("div", *parts, class_="stack"), table, tag("p", note, class_="note")])


def _modules(result: Result) -> Markup:
    rows = module_rows(result)
    if not rows:
        return tag("p", "No operator ran.", class_="note")
    whole = "time of the run" if result.chip.execution is Execution.STREAM else "work of all units, side by side"
    note = f"Repeated layers are one row; shares are of the {whole}."
    phases = phase_rows(result)
    parts = [tag("p", note, class_="note"), module_table(rows)]
    if sum(row.operators > 0 for row in phases) > 1:
        parts = [phase_table(phases), *parts]
    return join(parts)


def _memory(result: Result) -> Markup:
    table = tag("div", memory_table(memory_rows(result), result.peak_memory_bytes), class_="scroll", tabindex=0)
    held = tag("div", held_table(held_rows(result, _HELD)), class_="scroll", tabindex=0)
    return join([memory_plot(result), table, held])


def _units(result: Result) -> Markup:
    note = (
        "Height: how busy a unit is in that stretch of the run; colour: what binds its operators there. "
        "On the right its busy share. --timeline writes every span for ui.perfetto.dev."
    )
    return join([activity(result), tag("p", note, class_="note")])


def _operators(result: Result) -> Markup:
    rows = operator_rows(result)
    if not rows:
        return tag("p", "No operator ran.", class_="note")
    search = tag(
        "input", type="search", placeholder="filter by name", aria_label="filter operators", data_for="operators"
    )
    note = tag("p", "Identical operators of repeated layers are one row. Click a title to sort.", class_="note")
    return join([search, note, operator_table(rows)])


def _uncovered(result: Result) -> Markup:
    rows = uncovered_rows(result)
    if not rows:
        return tag("p", "Every operator of this run is known by a rule.", class_="note")
    share = percent(result.uncovered_share)
    note = f"These operators, {share} of all bytes, were timed by the bytes that they move, without arithmetic."
    table = tag("div", uncovered_table(rows), class_="scroll", tabindex=0)
    return join([tag("p", note), table])
