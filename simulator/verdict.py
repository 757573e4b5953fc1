"""Verdicts: which resource binds an operator and a run, found by replay and not by guess.

Each resource in turn is made practically infinite and everything is played again; the resource that saves most
time is the bound.  Where nothing overlaps, the time of a run is the sum of its operators' times and of the waits
between them; where units overlap, only what lies on the critical path counts, so the seconds by resource add up to
the run's time in either case.
"""

from collections.abc import Mapping, Sequence

from simulator.costs import Cost, Unit
from simulator.engine import Schedule
from simulator.graph import OperatorGraph
from simulator.hardware import Chip, Execution
from simulator.variants import Resource

_ORDER = (Resource.COMPUTE, Resource.BANDWIDTH, Resource.LAUNCH, Resource.CAPACITY, Resource.INTERCONNECT)


def operator_bounds(costs: Sequence[Cost], without: Mapping[Resource, Sequence[Cost]]) -> list[Resource]:
    """Return for each operator the resource whose absence saves it most time.

    *without* maps a resource to the costs on the same chip with that resource infinite.  An operator that no single
    resource would speed up (two bind equally) goes to the larger of its arithmetic and its memory time.
    """
    known: dict[tuple[int, ...], Resource] = {}
    bounds = []
    for index, cost in enumerate(costs):
        others = [without[resource][index] if resource in without else cost for resource in _ORDER]
        key = (id(cost), *map(id, others))
        if key not in known:
            known[key] = _bound(cost, others)
        bounds.append(known[key])
    return bounds


def operator_levels(
    costs: Sequence[Cost], without: Mapping[str, Sequence[Cost]], bounds: Sequence[Resource]
) -> list[str]:
    """Return for each operator that bandwidth binds the memory level whose bandwidth alone saves it most."""
    known: dict[tuple[int, ...], str] = {}
    levels = []
    for index, (cost, bound) in enumerate(zip(costs, bounds, strict=True)):
        if bound is not Resource.BANDWIDTH:
            levels.append("")
            continue
        key = (id(cost), *(id(others[index]) for others in without.values()))
        if key not in known:
            times = {name: others[index].time for name, others in without.items()}
            known[key] = min(times, key=times.__getitem__)
        levels.append(known[key])
    return levels


def _bound(cost: Cost, others: Sequence[Cost]) -> Resource:
    savings = [cost.time - other.time for other in others]
    if max(savings) > 0:
        return _ORDER[savings.index(max(savings))]
    return Resource.COMPUTE if cost.compute >= cost.memory else Resource.BANDWIDTH


def seconds_by_resource(
    graph: OperatorGraph, costs: Sequence[Cost], schedule: Schedule, bounds: Sequence[Resource], chip: Chip
) -> dict[Resource, int]:
    """Attribute every picosecond of the run to one resource along the critical path; they sum to the makespan.

    A wait before an operator belongs to the launch path: the host, or the gap between kernels.
    """
    total = dict.fromkeys(_ORDER, 0)
    before = _previous_on_queue(costs, chip)
    index = _latest(range(len(graph)), schedule)
    while index is not None:
        total[bounds[index]] += schedule.end[index] - schedule.start[index]
        previous = before[index]
        sources = graph.operators[index].deps + ((previous,) if previous >= 0 else ())
        earlier = _latest(sources, schedule)
        wait = schedule.start[index] - (schedule.end[earlier] if earlier is not None else 0)
        total[Resource.LAUNCH] += wait
        index = earlier
    return total


def _previous_on_queue(costs: Sequence[Cost], chip: Chip) -> list[int]:
    """Return for each operator the one before it on its queue, or -1."""
    if chip.execution is Execution.STREAM:
        return list(range(-1, len(costs) - 1))
    latest: dict[Unit, int] = {}
    before = []
    for index, cost in enumerate(costs):
        before.append(latest.get(cost.unit, -1))
        latest[cost.unit] = index
    return before


def _latest(operators: Sequence[int], schedule: Schedule) -> int | None:
    """Return the operator that ends last, or None."""
    return max(operators, key=lambda index: (schedule.end[index], index), default=None)
