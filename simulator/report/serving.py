"""The page of a served run: the verdict first, then state over time and the distributions of latencies."""

from collections.abc import Sequence
from pathlib import Path

from simulator.headline import percent
from simulator.output import write_text
from simulator.report.markup import Markup, join, tag
from simulator.report.serving_plots import distribution, state
from simulator.serving.metrics import QUANTILES
from simulator.serving.summary import Summary
from simulator.units import decimal, seconds
from simulator.version import VERSION

_HERE = Path(__file__).parent
_STYLE = (
    ":root { --idle: #9ca3af; } .idle { --mark: var(--idle); } .line0 { fill: none; stroke: var(--mark); "
    "stroke-width: 1.4; } .slo { stroke: var(--capacity); stroke-width: 1.4; stroke-dasharray: 6 4; }"
)


def write_serving_page(summary: Summary, path: Path) -> None:
    """Write the page to *path*; OutputError if that cannot be done."""
    write_text(path, serving_page(summary))


def serving_page(summary: Summary) -> str:
    """Return the whole page as text."""
    title = f"serving {summary.model} on {summary.chip.name}"
    sections = (
        ("bounds", "Engine time by bound", _bounds(summary)),
        ("state", "Queue, batch and KV cache over time", _states(summary)),
        ("latency", "Latencies", _latencies(summary)),
        ("memory", "Device memory", _memory(summary)),
    )
    links = [tag("a", name, href=f"#{anchor}") for anchor, name, _ in sections]
    head = [
        Markup('<meta charset="utf-8"/>'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1"/>'),
        Markup('<meta name="color-scheme" content="light dark"/>'),
        Markup('<link rel="icon" href="data:,"/>'),
        tag("title", title),
        tag("style", Markup((_HERE / "page.css").read_text(encoding="utf-8") + _STYLE)),
    ]
    body = [
        tag("header", _masthead(title, summary), tag("nav", *links)),
        tag("main", *(tag("section", tag("h2", name), part, id=anchor) for anchor, name, part in sections)),
        tag("footer", f"xpusim {VERSION}. Simulated clock; step times from traced graphs and the chip's models."),
    ]
    return "<!doctype html>\n" + tag("html", tag("head", *head), tag("body", *body), lang="en") + "\n"


def _masthead(title: str, summary: Summary) -> Markup:
    facts = [
        tag("div", tag("dt", each.label), tag("dd", each.value), tag("dd", each.note, class_="note"))
        for each in summary.facts
    ]
    return join(
        [
            tag("p", "xpusim", class_="brand"),
            tag("h1", title),
            tag("p", summary.setting, class_="machine"),
            tag("div", tag("p", summary.verdict), tag("p", summary.demand), class_=f"verdict {summary.bound}"),
            tag("dl", *facts, class_="facts"),
        ]
    )


def _bounds(summary: Summary) -> Markup:
    whole = max(1, sum(time for _, time in summary.parts))
    stack = [
        tag(
            "i",
            f"{name} {percent(time / whole)}" if time >= 0.16 * whole else "",
            class_=name,
            style=f"width:{100 * time / whole:.2f}%",
            title=f"{name} {percent(time / whole)}",
        )
        for name, time in summary.parts
    ]
    rows = [(name, seconds(time), percent(time / whole)) for name, time in summary.parts]
    note = (
        "Each kind of step is judged by replay, operator by operator; capacity is what was computed again after a "
        "preemption, interconnect the wait for a KV cache under way, idle the time without requests."
    )
    table = _table(("bound by", "time of all engines", "share"), rows)
    return join([tag("div", *stack, class_="stack"), table, tag("p", note, class_="note")])


def _states(summary: Summary) -> Markup:
    parts: list[Markup] = []
    for track in summary.log.tracks:
        if len(summary.log.tracks) > 1:
            parts.append(tag("p", track.name, class_="note"))
        end = summary.log.end
        parts.append(state("sequences waiting", track, track.waiting, end, "launch"))
        limit = summary.limits.max_batch
        parts.append(state("sequences running", track, track.running, end, "compute", limit))
        parts.append(state("KV blocks held", track, track.held, end, "cache", summary.limits.blocks))
    note = "Highest value in each stretch of time; the dashed line is the limit where it is near."
    return join([*parts, tag("p", note, class_="note")])


def _latencies(summary: Summary) -> Markup:
    served, slo, found = summary.log.served, summary.slo, summary.figures
    tpot = [each.tpot for each in served if each.tpot is not None]
    rows = [
        (name, *(seconds(values[each], 3) for each in QUANTILES))
        for name, values in (
            ("TTFT", found.ttft),
            ("TPOT", found.tpot),
            ("end to end", found.e2e),
            ("between two tokens", found.gap),
        )
    ]
    return join(
        [
            _table(("", *(f"p{each}" for each in QUANTILES)), rows),
            distribution("time to first token", [each.ttft for each in served], slo.ttft if slo else None),
            distribution("time per output token", tpot, slo.tpot if slo else None),
        ]
    )


def _memory(summary: Summary) -> Markup:
    found = summary.capacity
    rows = [
        ("weights", decimal(found.weights, "B")),
        ("activations of the largest step", decimal(found.activations, "B")),
        ("workspace of libraries", decimal(found.workspace, "B")),
        (f"KV cache, {found.blocks:,} blocks", decimal(found.cache, "B")),
        ("may be used", decimal(found.usable, "B")),
    ]
    return _table(("what", "bytes"), rows)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    first, *others = titles
    head = tag("tr", tag("th", first, scope="col"), *(tag("th", each, scope="col", class_="n") for each in others))
    body = [
        tag("tr", tag("th", name, scope="row"), *(tag("td", cell, class_="n") for cell in cells))
        for name, *cells in rows
    ]
    return tag("table", tag("thead", head), tag("tbody", join(body)), class_="small")
