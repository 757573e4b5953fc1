"""The most requests a second that a server can serve: what its engines do, and what the link between its pools carries.

In the long run a chain of pools and link serves as many requests as its slowest part; so the engines are looked at with
an infinitely fast link (`engine_rate`), and the link by the bytes that cross it (`link_rate`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.serving.clock import Link
from simulator.serving.records import Log
from simulator.units import PS_PER_SECOND

_KEEPS_UP = 0.95  # of the saturation point: above it the queue grows for a long time
_FEWEST = 20  # ends from which a rate is counted


@dataclass(frozen=True, slots=True)
class Saturation:
    """Requests a second that are served when requests always wait.

    engines  what the engines serve with an infinitely fast link; *least*: at least, for too few requests waited.
    link     what the link between two pools carries; None without one, or if nothing crosses it.
    """

    engines: float
    least: bool = False
    link: float | None = None

    @property
    def rate(self) -> float:
        """The slower of engines and link."""
        return self.engines if self.link is None else min(self.engines, self.link)

    @property
    def link_limits(self) -> bool:
        """Whether a faster link would clearly serve more."""
        return self.link is not None and self.link < _KEEPS_UP * self.engines

    @property
    def told(self) -> bool:
        """Whether `rate` is the saturation point; otherwise the saturation point may be higher."""
        return not self.least or (self.link is not None and self.link <= self.engines)

    def keeps_up(self, offered: float) -> bool:
        """Whether *offered* requests a second are clearly below it."""
        return offered <= _KEEPS_UP * self.rate

    def never(self, offered: float) -> bool:
        """Whether *offered* requests a second are more than can be served, for certain."""
        return (self.told and offered > self.rate) or (self.link is not None and offered > self.link)


def engine_rate(log: Log) -> tuple[float, bool]:
    """Requests a second while requests wait, from a run in which all came at the start; whether it is a lower bound.

    Counted from the first tenth of the ends to the last moment at which one waited; if that is too short to count in,
    over the whole run, in which the engines are less than full: a lower bound.
    """
    ends = sorted(each.end for each in log.served)
    last = max((at for track in log.tracks for at in _busy_queue(track.start, track.waiting)), default=0)
    while_waiting = [end for end in ends if end <= last]
    first = len(while_waiting) // 10
    if len(while_waiting) - first < _FEWEST:
        return len(ends) * PS_PER_SECOND / max(1, log.end), True
    span = while_waiting[-1] - while_waiting[first]
    return (len(while_waiting) - 1 - first) * PS_PER_SECOND / max(1, span), False


def link_rate(log: Log, link: Link | None) -> float | None:
    """Requests a second that *link* carries: its bandwidth over the bytes a request; None if nothing crosses it."""
    if link is None or not log.transferred:
        return None
    return len(log.served) * link.bandwidth / log.transferred


def _busy_queue(start: Sequence[int], waiting: Sequence[int]) -> list[int]:
    return [at for at, count in zip(start, waiting, strict=True) if count]
