"""Prints a served run for a person at a terminal."""

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from simulator.headline import percent
from simulator.serving.summary import Summary
from simulator.terminal import COLOURS, FULL_WIDTH
from simulator.units import seconds

_BAR = 40
_MOMENTS = 8  # rows of the table over time


def print_summary(summary: Summary) -> None:
    """Print *summary*: the verdict first, then time by bound, then the state over time."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=FULL_WIDTH)
    console.print(_panel(summary))
    console.print()
    console.print(Text("Engine time by bound", style="bold"))
    console.print(_bounds(summary))
    console.print(Text("Queue, batch and KV cache over time: highest in each eighth of the run", style="bold"))
    for table in (_state(summary, index) for index in range(len(summary.log.tracks))):
        console.print(table)


def _panel(summary: Summary) -> Panel:
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(justify="right", style="bold", no_wrap=True)
    facts.add_column(style="dim")
    for fact in summary.facts:
        facts.add_row(fact.label, fact.value, fact.note)
    parts: list[RenderableType] = [Text(summary.setting), Text(), facts, Text()]
    parts.append(Text(summary.verdict, style=f"bold {COLOURS[summary.bound]}"))
    parts.append(Text(summary.demand))
    title = Text(f"serving {summary.model} on {summary.chip.name}", style="bold")
    return Panel(Group(*parts), title=title, title_align="left", border_style="dim", padding=(0, 1))


def _bounds(summary: Summary) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False)
    table.add_column("bound by")
    for name in ("time", "share"):
        table.add_column(name, justify="right")
    table.add_column("")
    colours = {str(resource): colour for resource, colour in COLOURS.items()}
    whole = max(1, sum(time for _, time in summary.parts))
    for name, time in summary.parts:
        style = colours.get(name, "dim")
        bar = "█" * max(1, round(_BAR * time / whole))
        table.add_row(Text(name, style=style), seconds(time), percent(time / whole), Text(bar, style=style))
    return table


def _state(summary: Summary, index: int) -> Table:
    """Highest queue, batch and occupancy of one engine in each part of the run."""
    track, end = summary.log.tracks[index], max(1, summary.log.end)
    most = [[0, 0, 0] for _ in range(_MOMENTS)]
    for start, waiting, running, held in zip(track.start, track.waiting, track.running, track.held, strict=True):
        place = most[min(_MOMENTS - 1, start * _MOMENTS // end)]
        place[:] = [max(old, new) for old, new in zip(place, (waiting, running, held), strict=True)]
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False)
    table.add_column("until" if len(summary.log.tracks) == 1 else track.name, no_wrap=True)
    for number in range(_MOMENTS):
        table.add_column(seconds(end * (number + 1) // _MOMENTS, 3), justify="right", no_wrap=True)
    table.add_row("waiting", *(f"{each[0]:,}" for each in most))
    table.add_row("running", *(f"{each[1]:,}" for each in most))
    table.add_row("KV blocks held", *(percent(each[2] / summary.limits.blocks) for each in most))
    return table
