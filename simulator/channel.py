"""Shared bandwidth: a channel that divides itself fairly between the transfers under way."""

import heapq
from itertools import count

import simpy

from simulator.units import PS_PER_SECOND


class Channel:
    """A memory or link port of *bandwidth* bytes per second, shared evenly by all transfers in flight.

    Fair share in virtual time: one clock counts the bytes that each transfer in flight has received so far, so that a
    transfer ends when the clock has advanced by its size, however many others come and go meanwhile.  Each start or
    end costs one event; no per-byte work is done.
    """

    def __init__(self, env: simpy.Environment, bandwidth: int) -> None:
        self._env = env
        self._bandwidth = bandwidth
        self._served = 0.0  # bytes that every transfer in flight has received since the channel was made
        self._since = 0  # simulated time at which _served was brought up to date
        self._waiting: list[tuple[float, int, simpy.Event]] = []
        self._order = count()
        self._alarm = 0  # number of the latest alarm; older ones are out of date

    def transfer(self, size: int) -> simpy.Event:
        """Return the event that *size* bytes have passed."""
        done = self._env.event()
        if size <= 0:
            return done.succeed()
        self._advance()
        heapq.heappush(self._waiting, (self._served + size, next(self._order), done))
        self._set_alarm()
        return done

    def _advance(self) -> None:
        now = int(self._env.now)
        if self._waiting:
            self._served += (now - self._since) * self._bandwidth / (PS_PER_SECOND * len(self._waiting))
        self._since = now

    def _set_alarm(self) -> None:
        """Ask to be woken when the transfer with the least left to receive has it all."""
        self._alarm += 1
        left = max(0.0, self._waiting[0][0] - self._served)
        delay = -(-left * PS_PER_SECOND * len(self._waiting) // self._bandwidth)
        alarm = self._env.timeout(int(delay), value=self._alarm)
        alarm.callbacks.append(self._finish)

    def _finish(self, alarm: simpy.Event) -> None:
        if alarm.value != self._alarm:
            return
        self._advance()
        end, _, done = heapq.heappop(self._waiting)
        self._served = max(self._served, end)
        done.succeed()
        while self._waiting and self._waiting[0][0] <= self._served:
            heapq.heappop(self._waiting)[2].succeed()
        if self._waiting:
            self._set_alarm()
