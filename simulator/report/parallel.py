"""Prints the run of a parallel plan: the verdict first, then time, memory of a rank, and communication."""

from collections.abc import Iterator

from rich import box
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from simulator.headline import change, percent, workload_title
from simulator.parallel.links import STEP
from simulator.parallel.plan import Plan
from simulator.parallel.result import Run
from simulator.parallel.step import BUBBLE
from simulator.units import decimal, seconds
from simulator.variants import Resource

WIDTH = 100
NAMES = {"dp": "data (gradients, ZeRO)", "tp": "tensor", "pp": "pipeline", "ep": "expert"}
_PARTS = ("weights", "gradients", "optimizer", "activations", "workspace")
_MOST = 8  # stages in the table of memory: of more, the first and the last ones
_ASK = {
    Resource.COMPUTE: "Faster needs more or faster matrix cells, a narrower type, or fuller tiles.",
    Resource.BANDWIDTH: "Faster needs more memory bandwidth, or fewer bytes: fusion, narrower types.",
    Resource.LAUNCH: "Faster needs larger operators: a larger microbatch, less tensor parallelism, fusion.",
    Resource.CAPACITY: "Faster needs more on-chip memory.",
    Resource.INTERCONNECT: "Faster needs wider links, or communication that hides behind computation.",
    BUBBLE: "Faster needs more microbatches, fewer stages, or interleaved chunks.",
}
_TIME_NAMES = {Resource.INTERCONNECT: "exposed communication", BUBBLE: "pipeline bubble"}


def print_run(run: Run, console: Console | None = None) -> None:
    """Print *run*; without a *console* to standard output."""
    console = console or standard_console()
    console.print(_panel(run))
    for title, table in _sections(run):
        console.print()
        console.print(Text(title, style="bold"))
        console.print(table)
    for note in run.notes:
        console.print(Text(f"not divided: {note}", style="dim"))


def standard_console() -> Console:
    """Standard output: as wide as the terminal, or WIDTH where it is none."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH)


def plain_table(*titles: str) -> Table:
    """A table with these columns; ``>`` before a title aligns it right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for title in titles:
        table.add_column(title.removeprefix(">"), justify="right" if title.startswith(">") else "left")
    return table


def plan_words(plan: Plan) -> str:
    """*plan* on one line.

    >>> plan_words(Plan(dp=2, tp=4, pp=2, schedule="interleaved", interleave=2, zero=1))
    'dp=2 tp=4 pp=2, zero 1, microbatch 1, interleaved:2, recompute none'
    """
    degrees = [f"{name}={getattr(plan, name)}" for name in ("dp", "tp", "pp", "ep") if name != "ep" or plan.ep > 1]
    schedule = f"interleaved:{plan.interleave}" if plan.interleave > 1 else plan.schedule
    parts = [" ".join(degrees + ["sp"] * plan.sp), f"zero {plan.zero}", f"microbatch {plan.microbatch}"]
    return ", ".join([*parts, *[schedule] * (plan.pp > 1), f"recompute {plan.recompute}"])


def verdict(run: Run) -> str:
    """Whether it fits, and what binds."""
    memory = run.memory[run.fullest]
    if memory.excess:
        return (
            f"Does not fit: a rank of stage {run.fullest} needs {decimal(memory.total, 'B')}, "
            f"{decimal(memory.excess, 'B')} more than it has. The times are those of a chip with enough memory."
        )
    bound = run.step.bound
    share = percent(run.step.bounds[bound] / run.step.time)
    return f"Fits. Bound by {bound}: {share} of the step. {_ASK[bound]}"


def _panel(run: Run) -> Panel:
    memory, step = run.memory[run.fullest], run.step
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(justify="right", style="bold", no_wrap=True)
    facts.add_column(style="dim")
    facts.add_row("time of a step", seconds(step.time), f"{decimal(run.tokens_per_second, 'tokens/s')}")
    facts.add_row("a chip", f"{run.tokens_per_chip:,.0f}", "tokens/s")
    facts.add_row("MFU", percent(run.mfu), f"of {decimal(run.chip.peak(run.workload.dtype), 'FLOP/s')} a chip, dense")
    spare = decimal(abs(memory.capacity - memory.total), "B")
    state = "too much" if memory.excess else "to spare"
    note = f"of {decimal(memory.capacity, 'B')}, {spare} {state}; stage {run.fullest} is the fullest"
    facts.add_row("memory of a rank", decimal(memory.total, "B"), note)
    by_kind = ", ".join(f"{kind} {percent(ps / step.time)}" for kind, ps in step.exposed.items() if ps)
    facts.add_row("exposed communication", percent(run.exposed_share), by_kind)
    if run.plan.pp > 1:
        facts.add_row("pipeline bubble", percent(run.bubble_share), f"slowest stage: {step.rank}")
    for name, value in run.elasticity.items():
        level = run.system.links[name].bandwidth
        text = f"{change(value * (STEP - 1))} of the time with 10 % more than its {decimal(level, 'B/s')}"
        facts.add_row(f"links: {name}", "", text)
    style = "bold red" if memory.excess else "bold green"
    title = Text(workload_title(run.workload), style="bold")
    place = Text(f"on {run.devices} chips of {run.system.name}: {plan_words(run.plan)}")
    content = Group(place, Text(), facts, Text(), Text(verdict(run), style=style))
    return Panel(content, title=title, title_align="left", border_style="dim", padding=(0, 1))


def _sections(run: Run) -> Iterator[tuple[str, Table]]:
    yield f"Time of stage {run.step.rank}, by what bound it", _times(run)
    if any(run.step.volume.values()):
        yield "Communication of one rank in a step", _communication(run)
    yield "Memory of one rank, by stage", _memories(run)


def _times(run: Run) -> Table:
    table = plain_table("bound by", ">time", ">share")
    for name, ps in sorted(run.step.bounds.items(), key=lambda item: -item[1]):
        if ps:
            table.add_row(_TIME_NAMES.get(name, name), seconds(ps), percent(ps / run.step.time))
    return table


def _communication(run: Run) -> Table:
    table = plain_table("parallelism", ">payload", ">alone", ">exposed", ">of the step")
    step = run.step
    for kind, size in step.volume.items():
        exposed = step.exposed.get(kind, 0)
        share = percent(exposed / step.time)
        table.add_row(NAMES[kind], decimal(size, "B"), seconds(step.alone[kind]), seconds(exposed), share)
    return table


def _memories(run: Run) -> Table:
    table = plain_table("stage", *(f">{name}" for name in _PARTS), ">in flight", ">total", "")
    stages = range(len(run.memory))
    for stage in stages if len(stages) <= _MOST else [*stages[: _MOST // 2], *stages[-_MOST // 2 :]]:
        memory = run.memory[stage]
        cells = [decimal(getattr(memory, name), "B") for name in _PARTS]
        fits = f"{decimal(memory.excess, 'B')} too much" if memory.excess else "fits"
        table.add_row(str(stage), *cells, str(memory.in_flight), decimal(memory.total, "B"), fits)
    return table
