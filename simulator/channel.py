"""Shared bandwidth: a channel that divides itself fairly between the transfers under way."""

import heapq
from collections.abc import Generator
from itertools import count

import simpy

from simulator.units import PS_PER_SECOND

_TOLERANCE = 0.5  # units of size: what rounding of the virtual clock may leave of a transfer


class _Flow:
    """One transfer in flight: it ends when the virtual clock reads *end*.

    event  what its process waits for; *armed* once it is set to happen at a time.
    """

    __slots__ = ("armed", "end", "event", "number")

    def __init__(self, end: float, number: int, event: simpy.Event) -> None:
        self.end, self.number, self.event, self.armed = end, number, event, False

    def __lt__(self, other: "_Flow") -> bool:
        return (self.end, self.number) < (other.end, other.number)


class Channel:
    """A memory or link port of *bandwidth* bytes per second, shared evenly by all transfers in flight.

    Fair share in virtual time: one clock counts the bytes that each transfer in flight has received so far, so that a
    transfer ends when the clock has advanced by its size, however many others come and go meanwhile.  Only the
    transfer that ends first has an alarm.  An alarm can come too early, when others have joined since it was set, and
    is then set again; never too late, because whoever ends first keeps ending before those that were there already.
    A transfer that has the channel to itself costs one event.

    Times without any transfer are remembered until they are asked for: what could be fetched ahead in them.
    """

    def __init__(self, env: simpy.Environment, bandwidth: int) -> None:
        self._env = env
        self._bandwidth = bandwidth
        self._served = 0.0  # bytes that every transfer in flight has received since the channel was last idle
        self._since = 0.0  # simulated time at which _served was brought up to date
        self._flows: list[_Flow] = []
        self._numbers = count()
        self._idle: list[tuple[int, int]] = []
        self._idle_since = 0

    def transfer(self, size: int) -> Generator[simpy.Event, None, None]:
        """Pass *size* bytes; a process delegates to this with ``yield from``."""
        if size <= 0:
            return
        self._advance()
        if not self._flows and self._env.now > self._idle_since:
            self._idle.append((self._idle_since, int(self._env.now)))
        flow = _Flow(self._served + size, next(self._numbers), self._env.event())
        heapq.heappush(self._flows, flow)
        self._arm_first()
        yield flow.event
        self._advance()
        while flow.end - self._served > _TOLERANCE:
            flow.event, flow.armed = self._env.event(), False
            self._arm_first()
            yield flow.event
            self._advance()
        self._remove(flow)

    def _advance(self) -> None:
        now = self._env.now
        if self._flows:
            self._served += (now - self._since) * self._bandwidth / (PS_PER_SECOND * len(self._flows))
        else:
            self._served = 0.0
        self._since = now

    def _arm_first(self) -> None:
        """Set the alarm of the transfer that ends first, unless it has one, early as that may be."""
        first = self._flows[0]
        if first.armed:
            return
        left = max(0.0, first.end - self._served)
        delay = -(-left * PS_PER_SECOND * len(self._flows) // self._bandwidth)
        first.armed = True
        first.event._ok, first.event._value = True, None  # what succeed() does, but at a time to come
        self._env.schedule(first.event, delay=int(delay))

    def _remove(self, flow: _Flow) -> None:
        if self._flows[0] is flow:
            heapq.heappop(self._flows)
        else:  # within the tolerance of the one before it
            self._flows.remove(flow)
            heapq.heapify(self._flows)
        if self._flows:
            self._arm_first()
        else:
            self._idle_since = int(self._env.now)

    def idle(self, begin: int) -> list[tuple[int, int]]:
        """Return the spans from *begin* to now in which nothing was under way, and forget all that came before."""
        spans, now = self._idle, int(self._env.now)
        if not self._flows and now > self._idle_since:
            spans.append((self._idle_since, now))
            self._idle_since = now
        self._idle = []
        return [(max(first, begin), last) for first, last in spans if last > begin]
