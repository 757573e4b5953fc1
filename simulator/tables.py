"""A result as rows for people: modules, operators, phases, bounds, memory; the terminal and the page print the same.

Repeated layers are one row: ``blocks.0.attn.q`` to ``blocks.31.attn.q`` become ``blocks.*.attn.q`` x32.  Layers are
taken as repeated if their paths differ in indices only and their heaviest operator has the same size, so that the
members of an ``nn.Sequential`` that do different work stay apart.

On a stream the rows of a table, with the waits between operators and the spill, add up to the time of the run.
Where units work side by side they add up to the work of all units, which is more than the time of the run.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from simulator.graph import Phase, Role
from simulator.hardware import Execution
from simulator.headline import percent
from simulator.layers import every_layer, labels, layers, operator_name, shape_of, size_of
from simulator.program import Mode
from simulator.result import OperatorResult, Result
from simulator.units import PS_PER_SECOND
from simulator.variants import Resource


@dataclass(frozen=True, slots=True)
class Row:
    """Operators that share one line of a table; times in picoseconds.

    name       of the module or operator; ``*`` stands for the index of a repeated layer.
    repeats    modules (in a table of modules) or operators (in a table of operators) that the line stands for.
    operators  how many there are in all; 0 for a wait or a spill.
    share      of the table's total time, between 0 and 1; all rows of a table together make 1.
    traffic    bytes to and from the off-chip memory; *bounds* and *phases* split the time.
    shape      sizes of an operator and *detail* how the model timed it; empty for modules.
    """

    name: str
    repeats: int
    operators: int
    time: int
    share: float
    flops: int
    traffic: int
    bounds: Mapping[Resource, int]
    phases: Mapping[Phase, int] = field(default_factory=dict)
    shape: str = ""
    detail: str = ""

    @property
    def bound(self) -> Resource:
        """The resource that binds for most of the time."""
        return max(self.bounds, key=lambda resource: self.bounds[resource])

    @property
    def bound_share(self) -> float:
        """Share of the line's time that :attr:`bound` binds."""
        return self.bounds[self.bound] / self.time if self.time else 1.0

    @property
    def flops_per_second(self) -> float:
        return self.flops * PS_PER_SECOND / self.time if self.time else 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.traffic * PS_PER_SECOND / self.time if self.time else 0.0

    @property
    def intensity(self) -> float:
        """FLOP per off-chip byte; 0 where nothing is moved."""
        return self.flops / self.traffic if self.traffic else 0.0


@dataclass(frozen=True, slots=True)
class TimeScale:
    """One unit for a column of times, so that magnitudes can be compared at a glance."""

    unit: str
    ps: int
    decimals: int

    def text(self, time: int) -> str:
        """Write *time*, in picoseconds, without the unit; what rounds to nothing says so.

        >>> scale = time_scale([895_200_000, 27_310])
        >>> scale.unit, scale.text(895_200_000), scale.text(27_310), scale.text(310), scale.text(0)
        ('us', '895.20', '0.03', '<0.01', '0')
        """
        if not time:
            return "0"
        shown = f"{time / self.ps:.{self.decimals}f}"
        return shown if float(shown) else f"<{10**-self.decimals:.{self.decimals}f}"


@dataclass(frozen=True, slots=True)
class BoundRow:
    """One resource: the time that it binds on the critical path, and what more of it would bring.

    saving      share of the run's time that an infinite amount of it would save.
    elasticity  relative change of time for a relative change of the resource.
    """

    resource: Resource
    time: int
    share: float
    saving: float
    elasticity: float


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """Bytes of one role at the moment of the peak."""

    role: Role
    nbytes: int
    share: float


@dataclass(frozen=True, slots=True)
class HeldRow:
    """*count* storages of one name, layers apart, that are alive at the peak, with their bytes."""

    name: str
    role: Role
    count: int
    nbytes: int
    share: float


@dataclass(frozen=True, slots=True)
class UncoveredRow:
    """An operator that no rule knew: how often it ran, its bytes and their share of the graph's."""

    target: str
    count: int
    nbytes: int
    share: float


def time_scale(times: Iterable[int]) -> TimeScale:
    """Return the unit in which the largest of *times* reads best, with five significant digits for it."""
    largest = max(times, default=0)
    for unit, ps in (("s", PS_PER_SECOND), ("ms", 10**9), ("us", 10**6), ("ns", 10**3)):
        if largest >= ps:
            return TimeScale(unit, ps, 5 - max(2, len(str(largest // ps))))
    return TimeScale("ps", 1, 0)


def module_rows(result: Result) -> list[Row]:
    """Modules in program order, repeated layers as one row, then the waits and the spill."""
    total = total_ps(result)
    groups = layers(result)
    names = labels(groups.values())
    rows = [
        _row(names[index], len(modules), [each for members in modules.values() for each in members], total)
        for index, modules in enumerate(groups.values())
    ]
    return rows + waiting_rows(result)


def operator_rows(result: Result, count: int | None = None) -> list[Row]:
    """The *count* most expensive operators (None: all), identical ones of repeated layers as one row."""
    total = total_ps(result)
    found = []
    for modules in layers(result).values():
        alike: defaultdict[Hashable, list[OperatorResult]] = defaultdict(list)
        for members in modules.values():
            for each in members:
                alike[(each.operator.target, each.operator.phase, *size_of(each.operator))].append(each)
        found += list(alike.values())
    groups = [{each.operator.module: [each] for each in members} for members in found]
    names = labels(groups)
    rows = [
        _row(operator_name(label, members[0].operator), len(members), members, total)
        for label, members in zip(names, found, strict=True)
    ]
    return sorted(rows, key=lambda row: -row.time)[:count]


def bound_text(row: Row) -> str:
    """The resource that binds a line, with its share where others bind parts of it."""
    return str(row.bound) if row.bound_share > 0.9995 else f"{row.bound} {percent(row.bound_share)}"


def phase_rows(result: Result) -> list[Row]:
    """Forward, backward, recompute and optimizer, as far as they occur."""
    groups: dict[Phase, list[OperatorResult]] = {phase: [] for phase in Phase}
    for each in result.operators:
        groups[each.operator.phase].append(each)
    total = total_ps(result)
    return [_row(str(phase), 1, members, total) for phase, members in groups.items() if members] + waiting_rows(result)


def total_ps(result: Result) -> int:
    """What the rows of a table add up to: the time of the run on a stream, the work of all units otherwise."""
    work = _work_ps(result) + result.spill
    return max(result.time, work) if result.chip.execution is Execution.STREAM else work


def waiting_rows(result: Result) -> list[Row]:
    """The part of a run in which no operator runs: waits of a stream, and the spill over the host link."""
    total = total_ps(result)
    waits = total - _work_ps(result) - result.spill
    reason = "gaps between operators" if result.mode is Mode.GRAPH else "waiting for the host"
    parts = ((f"({reason})", waits, Resource.LAUNCH), ("(spill over the host link)", result.spill, Resource.CAPACITY))
    return [Row(name, 1, 0, time, _share(time, total), 0, 0, {bound: time}) for name, time, bound in parts if time]


def bound_rows(result: Result) -> list[BoundRow]:
    """Every resource that binds or would help, most binding first; the times add up to that of the run."""
    rows = [
        BoundRow(
            resource,
            result.bounds_ps.get(resource, 0),
            _share(result.bounds_ps.get(resource, 0), result.time),
            _share(result.savings.get(resource, 0), result.time),
            result.elasticity.get(resource, 0.0),
        )
        for resource in Resource
    ]
    used = [row for row in rows if row.time or row.saving >= 0.0005 or abs(row.elasticity) >= 0.005]
    return sorted(used, key=lambda row: -row.time)


def memory_rows(result: Result) -> list[MemoryRow]:
    """What the device memory holds at the peak, largest first; the bytes add up to the peak."""
    found = result.memory.at_peak()
    if result.memory.peak_operator is None:
        found = {role: result.graph.bytes_of(role) for role in Role if role.resident}
    rows = [MemoryRow(role, nbytes, _share(nbytes, result.memory.peak)) for role, nbytes in found.items() if nbytes]
    return sorted(rows, key=lambda row: -row.nbytes)


def held_rows(result: Result, count: int) -> list[HeldRow]:
    """The *count* largest groups of storages alive at the peak; those of all layers together."""
    groups: defaultdict[tuple[Role, str], list[int]] = defaultdict(list)
    for each in result.held_at_peak():
        groups[each.role, every_layer(each.name)].append(each.nbytes)
    rows = [
        HeldRow(name, role, len(sizes), sum(sizes), _share(sum(sizes), result.memory.peak))
        for (role, name), sizes in groups.items()
    ]
    return sorted(rows, key=lambda row: -row.nbytes)[:count]


def uncovered_rows(result: Result) -> list[UncoveredRow]:
    """Operators without a rule, most bytes first."""
    total = sum(op.nbytes for op in result.graph)
    nbytes = dict.fromkeys(result.uncovered, 0)
    for op in result.graph:
        if op.target in nbytes:
            nbytes[op.target] += op.nbytes
    rows = [UncoveredRow(name, result.uncovered[name], size, _share(size, total)) for name, size in nbytes.items()]
    return sorted(rows, key=lambda row: -row.nbytes)


def _work_ps(result: Result) -> int:
    return sum(result.schedule.end) - sum(result.schedule.start)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _row(name: str, repeats: int, members: Sequence[OperatorResult], total: int) -> Row:
    bounds: defaultdict[Resource, int] = defaultdict(int)
    phases: defaultdict[Phase, int] = defaultdict(int)
    for each in members:
        bounds[each.bound] += each.end - each.start
        phases[each.operator.phase] += each.end - each.start
    time = sum(bounds.values())
    return Row(
        name=name,
        repeats=repeats,
        operators=len(members),
        time=time,
        share=_share(time, total),
        flops=sum(each.operator.flops for each in members),
        traffic=sum(each.cost.traffic for each in members),
        bounds=dict(bounds),
        phases=dict(phases),
        shape=shape_of(members[0].operator),
        detail=members[0].cost.detail,
    )
