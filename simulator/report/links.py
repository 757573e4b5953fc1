"""Prints how much bandwidth between chips a plan needs."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from simulator.headline import percent
from simulator.parallel.need import Need
from simulator.parallel.plan import Plan
from simulator.report.parallel import NAMES, plain_table, plan_words, standard_console
from simulator.system import System
from simulator.units import decimal, seconds


def print_needs(
    needs: Sequence[Need], model: str, plan: Plan, system: System, limit: float, console: Console | None = None
) -> None:
    """Print *needs* as an answer and a table; without a *console* to standard output."""
    console = console or standard_console()
    console.print(Text(f"{model} on {plan.world} chips of {system.name}: {plan_words(plan)}", style="bold"))
    if not needs:
        console.print("Nothing is sent: one chip has no links to ask for.")
        return
    table = plain_table(
        "parallelism", "level", ">has, one way", ">loss now", f">needs for {percent(limit)}", ">", ">largest"
    )
    for need in needs:
        wanted = "no bandwidth helps" if need.needed is None else decimal(need.needed, "B/s")
        factor = "" if need.needed is None else f"{need.needed / need.bandwidth:.2g}x"
        cells = (decimal(need.bandwidth, "B/s"), percent(need.loss), wanted, factor, seconds(need.largest, 3))
        table.add_row(NAMES.get(need.kind, "all together"), need.level, *cells)
    console.print(table)
    console.print(Text(answer(needs, limit), style="bold"))
    console.print(
        "Loss: time over that with infinite bandwidth at the level, less one; latencies stay. Each\n"
        "parallelism is played as if the others sent nothing. Bandwidth is what is wired of a chip's links\n"
        "in one direction; the library reaches a part. Largest: time of the largest collective on them.",
        style="dim",
    )


def answer(needs: Sequence[Need], limit: float) -> str:
    """The bandwidth that each level needs, in a sentence."""
    levels = dict.fromkeys(need.level for need in needs)
    told = []
    for level in levels:
        of_level = [need for need in needs if need.level == level]
        whole = next((need for need in of_level if need.kind == "all"), of_level[0])
        enough = (
            "no bandwidth is enough" if whole.needed is None else f"{decimal(whole.needed, 'B/s')} a chip and direction"
        )
        told.append(f"{level}: {enough}")
    return f"For a loss of at most {percent(limit)}: {'; '.join(told)}."
