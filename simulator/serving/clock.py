"""The scheduler on a simulated clock: arrivals, steps of one or more engines, and KV caches sent between pools.

An engine is busy until its step ends; between events many equal decode steps are taken at once.  With two pools a
request is read in the first; its KV cache then crosses a link, one after another, and the second pool decodes.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from simulator.serving.records import Log, Served, Track
from simulator.serving.scheduler import Limits, Scheduler
from simulator.serving.sequence import Request, Step
from simulator.serving.sequence import Sequence as Sequence_
from simulator.serving.steady import finish_many, repeats
from simulator.units import transfer_ps

_NEVER = 1 << 62


class Timer(Protocol):
    """How long steps take: `workloads.inference.times.StepTimes`, or something simpler in a test."""

    def time(self, step: Step) -> int: ...

    def run(self, step: Step, most: int, until: int) -> tuple[int, int]: ...


@dataclass(frozen=True, slots=True)
class Link:
    """What carries KV caches from pool to pool: *bandwidth* in bytes/s, *latency* in ps, *position* bytes each."""

    bandwidth: int
    latency: int
    position: int


Gains = Callable[[Step], Sequence[int]]  # tokens that each decode of a step gains, with a draft model


@dataclass(slots=True)
class _Engine:
    scheduler: Scheduler
    timer: Timer
    track: Track
    gains: Gains | None
    step: Step | None = None
    count: int = 0
    idle_since: int = 0

    @property
    def load(self) -> int:
        return len(self.scheduler.running) + len(self.scheduler.waiting)

    @property
    def full(self) -> bool:
        return len(self.scheduler.running) >= self.scheduler.batch


@dataclass(slots=True)
class Server:
    """*readers* engines that take requests as they arrive, and *writers* that take over after the first token.

    Without writers the readers do everything.
    """

    limits: Limits
    timer: Timer
    readers: int = 1
    writers: int = 0
    link: Link | None = None
    gains: Gains | None = None
    _engines: list[_Engine] = field(init=False)
    _events: list[tuple[int, int, int, object]] = field(init=False, default_factory=list)
    _number: int = field(init=False, default=0)
    _first: dict[int, int] = field(init=False, default_factory=dict)
    _link_free: int = field(init=False, default=0)
    _whole: dict[int, Request] = field(init=False, default_factory=dict)
    _log: Log = field(init=False)

    def __post_init__(self) -> None:
        names = ["engine"] if not self.writers and self.readers == 1 else [f"prefill {i}" for i in range(self.readers)]
        if not self.writers and self.readers > 1:
            names = [f"engine {i}" for i in range(self.readers)]
        names += [f"decode {i}" for i in range(self.writers)]
        self._engines = [_Engine(Scheduler(self.limits), self.timer, Track(name), self.gains) for name in names]
        self._log = Log([], Counter(), [each.track for each in self._engines], 0, 0)

    def serve(self, requests: Sequence[Request]) -> Log:
        """Serve *requests*, in order of arrival, to the last one."""
        position, total, now = 0, len(requests), 0
        while position < total or self._events:
            arrival = requests[position].arrival if position < total else _NEVER
            now = min(arrival, self._events[0][0] if self._events else _NEVER)
            while position < total and requests[position].arrival <= now:
                self._arrive(requests[position])
                position += 1
            while self._events and self._events[0][0] <= now:
                self._happen(now)
            upcoming = requests[position].arrival if position < total else _NEVER
            for index, engine in enumerate(self._engines):
                if engine.step is None:
                    self._start(index, engine, now, upcoming)
        self._log.end = now
        self._log.preemptions = sum(each.scheduler.preemptions for each in self._engines)
        for engine in self._engines:
            assert engine.scheduler.idle, "requests are left over"
            assert not engine.scheduler.pool.held, "KV blocks are left over"
        return self._log

    def _arrive(self, request: Request) -> None:
        engine = min(self._engines[: self.readers], key=lambda each: each.load)
        if self.writers and request.output > 1:
            self._whole[request.id] = request
            request = replace(request, output=1)
        self._add(engine, request)

    def _add(self, engine: _Engine, request: Request, sent: int = 0, generated: int = 0) -> None:
        reason = engine.scheduler.add(request, sent, generated)
        if reason is not None:
            self._log.rejected[str(reason)] += 1
            self._whole.pop(request.id, None)

    def _push(self, time: int, index: int, what: object) -> None:
        self._number += 1
        heapq.heappush(self._events, (time, self._number, index, what))

    def _start(self, index: int, engine: _Engine, now: int, upcoming: int) -> None:
        """Begin the next step of an engine that has none, and as many like it as nothing can interrupt."""
        scheduler = engine.scheduler
        step = scheduler.schedule()
        if step is None:
            return
        held, waiting = scheduler.pool.held, len(scheduler.waiting)
        most = repeats(scheduler, step)
        count = 1
        if most > 1:
            until = min(upcoming, self._events[0][0] if self._events else _NEVER)
            if engine.full and not self.writers:
                until = _NEVER  # who arrives meanwhile has to wait anyway
            count, time = engine.timer.run(step, most, until - now)
        else:
            time = engine.timer.time(step)
        engine.step, engine.count = step, count
        self._log.computed += step.tokens * count
        self._log.recomputed += sum([chunk.count for chunk in step.chunks if chunk.sequence.preemptions])
        _note(engine.track, now, time, step, count, (waiting, len(scheduler.running), held))
        self._push(now + time, index, None)

    def _happen(self, now: int) -> None:
        """The next event: a step of an engine has ended, or a KV cache has come."""
        _, _, index, what = heapq.heappop(self._events)
        engine = self._engines[index]
        if isinstance(what, tuple):
            request, left = what
            if engine.step is None and engine.scheduler.idle:
                self._log.interconnect += now - max(left, engine.idle_since)
            self._add(engine, request, sent=request.prompt, generated=1)
            return
        step, engine.step = engine.step, None
        engine.idle_since = now
        assert step is not None
        for chunk in step.chunks:
            if chunk.samples and not chunk.sequence.generated:
                self._first[chunk.sequence.id] = now
        if engine.gains is not None and step.width > 1:
            ended = engine.scheduler.finish(step, gained=engine.gains(step))
        else:
            ended = finish_many(engine.scheduler, step, engine.count)
        for each in ended:
            self._end(each, now)

    def _end(self, each: Sequence_, now: int) -> None:
        """A sequence has ended: in the first of two pools its KV cache goes on to the second."""
        request = self._whole.pop(each.id, None)
        if request is None:
            self._record(each, now)
            return
        assert self.link is not None
        size = request.prompt * self.link.position
        left = max(now, self._link_free)
        crossing = transfer_ps(size, self.link.bandwidth)
        self._link_free = left + crossing
        self._log.transferred += size
        self._log.crossing += crossing
        self._log.waits.append(self._link_free + self.link.latency - now)
        index = min(range(self.readers, len(self._engines)), key=lambda i: self._engines[i].load)
        self._push(self._link_free + self.link.latency, index, (request, now))

    def _record(self, each: Sequence_, now: int) -> None:
        assert each.end is not None
        request = each.request
        first = self._first.pop(each.id)
        self._log.cached += 0 if self.writers else each.cached
        self._log.served.append(
            Served(
                each.id,
                request.arrival,
                request.prompt,
                each.generated,
                first,
                now,
                each.end,
                each.preemptions,
                each.cached,
            )
        )


def _note(track: Track, now: int, time: int, step: Step, count: int, state: tuple[int, int, int]) -> None:
    track.start.append(now)
    track.duration.append(time)
    track.steps.append(count)
    track.waiting.append(state[0])
    track.running.append(state[1])
    track.held.append(state[2])
    track.tokens.append(step.tokens)
    track.decodes.append(len(step.decodes))
    track.reading.append(bool(step.chunks))
