"""From a graph and a chip to a result: cost, place, play, judge."""

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.costs import Cost, compute_model
from simulator.engine import Schedule, play
from simulator.graph import OperatorGraph
from simulator.hardware import Chip
from simulator.memory import library_workspace, memory_timeline
from simulator.passes import INDUCTOR, Compiled, PassReport, compile_graph
from simulator.program import Mode, mode_of, place
from simulator.result import Result
from simulator.units import transfer_ps
from simulator.variants import INFINITE, Resource, scaled, without_limit
from simulator.verdict import operator_bounds, operator_levels, seconds_by_resource

_STEP = 1.1  # ten per cent more of a resource: large enough to be exact in integers, small enough to be local


def simulate(graph: OperatorGraph, chip: Chip, mode: str = "graph", fidelity: str = "tile") -> Result:
    """Run *graph* on *chip* and say how long it takes, what it needs and what binds it.

    mode      eager: the host dispatches every operator; graph: submitted once, as a captured graph is; compile: fused
              by `simulator.passes` as torch.compile would, the result holds the new graph and what each pass did.
    fidelity  roofline (the floor), tile (waves of tiles, caches, launches), or another registered model.
    Raises UsageError for an unknown mode or fidelity and DeadlockError if the graph cannot finish.
    """
    how = mode_of(mode)
    passes: tuple[PassReport, ...] = ()
    if how is Mode.COMPILE:
        compiled = compiled_graph(graph, chip, fidelity)
        graph, passes = compiled.graph, compiled.reports
    run = _run(graph, chip, how, fidelity)
    replays = {resource: _run(graph, scaled(chip, resource, INFINITE), how, fidelity) for resource in Resource}
    bounds = operator_bounds(run.costs, {resource: replay.costs for resource, replay in replays.items()})
    levels = {name: _run(graph, without_limit(chip, name), how, fidelity) for name in _limited(chip)}
    memory = memory_timeline(
        graph,
        run.schedule.start,
        library_workspace(graph, chip, how is Mode.GRAPH),
        chip.overheads.allocation,
    )
    overflow = max(0, memory.peak - chip.dram.capacity)
    spill = _spill_ps(graph, chip, overflow)
    by_resource = seconds_by_resource(graph, run.costs, run.schedule, bounds, chip)
    by_resource[Resource.CAPACITY] += spill
    savings = {resource: run.time - replay.time for resource, replay in replays.items()}
    savings[Resource.CAPACITY] += spill
    return Result(
        graph=graph,
        chip=chip,
        mode=how,
        fidelity=fidelity,
        costs=run.costs,
        schedule=run.schedule,
        operator_bounds=bounds,
        operator_levels=operator_levels(run.costs, {name: each.costs for name, each in levels.items()}, bounds),
        memory=memory,
        time=run.time + spill,
        bounds_ps=by_resource,
        savings=savings,
        level_savings={name: run.time - each.time for name, each in levels.items()},
        elasticity=_elasticity(graph, chip, how, fidelity, run.time + spill, memory.peak),
        overflow=overflow,
        spill=spill,
        passes=passes,
    )


def compiled_graph(
    graph: OperatorGraph, chip: Chip, fidelity: str = "tile", passes: Sequence[str] = INDUCTOR
) -> Compiled:
    """Run *passes* over *graph* with the model of *chip* as judge; UsageError for an unknown pass or fidelity.

    Times in the reports are those of a compiled program, launches by the host included.
    """

    def judge(each: OperatorGraph) -> tuple[int, str]:
        time = _run(each, chip, Mode.COMPILE, fidelity).time
        saved = {
            resource: time - _run(each, scaled(chip, resource, INFINITE), Mode.COMPILE, fidelity).time
            for resource in Resource
        }
        return time, str(max(saved, key=lambda resource: saved[resource]))

    return compile_graph(graph, compute_model(fidelity, chip), judge, passes, chip.cores, chip.dram.capacity)


def _limited(chip: Chip) -> list[str]:
    return [name for name, level in chip.memory.items() if level.bandwidth]


@dataclass(frozen=True, slots=True)
class _Run:
    costs: Sequence[Cost]
    schedule: Schedule

    @property
    def time(self) -> int:
        return self.schedule.makespan


def _run(graph: OperatorGraph, chip: Chip, mode: Mode, fidelity: str) -> _Run:
    model = compute_model(fidelity, chip)
    costs = model.costs(graph)
    around = scaled(chip, Resource.LAUNCH, INFINITE) if model.ideal else chip
    return _Run(costs, play(graph, costs, around, place(graph, costs, around, mode)))


def _elasticity(
    graph: OperatorGraph, chip: Chip, mode: Mode, fidelity: str, time: int, peak: int
) -> dict[Resource, float]:
    """Relative change of *time*, spill included, for a relative change of each resource, by finite difference.

    More capacity is more of the device memory too, if the *peak* does not fit in it.
    """
    if not time:
        return dict.fromkeys(Resource, 0.0)
    found = {}
    for resource in Resource:
        room = int(chip.dram.capacity * (_STEP if resource is Resource.CAPACITY else 1))
        more = _run(graph, scaled(chip, resource, _STEP), mode, fidelity).time
        more += _spill_ps(graph, chip, max(0, peak - room))
        found[resource] = (more / time - 1) / (_STEP - 1)
    return found


def _spill_ps(graph: OperatorGraph, chip: Chip, overflow: int) -> int:
    """Time for what does not fit to come over the host link; training writes it back as well.

    A chip without a host link cannot spill: its result says by how much it does not fit, and the time is that of
    the same chip with enough memory.
    """
    if not overflow or chip.host_link is None:
        return 0
    crossings = 2 if graph.workload.phase == "train" else 1
    return transfer_ps(crossings * overflow, chip.host_link.bandwidth * chip.host_link.count)
