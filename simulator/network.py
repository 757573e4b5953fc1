"""Messages over explicit links in simulated time: what waits for what, and who waits for a link.

A program is what each rank sends, and after which arrivals.  A link passes one message after another, in the order in
which they come to it.  Several programs may be in flight on one network, started whenever a unit of the engine gets to
them: they share its links.

Where all ranks do the same, seen from where they stand, it is enough to play rank 0 (*folded*): the messages that other
ranks put on its links arrive when its own arrive on theirs.  The number of events then does not depend on the number of
ranks.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, cast

import simpy

from simulator.errors import DeadlockError
from simulator.units import PS_PER_SECOND, transfer_ps

Key = tuple[int, int]  # a message: (rank that sends it, its number in that rank's program)


@dataclass(frozen=True, slots=True)
class Send:
    """One message of a rank's program.

    target  rank that gets it; the rank itself for work that crosses no link.
    size    bytes.
    after   messages that must have arrived first, at this rank.
    delay   picoseconds of work between the last of them and the sending.
    """

    target: int
    size: int
    after: tuple[Key, ...] = ()
    delay: int = 0


class Transit(NamedTuple):
    """What a message does on one link, in picoseconds from when the link begins with it.

    busy  until the link is free for the next.
    head  until it may begin on the next link of its way.
    tail  until all of it is at the end of this link.
    """

    busy: int
    head: int
    tail: int


@dataclass(frozen=True, slots=True)
class Wire:
    """One direction of a link: bytes per second, picoseconds of latency, and of *overhead* for each message.

    Messages cut through: the head goes on to the next link while the tail is still on this one.
    sharers  ranks that the wire stands for in a folded network, all of which send at once.
    """

    name: Hashable
    level: str
    bandwidth: int
    latency: int = 0
    overhead: int = 0
    sharers: int = 1

    def transit(self, size: int, first: bool = True) -> Transit:
        """What a message of *size* bytes does here; *first* where its sender puts it on its way."""
        overhead = self.overhead if first else 0
        busy = self.sharers * (overhead + transfer_ps(size, self.bandwidth))
        return Transit(busy, overhead + self.latency, busy + self.latency)


Route = Callable[[int, int], Sequence[Wire]]


@dataclass(slots=True)
class Load:
    """What crossed one wire: bytes (of all its sharers) and picoseconds in which it was busy."""

    wire: Wire
    size: int = 0
    busy: int = 0
    free: int = 0  # when the wire is free again


@dataclass(slots=True)
class _Flight:
    """A program under way: what each message still waits for, and when it arrived."""

    route: Route
    programs: Mapping[int, Sequence[Send]]
    done: simpy.Event
    waiting: dict[Key, int] = field(default_factory=dict)
    followers: dict[Key, list[Key]] = field(default_factory=dict)
    arrived: dict[Key, int] = field(default_factory=dict)
    left: int = 0  # messages that have not arrived


class Network:
    """Links in simulated time; *loads* says by wire what has crossed it."""

    def __init__(self, env: simpy.Environment) -> None:
        self.env = env
        self.loads: dict[Hashable, Load] = {}
        self.events = 0

    def start(self, programs: Mapping[int, Sequence[Send]], route: Route, folded: bool = False) -> simpy.Event:
        """Begin to play *programs* (by rank) now; the event's value is when each message arrived, by key.

        folded  *programs* holds rank 0 only, which stands for all ranks.
        """
        flight = _Flight(route, programs, self.env.event())
        sends = {(rank, number): send for rank, program in programs.items() for number, send in enumerate(program)}
        flight.left = len(sends)
        for key, send in sends.items():
            after = [(0, number) if folded else (rank, number) for rank, number in send.after]
            flight.waiting[key] = len(after)
            for before in after:
                flight.followers.setdefault(before, []).append(key)
        for key, send in sends.items():
            if not flight.waiting[key]:
                self._later(send.delay, partial(self._depart, flight, key))
        if not sends:
            flight.done.succeed(flight.arrived)
        return flight.done

    def _later(self, delay: int, what: Callable[[], None]) -> None:
        self.events += 1
        event = self.env.timeout(delay)
        assert event.callbacks is not None
        event.callbacks.append(lambda _: what())

    def _depart(self, flight: _Flight, key: Key) -> None:
        send = flight.programs[key[0]][key[1]]
        wires = flight.route(key[0], send.target) if send.target != key[0] else ()
        if not wires:
            self._arrive(flight, key)
            return
        self._hop(flight, key, wires, 0, 0)

    def _hop(self, flight: _Flight, key: Key, wires: Sequence[Wire], position: int, tail: int) -> None:
        """The head is at wire *position* now; *tail* is when the rest will be at the end of the wire before it."""
        send, wire, now = flight.programs[key[0]][key[1]], wires[position], int(self.env.now)
        load = self.loads.get(wire.name)
        if load is None:
            load = self.loads[wire.name] = Load(wire)
        transit = wire.transit(send.size, first=not position)
        begin = max(now, load.free)
        load.free = begin + transit.busy
        load.size += send.size * wire.sharers
        load.busy += transit.busy
        tail = max(begin + transit.tail, tail + transit.head) if position else begin + transit.tail
        if position + 1 == len(wires):
            self._later(tail - now, lambda: self._arrive(flight, key))
        else:
            self._later(begin + transit.head - now, lambda: self._hop(flight, key, wires, position + 1, tail))

    def _arrive(self, flight: _Flight, key: Key) -> None:
        flight.arrived[key] = int(self.env.now)
        flight.left -= 1
        for follower in flight.followers.get(key, ()):
            flight.waiting[follower] -= 1
            if not flight.waiting[follower]:
                delay = flight.programs[follower[0]][follower[1]].delay
                if delay:
                    self._later(delay, partial(self._depart, flight, follower))
                else:
                    self._depart(flight, follower)
        if not flight.left:
            flight.done.succeed(flight.arrived)


@dataclass(frozen=True, slots=True)
class Played:
    """One program alone on the network: picoseconds to the last arrival, loads by wire, events that it took."""

    time: int
    loads: Mapping[Hashable, Load]
    events: int
    arrived: Mapping[Key, int]

    @property
    def busiest(self) -> Load | None:
        """The wire that was busy longest."""
        return max(self.loads.values(), key=lambda load: load.busy, default=None)


def play(programs: Mapping[int, Sequence[Send]], route: Route, folded: bool = False) -> Played:
    """Play *programs* from time 0 to their end; DeadlockError names the first message that never leaves."""
    env = simpy.Environment()
    network = Network(env)
    done = network.start(programs, route, folded)
    env.run()
    if not done.triggered:
        raise DeadlockError(f"nothing can be sent any more at {env.now} ps: {_stuck(programs, network, folded)}")
    arrived = cast("dict[Key, int]", done.value)
    return Played(max(arrived.values(), default=0), network.loads, network.events, arrived)


def _stuck(programs: Mapping[int, Sequence[Send]], network: Network, folded: bool) -> str:
    """Which rank waits for whom, of the messages that wait for one that nobody sends."""
    known = {(rank, number) for rank, program in programs.items() for number in range(len(program))}
    for rank, program in programs.items():
        for number, send in enumerate(program):
            missing = [key for key in send.after if (key if not folded else (0, key[1])) not in known]
            if missing:
                return f"message {number} of rank {rank} waits for message {missing[0][1]} of rank {missing[0][0]}"
    return "messages wait for each other in a circle"


def rate(size: float, time: int) -> float:
    """Bytes per second of *size* bytes in *time* picoseconds."""
    return size * PS_PER_SECOND / time if time else float("inf")
