"""A sweep as a page of its own: the recommendation, the picture, the tables."""

from collections.abc import Sequence
from pathlib import Path

from hw_models.array_model import Recommendation, Sweep
from simulator.output import write_text
from simulator.report.markup import Markup, join, tag
from simulator.version import VERSION
from workloads.accelerator import tables, words
from workloads.accelerator.plot import svg
from workloads.lab import LabTable

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #111827 }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem } svg { width: 100%; height: auto }
table { border-collapse: collapse } th, td { padding: .2rem .7rem; border-bottom: 1px solid #e5e7eb }
th { font-weight: 600 } .n { text-align: right; font-variant-numeric: tabular-nums } footer, small { color: #6b7280 }
"""


def write_page(sweep: Sweep, best: Recommendation, every: Sequence[Recommendation], path: Path) -> None:
    """Write the page to *path*; OutputError if that cannot be done."""
    write_text(path, page(sweep, best, every))


def page(sweep: Sweep, best: Recommendation, every: Sequence[Recommendation]) -> str:
    """Return the page as text; it refers to nothing outside of itself."""
    title = f"{words.name_of(sweep.program.graph.workload)} on arrays of {sweep.program.chip.name}"
    shown = [
        tables.by_bandwidth(every),
        tables.array_by_sram(sweep, best.point),
        tables.array_by_bandwidth(sweep, best.point),
    ]
    body = [
        tag("h1", title),
        tag("p", tag("strong", words.sizes(best.point)), f": {words.outcome(best.point)}."),
        tag("ul", *(tag("li", words.reason(each, best, sweep.program)) for each in best.choices)),
        Markup(svg(sweep, best)),
        *(part for table in shown for part in _section(table)),
        tag("footer", f"xpusim {VERSION}. {words.CONVENTIONS}."),
    ]
    head = [Markup('<meta charset="utf-8"/>'), tag("title", title), tag("style", Markup(_STYLE))]
    return "<!doctype html>\n" + tag("html", tag("head", *head), tag("body", *body), lang="en") + "\n"


def _section(table: LabTable) -> tuple[Markup, ...]:
    right = ["n" if name.startswith(">") else None for name in table.columns]
    titles = zip(table.columns, right, strict=True)
    head = tag("tr", *(tag("th", name.removeprefix(">"), class_=side) for name, side in titles))
    rows = [
        tag("tr", *(tag("td", cell, class_=side) for cell, side in zip(row, right, strict=True))) for row in table.rows
    ]
    note = tag("small", table.note) if table.note else Markup("")
    return tag("h2", table.title), tag("table", head, join(rows)), note
