"""Figures of a run: throughput, latencies, goodput, occupancy."""

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.errors import UsageError
from simulator.serving.records import Log, Served, Track
from simulator.serving.scheduler import Limits
from simulator.units import PS_PER_SECOND, duration

QUANTILES = (50, 95, 99)


def quantile(values: Sequence[float], percent: float) -> float:
    """The value below which *percent* of *values* lie, linear between neighbours; 0 of none.

    >>> quantile([1, 2, 3, 4, 5], 50), quantile([1, 2], 95)
    (3.0, 1.95)
    """
    ordered = sorted(values)
    if not ordered:
        return 0.0
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (ordered[high] - ordered[low]) * (place - low))


def weighted_quantile(values: Sequence[float], weights: Sequence[int], percent: float) -> float:
    """The value at which *percent* of the sum of *weights* is reached; 0 of none.

    >>> weighted_quantile([3, 1], [1, 99], 95), weighted_quantile([3, 1], [10, 90], 95)
    (1.0, 3.0)
    """
    total, seen = sum(weights), 0
    for value, weight in sorted(zip(values, weights, strict=True)):
        seen += weight
        if seen * 100 >= total * percent:
            return float(value)
    return 0.0


@dataclass(frozen=True, slots=True)
class Objective:
    """A service level: picoseconds that a request may take; None: no limit."""

    ttft: int | None = None
    tpot: int | None = None
    e2e: int | None = None

    def met(self, each: Served) -> bool:
        """Whether *each* kept it."""
        return (
            (self.ttft is None or each.ttft <= self.ttft)
            and (self.tpot is None or (each.tpot or 0) <= self.tpot)
            and (self.e2e is None or each.latency <= self.e2e)
        )


def objective(text: str) -> Objective:
    """``ttft=1s,tpot=50ms`` as an objective; UsageError says what is wrong with it.

    >>> objective("ttft=1s,tpot=50ms")
    Objective(ttft=1000000000000, tpot=50000000000, e2e=None)
    """
    found: dict[str, int] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if name not in ("ttft", "tpot", "e2e") or not equals:
            raise UsageError(f"--slo {part}: wanted the form ttft=1s,tpot=50ms,e2e=20s")
        try:
            found[name] = duration(value)
        except ValueError as error:
            raise UsageError(f"--slo {part}: {error}; wanted the form ttft=1s,tpot=50ms,e2e=20s") from None
    return Objective(**found)


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one run; times in picoseconds, rates a second.

    ttft, tpot, e2e  by per cent of `QUANTILES`; *gap*: between two tokens of one sequence.
    occupancy        KV blocks held, of all: mean over time, and most.
    batch            sequences in a step, mean over busy time.
    blocked          part of the busy time in which a request waited although the batch had room: for KV blocks.
    busy             part of the time in which steps ran, mean over engines.
    """

    requests: int
    seconds: float
    requests_per_second: float
    tokens_per_second: float
    total_tokens_per_second: float
    ttft: dict[int, float]
    tpot: dict[int, float]
    e2e: dict[int, float]
    gap: dict[int, float]
    occupancy: float
    occupancy_most: float
    batch: float
    queue_most: int
    blocked: float
    busy: float
    steps: int
    goodput: float | None
    met: float | None


def figures(log: Log, limits: Limits, slo: Objective | None = None) -> Figures:
    """Work out the figures of *log* on engines with these *limits* each."""
    blocks = limits.blocks
    served, tracks = log.served, log.tracks
    time = max(1, log.end)
    each_second = PS_PER_SECOND / time
    generated = sum(each.generated for each in served)
    read = sum(each.prompt for each in served)
    met = None if slo is None else sum(slo.met(each) for each in served)
    busy = sum(track.busy for track in tracks)
    asked = len(served) + sum(log.rejected.values())
    return Figures(
        requests=len(served),
        seconds=time / PS_PER_SECOND,
        requests_per_second=len(served) * each_second,
        tokens_per_second=generated * each_second,
        total_tokens_per_second=(generated + read) * each_second,
        ttft=_quantiles([each.ttft for each in served]),
        tpot=_quantiles([each.tpot for each in served if each.tpot is not None]),
        e2e=_quantiles([each.latency for each in served]),
        gap=_gaps(tracks),
        occupancy=_mean(tracks, "held", time) / blocks,
        occupancy_most=max((max(track.held, default=0) for track in tracks), default=0) / blocks,
        batch=_mean(tracks, "running", busy / len(tracks) if busy else 1),
        queue_most=max((max(track.waiting, default=0) for track in tracks), default=0),
        blocked=sum(_blocked(track, limits) for track in tracks) / max(1, busy),
        busy=busy / time / len(tracks),
        steps=sum(sum(track.steps) for track in tracks),
        goodput=None if met is None else met * each_second,
        met=None if met is None or not asked else met / asked,
    )


def _blocked(track: Track, limits: Limits) -> int:
    """Picoseconds of steps with room for sequences and tokens, and requests waiting beside them."""
    columns = (track.duration, track.waiting, track.running, track.tokens)
    return sum(
        duration
        for duration, waiting, running, tokens in zip(*columns, strict=True)
        if waiting and running < limits.max_batch and tokens < limits.max_tokens
    )


def _quantiles(values: Sequence[float]) -> dict[int, float]:
    return {percent: quantile(values, percent) for percent in QUANTILES}


def _gaps(tracks: Sequence[Track]) -> dict[int, float]:
    """Times between two tokens: one step, as many times as it has decodes."""
    values, weights = [], []
    for track in tracks:
        for time, steps, decodes in zip(track.duration, track.steps, track.decodes, strict=True):
            if decodes:
                values.append(time / steps)
                weights.append(decodes * steps)
    return {percent: weighted_quantile(values, weights, percent) for percent in QUANTILES}


def _mean(tracks: Sequence[Track], name: str, time: float) -> float:
    """Mean over *time* and engines of a state, which is 0 where an engine has nothing to do."""
    total = sum(
        value * lasting for track in tracks for value, lasting in zip(getattr(track, name), track.duration, strict=True)
    )
    return float(total / time / len(tracks))
