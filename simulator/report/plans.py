"""Prints a ranking of parallel plans: the best ones with what binds them, then why the obvious ones lose."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.headline import percent, workload_title
from simulator.parallel.plan import Plan
from simulator.parallel.ranking import Ranking
from simulator.parallel.result import Run
from simulator.parallel.search import Estimate
from simulator.parallel.step import BUBBLE
from simulator.report.parallel import plain_table, plan_words, standard_console
from simulator.units import decimal, seconds
from simulator.variants import Resource

_SHOWN = 3  # parts of the time in a reason


def print_ranking(ranking: Ranking, console: Console | None = None) -> None:
    """Print *ranking*; without a *console* to standard output."""
    console = console or standard_console()
    best, on = ranking.best[0], ranking.on
    console.print(Text(f"{workload_title(best.workload)} on {best.devices} chips of {on.system.name}", style="bold"))
    console.print(
        f"{ranking.considered:,} plans, {ranking.fitting:,} of them fit in {decimal(on.chip.dram.capacity, 'B')}"
    )
    console.print(
        Text(f"Best: {plan_words(best.plan)}: {seconds(best.step.time)} a step, MFU {percent(best.mfu)}", style="bold")
    )
    console.print(_best(ranking))
    console.print(Text("Why the obvious ones lose", style="bold"))
    console.print(_naive(ranking))
    console.print(
        "Ranked plans are played in full; those that are not among them are estimated from one layer.", style="dim"
    )


def _best(ranking: Ranking) -> Table:
    table = plain_table(">", "plan", ">a step", ">MFU", ">tokens/s/chip", ">memory", "where the time goes")
    for place, run in enumerate(ranking.best, 1):
        cells = (seconds(run.step.time, 3), percent(run.mfu), f"{run.tokens_per_chip:,.0f}")
        memory = decimal(run.memory[run.fullest].total, "B")
        table.add_row(str(place), short(run.plan), *cells, memory, reason(run))
    return table


def short(plan: Plan) -> str:
    """*plan* in as few words as say it all.

    >>> short(Plan(dp=2, tp=8, pp=4, sp=True, zero=1, schedule="interleaved", interleave=2))
    'dp2 tp8 sp pp4x2 mb1 zero1'
    """
    words = [f"dp{plan.dp}", f"tp{plan.tp}" + " sp" * plan.sp]
    words += [f"pp{plan.pp}" + (f"x{plan.interleave}" if plan.interleave > 1 else "")] * (plan.pp > 1)
    words += [f"ep{plan.ep}"] * (plan.ep > 1) + [f"mb{plan.microbatch}"] + [f"zero{plan.zero}"] * (plan.zero > 0)
    words += ["gpipe"] * (plan.schedule == "gpipe") + [plan.recompute] * (plan.recompute != "none")
    return " ".join(words)


def reason(run: Run) -> str:
    """The largest parts of the step: resources, exposed communication by parallelism, bubble."""
    parts = {name: ps for name, ps in run.step.bounds.items() if name != Resource.INTERCONNECT}
    parts |= {f"{kind} exposed": ps for kind, ps in run.step.exposed.items()}
    largest = sorted(parts, key=lambda name: -parts[name])[:_SHOWN]
    return ", ".join(f"{name} {percent(parts[name] / run.step.time)}" for name in largest if parts[name])


def _naive(ranking: Ranking) -> Table:
    table = plain_table("plan", "the best of them", ">a step", ">against best", ">memory", "because")
    played = {run.plan: run for run in ranking.best}
    for each in ranking.naive:
        found = each.estimate
        run = played.get(found.plan)
        if run is not None:  # it is among the best: one plan has one set of numbers
            place = 1 + ranking.best.index(run)
            memory = decimal(run.memory[run.fullest].total, "B")
            against = f"{run.step.time / ranking.best[0].step.time:.2f}x"
            because = "it does not: it is the best" if place == 1 else f"it hardly does: it is number {place}"
            table.add_row(each.name, short(run.plan), seconds(run.step.time, 3), against, memory, because)
            continue
        times = f"{found.time / ranking.fastest:.2f}x"
        memory = decimal(found.memory, "B")
        because = _because(found, ranking.on.chip.dram.capacity)
        table.add_row(each.name, short(found.plan), seconds(found.time, 3), times, memory, because)
    return table


def _because(found: Estimate, capacity: int) -> str:
    if found.memory > capacity:
        return f"does not fit: {decimal(found.memory - capacity, 'B')} too much"
    parts = {BUBBLE: found.bubble, "exposed communication": found.exposed}
    told = [f"{name} {percent(ps / found.time)}" for name, ps in parts.items() if ps > found.time / 50]
    if found.plan.recompute == "full":
        told.append("computes each forward pass twice")
    return ", ".join(told) or "it does not: it is near the best"
