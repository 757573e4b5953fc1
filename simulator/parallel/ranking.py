"""The search: estimate every plan, play the best in full, and say why the obvious ones lose."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from simulator.errors import UsageError
from simulator.graph import OperatorGraph
from simulator.output import write_text
from simulator.parallel.plan import Plan, Shape
from simulator.parallel.plans import plans
from simulator.parallel.result import Run
from simulator.parallel.run import Machine, training_run
from simulator.parallel.search import Estimate, Estimator, Tracer
from simulator.parallel.shard import shard
from simulator.parallel.write import as_dict
from simulator.units import PS_PER_SECOND
from simulator.version import VERSION

_TRIED = 2  # times as many plans are played as are asked for, if memory turns out larger than estimated


@dataclass(frozen=True, slots=True)
class Naive:
    """The best plan of a kind that one would try first, as estimated."""

    name: str
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Ranking:
    """*best* plans first, played in full; *considered* plans were estimated, *fitting* of them fit.

    fastest  of the estimates that fit: what *naive* ones, estimated as well, are compared with.
    """

    on: Machine
    considered: int
    fitting: int
    fastest: int
    best: Sequence[Run]
    naive: Sequence[Naive]


def rank(on: Machine, shape: Shape, few: Tracer, whole: Tracer, batch: int, count: int) -> Ranking:
    """Rank the plans of all chips of *on* for the model of *shape* and a global *batch*.

    few, whole  a training step of so many sequences: of a few layers, for the estimates, and of the whole model.
    Raises UsageError if no plan divides the model, or none fits.
    """
    estimator = Estimator(on, few, shape.layers, batch)
    found = [estimator.estimate(plan) for plan in plans(shape, on.system.chips, batch)]
    if not found:
        raise UsageError(
            f"no plan of {on.system.chips} chips divides {shape.layers} layers, {shape.heads} heads "
            f"and a batch of {batch}"
        )
    capacity = on.chip.dram.capacity
    fitting = sorted((each for each in found if each.memory <= capacity), key=lambda each: (each.time, each.memory))
    if not fitting:
        least = min(found, key=lambda each: each.memory)
        raise UsageError(
            f"none of {len(found)} plans fits: the smallest needs {least.memory} bytes of {capacity} on a chip "
            f"({least.plan}, zero={least.plan.zero}, recompute={least.plan.recompute})"
        )
    played = _played(on, _families(fitting), whole, batch, count)
    return Ranking(on, len(found), len(fitting), fitting[0].time, played, _naive(found, on.system.chips, capacity))


def _families(estimates: Iterable[Estimate]) -> list[Plan]:
    """The best plan of each way of dividing, in order: variants of one would fill the list."""
    best: dict[tuple[int, ...], Plan] = {}
    for each in estimates:
        plan = each.plan
        best.setdefault((plan.dp, plan.tp, plan.pp, plan.ep, plan.microbatch), plan)
    return list(best.values())


def _played(on: Machine, candidates: Sequence[Plan], whole: Tracer, batch: int, count: int) -> list[Run]:
    """The first *count* of *candidates* that fit when played in full, by time; what does not fit if nothing does."""
    graphs: dict[int, OperatorGraph] = {}
    found: list[Run] = []
    for plan in candidates[: _TRIED * count]:
        if plan.microbatch not in graphs:
            graphs[plan.microbatch] = whole(plan.microbatch)
        graph = graphs[plan.microbatch]
        found.append(training_run(shard(graph, plan), plan, on, graph.workload, graph.model_flops, batch, ask=False))
        if sum(run.fits for run in found) == count:
            break
    fits = [run for run in found if run.fits] or found
    return sorted(fits, key=lambda run: run.step.time)[:count]


def _naive(found: Sequence[Estimate], world: int, capacity: int) -> list[Naive]:
    """The best of each kind; one that fits, if any does."""
    widest = max(each.plan.tp for each in found)
    deepest = max(each.plan.pp for each in found)
    kinds: dict[str, Callable[[Plan], bool]] = {
        "data parallel alone": lambda plan: plan.dp == world and not plan.zero,
        "ZeRO-3 alone": lambda plan: plan.dp == world and plan.zero == 3,
        f"widest tensor parallelism ({widest})": lambda plan: plan.tp == widest,
        f"deepest pipeline ({deepest})": lambda plan: plan.pp == deepest,
        "no tensor parallelism": lambda plan: plan.tp == 1,
        "no pipeline": lambda plan: plan.pp == 1,
        "no recomputation": lambda plan: plan.recompute == "none",
    }
    best = []
    for name, belongs in kinds.items():
        of_kind = [each for each in found if belongs(each.plan)]
        if of_kind:
            best.append(Naive(name, min(of_kind, key=lambda each: (max(0, each.memory - capacity), each.time))))
    return best


def write_ranking(ranking: Ranking, path: Path) -> None:
    """Write *ranking* as JSON: ``best`` as `xpusim run --json`, ``naive`` as estimated."""
    naive = [
        {
            "name": each.name,
            "plan": str(each.estimate.plan),
            "seconds": each.estimate.time / PS_PER_SECOND,
            "memory_bytes": each.estimate.memory,
        }
        for each in ranking.naive
    ]
    found = {
        "version": VERSION,
        "considered": ranking.considered,
        "fitting": ranking.fitting,
        "best": [as_dict(run) for run in ranking.best],
        "naive": naive,
    }
    write_text(path, json.dumps(found, indent=1, allow_nan=False) + "\n")
