"""What a simulation found: times, memory, and the resource that binds, per operator, per module and for the run."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from simulator.costs import Cost, Unit
from simulator.energy import clock_of, full_clock, idle_energy, operator_energy
from simulator.engine import Schedule
from simulator.graph import Operator, OperatorGraph, Storage
from simulator.hardware import Chip
from simulator.memory import MemoryTimeline
from simulator.passes.reports import PassReport
from simulator.program import Mode
from simulator.units import AJ_PER_JOULE, PS_PER_SECOND
from simulator.variants import Resource


@dataclass(frozen=True, slots=True)
class OperatorResult:
    """One operator of the graph with what became of it; *start* and *end* in picoseconds.

    level  the memory level whose bandwidth binds, such as ``hbm``; empty where something else does.
    """

    operator: Operator
    cost: Cost
    bound: Resource
    level: str
    start: int
    end: int
    chip: Chip

    @property
    def energy(self) -> int | None:
        """Attojoules above idle; None if the chip's energies are not known."""
        return operator_energy(self.operator, self.cost, self.chip)

    @property
    def name(self) -> str:
        return self.operator.name

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / PS_PER_SECOND

    @property
    def flops_per_second(self) -> float:
        """FLOP per second reached; 0 for an operator that takes no time."""
        return self.operator.flops / self.seconds if self.end > self.start else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Off-chip bytes per second reached, re-fetches included."""
        return self.cost.traffic / self.seconds if self.end > self.start else 0.0


@dataclass(frozen=True, slots=True)
class ModuleResult:
    """All operators of one module of the user's program, its submodules not included.

    time    picoseconds of all its operators, one after another; *bounds* the same by binding resource.
    """

    module: str
    operators: int
    time: int
    flops: int
    traffic: int
    bounds: Mapping[Resource, int]

    @property
    def seconds(self) -> float:
        return self.time / PS_PER_SECOND

    @property
    def bound(self) -> Resource:
        """The resource that binds for the largest part of the time."""
        return max(self.bounds, key=lambda resource: self.bounds[resource])


@dataclass(frozen=True)  # no slots: the sum of all energies is kept once it is known
class Result:
    """One run of a graph on a chip.

    time        picoseconds from the start of the run to its end, spill included.
    bounds_ps   the same time by the resource that binds along the critical path; the parts sum to *time*.
    savings     picoseconds that the run would save if the resource were infinite, all else equal.
    level_savings  the same for the bandwidth of each memory level alone.
    elasticity  relative change of time for a relative change of the resource: -0.6 means that 10 % more of it
                makes the run about 6 % shorter.
    overflow    bytes by which the peak exceeds the device memory; 0 if the run fits.
    spill       picoseconds in which the overflow crosses the link to the host, part of *time*.
    passes      what each pass did to the program before it ran, in compile mode; *graph* is what they left.
    """

    graph: OperatorGraph
    chip: Chip
    mode: Mode
    fidelity: str
    costs: Sequence[Cost]
    schedule: Schedule
    operator_bounds: Sequence[Resource]
    operator_levels: Sequence[str]
    memory: MemoryTimeline
    time: int
    bounds_ps: Mapping[Resource, int]
    savings: Mapping[Resource, int]
    level_savings: Mapping[str, int]
    elasticity: Mapping[Resource, float]
    overflow: int
    spill: int
    passes: tuple[PassReport, ...] = ()

    @property
    def seconds(self) -> float:
        return self.time / PS_PER_SECOND

    @property
    def bounds(self) -> dict[str, float]:
        """Seconds by binding resource; they add up to *seconds*."""
        return {str(resource): ps / PS_PER_SECOND for resource, ps in self.bounds_ps.items()}

    @property
    def bound(self) -> Resource:
        """The verdict: capacity if the run does not fit, otherwise the resource whose absence would save most."""
        if self.overflow:
            return Resource.CAPACITY
        return max(self.savings, key=lambda resource: (self.savings[resource], self.bounds_ps[resource]))

    @property
    def bandwidth_level(self) -> str:
        """The memory level whose bandwidth alone would save most; the off-chip one if none saves anything."""
        best = max(self.level_savings, key=lambda name: self.level_savings[name], default="")
        return best if best and self.level_savings[best] > 0 else self.chip.dram_name

    @property
    def peak_memory_bytes(self) -> int:
        return self.memory.peak

    @cached_property
    def energy(self) -> int | None:
        """Attojoules of the run, idle power included; None if the chip's energies are not known.

        What spills crosses the host link at idle power: the host is not part of the chip.
        """
        total = idle_energy(self.time, self.chip)
        for operator, cost in zip(self.graph.operators, self.costs, strict=True):
            each = operator_energy(operator, cost, self.chip)
            if total is None or each is None:
                return None
            total += each
        return total

    @property
    def energy_joules(self) -> float | None:
        return None if self.energy is None else self.energy / AJ_PER_JOULE

    @property
    def average_watts(self) -> float | None:
        """Mean power of the run; None if the chip's energies are not known or nothing takes time."""
        return None if self.energy_joules is None or not self.time else self.energy_joules / self.seconds

    @property
    def clock_hertz(self) -> float:
        """Mean clock of the cores, weighted by time; below the full one where the power cap holds it down."""
        full = full_clock(self.chip)
        lost = sum((full - clock_of(cost, self.chip)) * cost.time for cost in self.costs if cost.clock < 1)
        return full - lost / self.time if self.time else full

    @property
    def waiting(self) -> int:
        """Picoseconds in which no operator runs: gaps, waits for the host, and what spills over the host link."""
        last, idle = 0, 0
        for start, end in sorted(zip(self.schedule.start, self.schedule.end, strict=True)):
            idle += max(0, start - last)
            last = max(last, end)
        return idle + self.time - last

    def held_at_peak(self) -> list[Storage]:
        """Storages that are alive at the peak, largest first; equal ones in the order of the graph."""
        storages = [self.graph.storages[index] for index in self.memory.held.tolist()]
        return sorted(storages, key=lambda each: -each.nbytes)

    @property
    def operators(self) -> "OperatorResults":
        return OperatorResults(self)

    @property
    def modules(self) -> list[ModuleResult]:
        """One entry for each module that ran an operator, in order of first appearance."""
        return _modules(self.operators)

    @property
    def uncovered(self) -> Mapping[str, int]:
        """Operators that no rule knew, and how often they ran."""
        return self.graph.uncovered

    @property
    def uncovered_share(self) -> float:
        """Share of the graph's bytes that belongs to operators without a rule."""
        total = sum(op.nbytes for op in self.graph)
        return sum(op.nbytes for op in self.graph if op.target in self.uncovered) / total if total else 0.0

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of the run over its time; None if the workload does not say how many there are."""
        tokens = self.graph.workload.tokens
        return tokens / self.seconds if tokens and self.time else None

    @property
    def mfu(self) -> float:
        """Model FLOPs over time x dense peak of the weights' type (multiply-add = 2, recomputation left out)."""
        peak = self.chip.peak(self.graph.workload.dtype)
        return self.graph.model_flops / (self.seconds * peak) if self.time else 0.0

    @property
    def traffic(self) -> int:
        """Bytes moved to and from the off-chip memory, re-fetches included and cache hits left out."""
        return sum(cost.traffic for cost in self.costs)

    @property
    def bandwidth_use(self) -> float:
        """Off-chip traffic over time x data-sheet bandwidth."""
        return self.traffic / (self.seconds * self.chip.dram_bandwidth) if self.time else 0.0

    def save_timeline(self, path: str | Path) -> None:
        """Write a trace that Perfetto opens, one track a unit; OutputError if *path* cannot be written."""
        from simulator.timeline import write_timeline  # noqa: PLC0415  timeline imports Result

        write_timeline(self, Path(path))

    def save_json(self, path: str | Path) -> None:
        """Write the documented JSON object; OutputError if *path* cannot be written."""
        from simulator.result_json import write_result  # noqa: PLC0415  result_json imports Result

        write_result(self, Path(path))

    def save_html(self, path: str | Path) -> None:
        """Write one self-contained page with plots; OutputError if *path* cannot be written."""
        from simulator.report import write_report  # noqa: PLC0415  loads matplotlib

        write_report(self, Path(path))


class OperatorResults(Sequence[OperatorResult]):
    """The operators of a result, made one at a time when asked for: a run of a million needs no second copy."""

    def __init__(self, result: Result) -> None:
        self._result = result

    def __len__(self) -> int:
        return len(self._result.graph)

    def __getitem__(self, index: int) -> OperatorResult:  # type: ignore[override]
        result = self._result
        return OperatorResult(
            result.graph.operators[index],
            result.costs[index],
            result.operator_bounds[index],
            result.operator_levels[index],
            result.schedule.start[index],
            result.schedule.end[index],
            result.chip,
        )

    def __iter__(self) -> Iterator[OperatorResult]:
        return (self[index] for index in range(len(self)))

    def slowest(self, count: int) -> list[OperatorResult]:
        """Return the *count* operators that take longest, longest first; equal ones in program order."""
        return sorted(self, key=lambda each: (each.start - each.end, each.operator.id))[:count]


def _modules(operators: Sequence[OperatorResult]) -> list[ModuleResult]:
    groups: defaultdict[str, list[OperatorResult]] = defaultdict(list)
    for each in operators:
        groups[each.operator.module].append(each)
    return [summarise(module, members) for module, members in groups.items()]


def summarise(module: str, members: Sequence[OperatorResult]) -> ModuleResult:
    """Add up *members* under the name *module*."""
    bounds: defaultdict[Resource, int] = defaultdict(int)
    for each in members:
        bounds[each.bound] += each.end - each.start
    return ModuleResult(
        module=module,
        operators=len(members),
        time=sum(bounds.values()),
        flops=sum(each.operator.flops for each in members),
        traffic=sum(each.cost.traffic for each in members),
        bounds=dict(bounds),
    )


def busy_ps(result: Result) -> dict[Unit, int]:
    """Return how long each unit was busy, in picoseconds."""
    busy: defaultdict[Unit, int] = defaultdict(int)
    for each in result.operators:
        busy[each.cost.unit] += each.end - each.start
    for _, start, end in result.schedule.prefetch:
        busy[Unit.DMA] += end - start
    return dict(busy)
