"""Pipeline schedules: which rank does the forward or backward pass of which microbatch in which order, and when.

A model is cut into ``stages x chunks`` parts.  Part *i* lies on rank ``i % stages``; with one chunk a rank has one
part (GPipe, 1F1B), with more it has every ``stages``-th (interleaved 1F1B).  One rank stands for all data- and
tensor-parallel ranks of its stage, so that the amount of work here does not depend on how many there are.

Sources: Huang et al., GPipe (arXiv 1811.06965); Narayanan et al., 1F1B and interleaved 1F1B (arXiv 2104.04473).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simulator.errors import DeadlockError, UsageError, nearest

SCHEDULES = ("1f1b", "gpipe", "interleaved")


class Work(NamedTuple):
    """One pass of one *microbatch* through one *chunk* of a rank's layers."""

    backward: bool
    chunk: int
    microbatch: int

    @property
    def name(self) -> str:
        """What an error calls it.

        >>> Work(True, 1, 4).name
        'backward 4 of chunk 1'
        """
        return f"{'backward' if self.backward else 'forward'} {self.microbatch} of chunk {self.chunk}"


Order = Sequence[Work]


def orders(schedule: str, stages: int, microbatches: int, chunks: int = 1) -> list[Order]:
    """What each of *stages* ranks does, in its order; UsageError for a combination that does not exist."""
    if schedule not in SCHEDULES:
        known = ", ".join(SCHEDULES)
        raise UsageError(f"unknown schedule {schedule!r}{nearest(schedule, SCHEDULES)} (known: {known})")
    if stages < 1 or microbatches < 1 or chunks < 1:
        raise UsageError(f"{stages} stages, {microbatches} microbatches, {chunks} chunks: each must be at least 1")
    if schedule != "interleaved" and chunks > 1:
        raise UsageError(f"schedule {schedule} has one chunk a stage, got {chunks}; interleaved has more")
    if chunks > 1 and microbatches % stages:
        raise UsageError(f"interleaved: {microbatches} microbatches are no multiple of the {stages} pipeline stages")
    return [_order(schedule, rank, stages, microbatches, chunks) for rank in range(stages)]


def _order(schedule: str, rank: int, stages: int, microbatches: int, chunks: int) -> list[Work]:
    total = microbatches * chunks
    forward = [_turn(turn, stages, chunks, False) for turn in range(total)]
    backward = [_turn(turn, stages, chunks, True) for turn in range(total)]
    ahead = min(total, _warmup(schedule, rank, stages, microbatches, chunks))
    order = forward[:ahead]
    for one, other in zip(forward[ahead:], backward, strict=False):
        order += [one, other]
    return order + backward[total - ahead :]


def _warmup(schedule: str, rank: int, stages: int, microbatches: int, chunks: int) -> int:
    """Forward passes before the first pair of forward and backward."""
    if schedule == "gpipe":
        return microbatches
    if chunks == 1:
        return stages - rank - 1
    return 2 * (stages - rank - 1) + (chunks - 1) * stages


def _turn(turn: int, stages: int, chunks: int, backward: bool) -> Work:
    """The *turn*-th pass of a rank: as many microbatches as there are stages through one chunk, then the next chunk."""
    if chunks == 1:
        return Work(backward, 0, turn)
    group, within = divmod(turn, stages * chunks)
    chunk, microbatch = divmod(within, stages)
    return Work(backward, chunks - 1 - chunk if backward else chunk, group * stages + microbatch)


def in_flight(order: Order) -> int:
    """The most passes through a chunk whose activations a rank holds at once.

    >>> [in_flight(order) for order in orders("1f1b", stages=4, microbatches=8)]
    [4, 3, 2, 1]
    """
    held = most = 0
    for work in order:
        held += -1 if work.backward else 1
        most = max(most, held)
    return most


@dataclass(frozen=True, slots=True)
class Times:
    """Picoseconds of one part of the model, and of what it sends.

    forward, backward  of one microbatch; *last* of the last microbatch's backward pass, where that differs.
    send               from the end of a pass to its arrival at the next part's rank; gradients take as long back.
    holds              whether the sender computes nothing meanwhile (blocking sends).
    """

    forward: int
    backward: int
    last: int | None = None
    send: int = 0
    holds: bool = False

    def of(self, work: Work, microbatches: int) -> int:
        """Picoseconds of *work*."""
        if not work.backward:
            return self.forward
        return self.backward if self.last is None or work.microbatch + 1 < microbatches else self.last


@dataclass(frozen=True, slots=True)
class Timetable:
    """When each rank did what, in picoseconds; *start* and *end* run along its order."""

    orders: Sequence[Order]
    start: Sequence[Sequence[int]]
    end: Sequence[Sequence[int]]

    @property
    def makespan(self) -> int:
        return max((ends[-1] for ends in self.end if ends), default=0)

    def busy(self, rank: int) -> int:
        """Picoseconds in which *rank* worked."""
        return sum(self.end[rank]) - sum(self.start[rank])

    @property
    def bubble(self) -> float:
        """Idle time of all ranks over the time in which they worked: (p - 1) / (v m) where all parts are alike."""
        working = sum(self.busy(rank) for rank in range(len(self.orders)))
        return (len(self.orders) * self.makespan - working) / working if working else 0.0

    def begins(self, rank: int, work: Work) -> int:
        """When *rank* began *work*."""
        return self.start[rank][self.orders[rank].index(work)]


def timetable(plan: Sequence[Order], parts: Sequence[Times]) -> Timetable:
    """Play *plan*, one order a rank, over *parts* in the order of the model.

    Every rank does the next pass of its order once its input is there.  DeadlockError says who waits for whom.
    """
    board = _Board(plan, parts)
    waiting = list(range(len(plan)))
    while waiting:
        advanced = [rank for rank in waiting if board.advance(rank)]
        waiting = [rank for rank in waiting if board.at(rank) < len(plan[rank])]
        if waiting and not advanced:
            raise DeadlockError(f"nothing can run any more: {'; '.join(map(board.complaint, waiting))}")
    return Timetable(plan, board.start, board.end)


class _Board:
    """What has been done: by (part, microbatch, backward) when its result arrives at the next part."""

    def __init__(self, plan: Sequence[Order], parts: Sequence[Times]) -> None:
        self.plan, self.parts, self.stages = plan, parts, len(plan)
        self.microbatches = 1 + max((work.microbatch for order in plan for work in order), default=-1)
        self.start: list[list[int]] = [[] for _ in plan]
        self.end: list[list[int]] = [[] for _ in plan]
        self._free = [0] * len(plan)
        self._arrived: dict[tuple[int, int, bool], int] = {}

    def at(self, rank: int) -> int:
        """How many passes *rank* has done."""
        return len(self.start[rank])

    def _needs(self, rank: int, work: Work) -> tuple[int, int, bool] | None:
        """The pass whose result *work* needs; the last part's backward pass needs its own forward pass."""
        part = work.chunk * self.stages + rank
        if not work.backward:
            return (part - 1, work.microbatch, False) if part else None
        last = part + 1 == len(self.parts)
        return (part, work.microbatch, False) if last else (part + 1, work.microbatch, True)

    def advance(self, rank: int) -> int:
        """Do what *rank* can do now; return how many passes that was."""
        order, before = self.plan[rank], self.at(rank)
        for work in order[before:]:
            needs = self._needs(rank, work)
            arrival = 0 if needs is None else self._arrived.get(needs)
            own = (work.chunk * self.stages + rank, work.microbatch, False)
            if arrival is None or (work.backward and own not in self._arrived):
                break
            self._do(rank, work, arrival)
        return self.at(rank) - before

    def _do(self, rank: int, work: Work, arrival: int) -> None:
        part = work.chunk * self.stages + rank
        times, begin = self.parts[part], max(self._free[rank], arrival)
        end = begin + times.of(work, self.microbatches)
        border = part - 1 if work.backward else part  # between this part and the next
        send = self.parts[border].send if self.stages > 1 and 0 <= border < len(self.parts) - 1 else 0
        self.start[rank].append(begin)
        self.end[rank].append(end)
        self._free[rank] = end + send if times.holds else end
        self._arrived[part, work.microbatch, work.backward] = end + send

    def complaint(self, rank: int) -> str:
        """Who waits for whom, in words."""
        work = self.plan[rank][self.at(rank)]
        part, microbatch, backward = self._needs(rank, work) or (work.chunk * self.stages + rank, 0, False)
        own = (work.chunk * self.stages + rank, work.microbatch, False)
        if work.backward and own not in self._arrived:
            part, microbatch, backward = own
        other = Work(backward, part // self.stages, microbatch)
        return f"stage {rank} waits at {work.name} for {other.name} on stage {part % self.stages}"
