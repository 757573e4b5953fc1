"""How long a collective takes on a system: every algorithm that can do it, the fastest, and what holds it up."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hw_models.interconnect import algorithms, closed, trees
from hw_models.interconnect.candidates import ALGORITHMS, candidates, none_allowed, why_not
from hw_models.interconnect.fabric import Fabric
from hw_models.interconnect.group import Group
from hw_models.interconnect.plans import Plan, programs
from simulator.errors import UsageError, nearest
from simulator.links import Demand
from simulator.network import Load, Wire, play, rate
from simulator.system import Protocol, System
from simulator.units import transfer_ps

PLAYED_AT_MOST = 20_000  # messages; beyond, a closed form answers even where messages wait for each other
_NEARLY = 1.25  # how far a closed form may be off where messages wait: two that are nearer are both played,
_ALL_AT_MOST = 2_000  # if they are of no more messages than this, as in groups over few nodes


@dataclass(frozen=True, slots=True)
class Option:
    """One way to carry out a collective.

    time      picoseconds; *latency* of them would remain if links were infinitely fast.
    busiest   the link that is busy longest.
    how       "closed form" (nothing waits, so it is exact), "played" (messages on links), "estimate" (too many messages
              to play: busiest link and longest way).
    busy      picoseconds for which the fullest link of each kind is busy, by level and kind.
    """

    algorithm: str
    protocol: str
    time: int
    latency: int
    busiest: Load | None
    how: str
    events: int = 0
    busy: Mapping[str, int] = field(default_factory=dict)

    @property
    def utilisation(self) -> float:
        """Share of the time in which the busiest link is busy."""
        return self.busiest.busy / self.time if self.busiest and self.time else 0.0

    @property
    def link(self) -> str | None:
        """Level and kind of the busiest link, such as ``nvlink up``."""
        return _kind(self.busiest.wire) if self.busiest else None

    @property
    def demand(self) -> Demand:
        """What an engine needs to play the collective beside others: alone it takes *time*."""
        return Demand(self.time - max(self.busy.values(), default=0), self.busy)

    @property
    def bound(self) -> str:
        """``latency``, or ``bandwidth of LEVEL``: which of the two takes more of the time."""
        if self.busiest is None or self.latency * 2 > self.time:
            return "latency"
        return f"bandwidth of {self.busiest.wire.level}"


@dataclass(frozen=True, slots=True)
class Prediction:
    """All options of one collective, the fastest first; *size* in bytes as NCCL's tests count it."""

    system: System
    pattern: str
    size: int
    ranks: int
    options: tuple[Option, ...]

    @property
    def best(self) -> Option:
        return self.options[0]

    @property
    def algorithm_bandwidth(self) -> float:
        """Bytes of the buffer a second."""
        return rate(self.size, self.best.time)

    @property
    def bus_bandwidth(self) -> float:
        """The same times what of the buffer each rank has to send: comparable with a link, whatever the ranks."""
        return self.algorithm_bandwidth * bus_factor(self.pattern, self.ranks)


def bus_factor(pattern: str, ranks: int) -> float:
    """Bytes that a rank must send at least, over the buffer's (NCCL-tests, PERFORMANCE.md)."""
    if pattern == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return 1.0 if pattern in ("broadcast", "send_recv") else (ranks - 1) / ranks


def predict(
    system: System, pattern: str, size: int, ranks: Sequence[int] | None = None, algorithm: str | None = None
) -> Prediction:
    """Time of *pattern* with *size* bytes over *ranks* (all chips if None) by every algorithm, or by *algorithm* alone.

    Raises UsageError for a group, a pattern or an algorithm that is not to be had here.
    """
    group = Group(Fabric(system), range(system.chips) if ranks is None else ranks)
    _check(group, pattern, size, algorithm)
    if group.size == 1:
        return Prediction(system, pattern, size, 1, (Option("none", "-", 0, 0, None, "closed form"),))
    drafts = [
        _Draft(over, plan, name, protocol, _software(group, pattern, size) + protocol.start)
        for protocol in _protocols(system)
        for over in [group.at(protocol.efficiency, protocol.latency)]
        for name, plan in candidates(over, pattern, size, algorithm)
    ]
    if not drafts:
        if algorithm is None:
            raise UsageError(none_allowed(group, pattern))
        raise UsageError(f"{algorithm} cannot do {pattern} here: {why_not(group, pattern, algorithm)}")
    return Prediction(system, pattern, size, group.size, tuple(_settled(drafts)))


def _settled(drafts: Sequence["_Draft"]) -> list[Option]:
    """The fastest option of each algorithm, the fastest first.

    Closed forms first; where messages wait for each other, those are played that could still be the fastest: of each
    algorithm the protocol and the number of chunks that look best, and those that look nearly as good.
    """
    best: dict[str, Option] = {}
    looks: dict[str, int] = {}
    fastest: int | None = None
    for draft in sorted(drafts, key=lambda draft: draft.closed.time + draft.extra):
        known, look = best.get(draft.name), draft.closed.time + draft.extra
        looks.setdefault(draft.name, look)
        if known and (known.how != "played" or look > looks[draft.name] * _NEARLY or not draft.may_beat(known)):
            continue
        option = draft.option()
        if option.how == "estimate" and (fastest is None or draft.least < fastest):
            option = draft.played() or option
        if known is None or (option.how != "estimate" and option.time < known.time):
            best[draft.name] = option
        fastest = option.time if fastest is None else min(fastest, option.time)
    return sorted(best.values(), key=lambda option: option.time)


def _protocols(system: System) -> tuple["_Named", ...]:
    """Protocols of the system's library, or one that costs nothing."""
    if system.calibration is None:
        return (_Named("-", Protocol(latency=0, efficiency=1.0)),)
    return tuple(_Named(name, protocol) for name, protocol in system.calibration.protocols.items())


def _check(group: Group, pattern: str, size: int, algorithm: str | None) -> None:
    if pattern not in algorithms.PATTERNS:
        known = ", ".join(algorithms.PATTERNS)
        raise UsageError(f"unknown collective {pattern!r}{nearest(pattern, algorithms.PATTERNS)} (known: {known})")
    if algorithm is not None and algorithm not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise UsageError(f"unknown algorithm {algorithm!r}{nearest(algorithm, ALGORITHMS)} (known: {known})")
    if size <= 0:
        raise UsageError(f"a collective needs at least one byte, got {size}")
    group.fabric.axes(group.ranks)  # refuses chips that are not there
    if pattern == "send_recv" and group.size != 2:
        raise UsageError(f"send_recv goes from one rank to another: it needs two, got {group.size}")


@dataclass(frozen=True, slots=True)
class _Named:
    """A protocol of the library and its name."""

    name: str
    protocol: Protocol

    @property
    def efficiency(self) -> float:
        return self.protocol.efficiency

    @property
    def latency(self) -> int:
        return self.protocol.latency

    @property
    def start(self) -> int:
        return self.protocol.start


@dataclass
class _Draft:
    """One plan under one protocol; *extra* picoseconds of software come on top."""

    group: Group
    plan: Plan | trees.Tree
    name: str
    protocol: _Named
    extra: int

    @cached_property
    def closed(self) -> closed.Estimate:
        if isinstance(self.plan, trees.Tree):
            return self.plan.estimate(self.group.route, self.protocol.latency)
        return closed.estimate(self.plan, self.group.view, self.protocol.latency)

    @property
    def least(self) -> int:
        """Picoseconds that no way of playing the plan stays under."""
        if isinstance(self.plan, trees.Tree):
            fastest = max(level.bandwidth for _, level in self.group.fabric.system.levels)
            sending = transfer_ps(self.plan.least_sent, round(fastest * self.protocol.efficiency))
            return self.extra + max(self.closed.latency, sending)
        return self.extra + (self.closed.busiest.busy if self.closed.busiest else 0)

    @cached_property
    def folded(self) -> bool:
        """Whether one rank may be played for all."""
        return isinstance(self.plan, Plan) and self.group.foldable(self.plan)

    @property
    def messages(self) -> int:
        """Messages to play."""
        alone = self.folded or isinstance(self.plan, trees.Tree)
        return self.plan.messages * (1 if alone else self.group.size)

    def may_beat(self, played: Option) -> bool:
        """Whether it is worth finding out if this is faster than *played*."""
        return self.least < played.time and self.messages <= _ALL_AT_MOST

    def option(self) -> Option:
        """What the closed form says."""
        found = self.closed
        how = "closed form" if found.exact else "estimate"
        return self._option(found.time, found.loads, how)

    def played(self) -> Option | None:
        """What the messages say; None if there are too many."""
        if self.messages > PLAYED_AT_MOST:
            return None
        plan, folded = self.plan, self.folded
        route = self.group.folded_route if folded else self.group.route
        if isinstance(plan, trees.Tree):
            played = play(plan.programs(self.protocol.latency), route)
        else:
            played = play(programs(plan, self.protocol.latency, folded), route, folded)
        return self._option(played.time, played.loads, "played", played.events)

    def _option(self, time: int, loads: Mapping[Hashable, Load], how: str, events: int = 0) -> Option:
        latency = min(time, self.closed.latency) + self.extra
        busiest = max(loads.values(), key=lambda load: load.busy, default=None)
        busy: dict[str, int] = {}
        for load in loads.values():
            kind = _kind(load.wire)
            busy[kind] = min(time, max(busy.get(kind, 0), load.busy))
        return Option(self.name, self.protocol.name, time + self.extra, latency, busiest, how, events, busy)


def _kind(wire: Wire) -> str:
    """Level and kind of *wire*, such as ``nvlink up``."""
    assert isinstance(wire.name, tuple)  # Fabric names all wires so
    return " ".join(map(str, wire.name[:2]))


def _software(group: Group, pattern: str, size: int) -> int:
    """Launch, and the copy of what stays on the chip, which no link sees."""
    software = group.fabric.system.calibration
    if software is None:
        return 0
    share = size if pattern in ("broadcast", "send_recv") else algorithms.share(size, group.size)
    return software.launch + (transfer_ps(share, software.local) if software.local else 0)
