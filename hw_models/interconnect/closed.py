"""Closed forms: the time of a plan from its rounds, with no event; exact where no message waits for another's.

A round lasts as long as its busiest link is busy, and the latency of its longest way beyond that.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from hw_models.interconnect.plans import Lane, Peer, Places, Plan, Round
from simulator.network import Load, Wire

Route = Callable[[int, int], Sequence[Wire]]


class Seen(NamedTuple):
    """What is looked at of a round: some ranks and their ways; *exact* if no other rank could fare worse."""

    ranks: Sequence[int]
    route: Route
    exact: bool


View = Callable[[tuple[Peer, ...]], Seen]


@dataclass(slots=True)
class Estimate:
    """What a plan costs.

    time     picoseconds; *latency* of them would remain if all links were infinitely fast.
    loads    bytes and busy picoseconds of one wire of each sort.
    exact    whether nothing waits, so that the engine gives the same.
    """

    time: int
    latency: int
    loads: dict[Hashable, Load] = field(default_factory=dict)
    exact: bool = True

    @property
    def busiest(self) -> Load | None:
        return max(self.loads.values(), key=lambda load: load.busy, default=None)


class _Profile(NamedTuple):
    """Longest way in picoseconds, and what crosses one wire of each sort: (message of the round, whether it starts)."""

    latency: int
    wires: tuple[tuple[Wire, tuple[tuple[int, bool], ...]], ...]
    exact: bool


def estimate(plan: Plan, view: View, latency: int = 0) -> Estimate:
    """Cost of *plan* seen by *view*; *latency* is software before each message."""
    places = Places(plan.lengths)

    @cache
    def profile(peers: tuple[Peer, ...]) -> _Profile:
        return _profile(peers, places, view(peers), latency)

    total, lanes = Estimate(0, 0), []
    used: dict[Hashable, int] = {}  # when a lane first comes to each link, in picoseconds from its start
    for lane in plan.lanes:
        time = waited = rounds = first = 0
        for each in lane:
            found = profile(tuple(peer for peer, _ in each.sends))
            longest = _load(total.loads, found, each)
            for wire, _ in found.wires:
                used.setdefault(wire.name, time)
            time, waited = time + (found.latency + longest) * each.repeat, waited + found.latency * each.repeat
            rounds += each.repeat
            first = time if rounds <= plan.stagger else first
            total.exact = total.exact and found.exact
        lanes.append((time, waited, first))
    total.time, total.latency, first = max(lanes)
    busiest = total.busiest.busy if total.busiest else 0
    if plan.stagger:  # one lane to its end and the starts of the others, or a link from its first use on
        full = max((load.busy + used[name] for name, load in total.loads.items()), default=0)
        total.time = max(total.time + (len(lanes) - 1) * first, full)
        total.exact = total.exact and len(lanes) == 1
    elif plan.pipelined:  # the first chunk to its end, and the others through the busiest link
        total.time += busiest * (len(lanes) - 1) // len(lanes)
        total.exact = total.exact and (len(lanes) == 1 or _passes_once(plan.lanes[0], profile))
    elif len(lanes) > 1:  # side by side they cannot beat the busiest link
        total.time = max(total.time, busiest)
        total.exact = False
    return total


def _passes_once(lane: Lane, profile: Callable[[tuple[Peer, ...]], _Profile]) -> bool:
    """Whether no link serves two rounds of *lane*, so that no chunk of a pipeline waits for later rounds of others."""
    served = [
        wire.name
        for each in lane
        for _ in range(each.repeat)
        for wire, _ in profile(tuple(peer for peer, _ in each.sends)).wires
    ]
    return len(set(served)) == len(served)


def _load(loads: dict[Hashable, Load], found: _Profile, each: Round) -> int:
    """Add one round (with its repeats) to *loads*; return the picoseconds for which its busiest link is busy once."""
    once: dict[Hashable, int] = {}  # a wire of a folded network stands for more or fewer ranks, message by message
    for wire, crossings in found.wires:
        busy = sum(wire.transit(each.sends[number][1], first).busy for number, first in crossings)
        load = loads.setdefault(wire.name, Load(wire))
        load.size += each.repeat * wire.sharers * sum(each.sends[number][1] for number, _ in crossings)
        load.busy += each.repeat * busy
        once[wire.name] = once.get(wire.name, 0) + busy
    return max(once.values(), default=0)


def _profile(peers: tuple[Peer, ...], places: Places, seen: Seen, latency: int) -> _Profile:
    """What messages to *peers* cross: one wire of each sort, with the numbers of the messages that cross it."""
    crossings: dict[Wire, list[tuple[int, bool]]] = {}
    positions: dict[Wire, set[int]] = {}
    longest = 0
    for rank in seen.ranks:
        for number, peer in enumerate(peers):
            target = places.receiver(rank, peer)
            wires = () if target is None else seen.route(rank, target)
            longest = max(longest, latency + sum(wire.latency for wire in wires))
            for position, wire in enumerate(wires):
                crossings.setdefault(wire, []).append((number, not position))
                positions.setdefault(wire, set()).add(position)
    alone = all(len(each) == 1 for each in positions.values())
    sorts: dict[object, tuple[Wire, tuple[tuple[int, bool], ...]]] = {}
    for wire, crossed in crossings.items():
        sort = (wire.level, wire.bandwidth, wire.overhead, wire.sharers, tuple(sorted(crossed)))
        sorts.setdefault(sort, (wire, tuple(crossed)))
    return _Profile(longest, tuple(sorts.values()), seen.exact and alone)


def uniform(peers: Iterable[Peer], lengths: tuple[int, ...], route: Route) -> bool:
    """Whether all ranks' messages to each of *peers* cost the same, so that the rounds of all ranks keep step."""
    places = Places(lengths)
    return all(_same(peer, places, route) for peer in peers)


def _same(peer: Peer, places: Places, route: Route) -> bool:
    seen = set()
    for rank in range(places.ranks):
        target = places.receiver(rank, peer)
        if target is not None:
            seen.add(tuple((wire.bandwidth, wire.latency, wire.overhead) for wire in route(rank, target)))
    return len(seen) <= 1
