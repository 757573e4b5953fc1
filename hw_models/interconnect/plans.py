"""A collective as rounds: in each, every rank sends to peers at fixed distances and waits for what comes to it.

Rounds are all that engine (``programs``) and closed forms (``closed``) know of an algorithm.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from simulator.network import Key, Send

IN_NETWORK = -1  # target of a message that the switch adds up and gives back


@dataclass(frozen=True, slots=True)
class Peer:
    """Whom a rank sends to: *offset* positions on, or the position with these bits changed (*exclusive*).

    axis       along which positions count; None: the whole group in its order.
    low, high  only positions in this range take part; high None: all from *low*.
    wraps      whether the last position's next is the first.
    """

    offset: int
    axis: int | None = None
    exclusive: bool = False
    low: int = 0
    high: int | None = None
    wraps: bool = True

    @property
    def everyone(self) -> bool:
        """Whether all ranks take part, so that one may stand for all."""
        return self.low == 0 and self.high is None and self.wraps


@dataclass(frozen=True, slots=True)
class Round:
    """Messages (to whom, bytes) that a rank sends side by side, *repeat* times, each after the last has arrived."""

    sends: tuple[tuple[Peer, int], ...]
    repeat: int = 1


Lane = tuple[Round, ...]  # one round after the other


@dataclass(frozen=True, slots=True)
class Plan:
    """How a group carries out one collective: *lanes* that begin together, each with a part of the data.

    lengths    of the group's axes, innermost first.
    pipelined  lanes carry chunk after chunk over the same links, instead of going side by side.
    stagger    each of them begins when the one before it has this many rounds behind it; 0: all stand in line at once.
    """

    lengths: tuple[int, ...]
    lanes: tuple[Lane, ...]
    pipelined: bool = False
    stagger: int = 0

    @property
    def ranks(self) -> int:
        return math.prod(self.lengths)

    @property
    def symmetric(self) -> bool:
        """Whether every rank does the same, seen from where it stands."""
        return all(peer.everyone for peer, _ in self.all_sends())

    def all_sends(self) -> Iterator[tuple[Peer, int]]:
        """Every kind of message once."""
        for lane in self.lanes:
            for each in lane:
                yield from each.sends

    @property
    def messages(self) -> int:
        """Messages of one rank."""
        return sum(each.repeat * len(each.sends) for lane in self.lanes for each in lane)


@dataclass(frozen=True)
class Places:
    """Positions in a group of *lengths*: who is whose peer."""

    lengths: tuple[int, ...]

    @cached_property
    def ranks(self) -> int:
        return math.prod(self.lengths)

    def receiver(self, rank: int, peer: Peer) -> int | None:
        """Whom *rank* sends to; None if it takes no part.  IN_NETWORK if the switch answers."""
        at, length, stride = self._on_axis(rank, peer.axis)
        if at < peer.low or (peer.high is not None and at > peer.high):
            return None
        if not peer.offset:
            return IN_NETWORK
        there = at ^ peer.offset if peer.exclusive else at + peer.offset
        if not 0 <= there < length:
            if not peer.wraps:
                return None
            there %= length
        return rank + (there - at) * stride

    def sender(self, rank: int, peer: Peer) -> int | None:
        """Who sends to *rank*; None if nobody does."""
        if not peer.offset:
            return rank
        at, length, stride = self._on_axis(rank, peer.axis)
        there = at ^ peer.offset if peer.exclusive else at - peer.offset
        if not 0 <= there < length:
            if not peer.wraps:
                return None
            there %= length
        sender = rank + (there - at) * stride
        return sender if self.receiver(sender, peer) == rank else None

    def _on_axis(self, rank: int, axis: int | None) -> tuple[int, int, int]:
        """(position, length, ranks between neighbours) of *rank* on *axis*."""
        if axis is None:
            return rank, self.ranks, 1
        stride = math.prod(self.lengths[:axis])
        return rank // stride % self.lengths[axis], self.lengths[axis], stride


def programs(plan: Plan, latency: int = 0, folded: bool = False) -> dict[int, list[Send]]:
    """What each rank of *plan* sends, by position in the group; of rank 0 alone if *folded*.

    latency  picoseconds of software before each message.
    """
    places = Places(plan.lengths)
    return {rank: list(_program(plan, places, rank, latency)) for rank in range(1 if folded else plan.ranks)}


def _program(plan: Plan, places: Places, rank: int, latency: int) -> Iterator[Send]:
    base, gate = 0, list[Key]()
    for lane in plan.lanes:
        before, rounds = gate, 0
        for each in lane:
            for _ in range(each.repeat):
                if len(before) > 1 and len(each.sends) > 1:  # one that waits for all, rather than all for all
                    yield Send(rank, 0, tuple(before))
                    before, base = [(rank, base)], base + 1
                yield from _sends(each, places, rank, before, latency)
                before, base = _arrivals(each, places, rank, base), base + len(each.sends)
                rounds += 1
                gate = before if rounds == plan.stagger else gate


def _sends(each: Round, places: Places, rank: int, before: Sequence[Key], latency: int) -> Iterator[Send]:
    """One message for each kind, of which those that the rank takes no part in go nowhere."""
    for peer, size in each.sends:
        target = places.receiver(rank, peer)
        yield Send(rank, 0, tuple(before)) if target is None else Send(target, size, tuple(before), latency)


def _arrivals(each: Round, places: Places, rank: int, base: int) -> list[Key]:
    """What the next round waits for: all that comes in, and what the rank itself has passed over."""
    keys = []
    for number, (peer, _) in enumerate(each.sends):
        sender = places.sender(rank, peer)
        keys.append((rank if sender is None else sender, base + number))
    return keys


def sent_bytes(sends: Mapping[int, Sequence[Send]]) -> dict[int, int]:
    """Bytes that each rank puts on its links."""
    return {rank: sum(send.size for send in program if send.target != rank) for rank, program in sends.items()}
