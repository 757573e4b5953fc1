"""One training step of a parallel plan: passes of all parts in the order of the schedule, gradients, optimizer.

The rank that ends last decides.  Its time is what its own passes took, by what bound them, and the times in which it
had nothing to do: waits for what the neighbours send, the bubble of the pipeline, gradients that are still under way.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from simulator.parallel.played import Played
from simulator.parallel.schedule import Times, Timetable, orders, timetable
from simulator.variants import Resource

BUBBLE = "bubble"


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the model on its rank.

    send  picoseconds until the next part has what it is handed, in either direction; *sent* its bytes.

    last  the backward pass of the last microbatch, which also sums gradients over the data-parallel ranks.
    """

    forward: Played
    backward: Played
    last: Played
    optimizer: Played
    send: int = 0
    sent: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One step; times in picoseconds.

    time     from the first pass to the end of the last rank's optimizer.
    bounds   of the slowest rank, adds up to *time*: the resources, and ``bubble``.
    exposed  communication during which that rank computed nothing, by parallelism: dp, tp, pp, ep; adds up to
             ``bounds["interconnect"]``.
    alone    what its collectives would take one after the other, by parallelism; *volume* their payload in bytes.
    rank     the slowest stage.
    """

    time: int
    bounds: Mapping[str, int]
    exposed: Mapping[str, int]
    alone: Mapping[str, int]
    volume: Mapping[str, int]
    rank: int
    table: Timetable
    ends: Sequence[int]

    @property
    def bound(self) -> str:
        """What most of the time went to."""
        return max(self.bounds, key=lambda name: self.bounds[name])


def play_step(parts: Sequence[Part], schedule: str, stages: int, microbatches: int, holds: bool = False) -> Step:
    """Play one step of *parts* (``stages`` times chunks of them, in the order of the model)."""
    found = _timed(parts, schedule, stages, microbatches, holds)
    rank = max(range(stages), key=lambda each: found.ends[each])
    time = found.ends[rank]
    spent, exposed, alone, volume = _own(parts, found, rank)
    idle = time - sum(spent.values())
    late = found.ends[rank] - found.finished[rank] - _optimizer(parts, stages, rank)
    swift = _timed([replace(part, send=0) for part in parts], schedule, stages, microbatches, holds)
    sending = min(idle - late, max(0, time - max(swift.ends))) if stages > 1 else 0
    _sends(parts, found.table, rank, alone, volume)
    for kind, waited in (("dp", late), ("pp", sending)):
        if waited:
            exposed[kind] += waited
    bounds = {str(resource): spent[resource] for resource in Resource}
    bounds[str(Resource.INTERCONNECT)] += late + sending
    bounds[BUBBLE] = idle - late - sending
    return Step(time, bounds, dict(exposed), dict(alone), dict(volume), rank, found.table, found.ends)


@dataclass(frozen=True, slots=True)
class _Timed:
    """*finished*: when each rank has done its last pass; *ends*: when its gradients and optimizer are done too."""

    table: Timetable
    finished: Sequence[int]
    ends: Sequence[int]


def _timed(parts: Sequence[Part], schedule: str, stages: int, microbatches: int, holds: bool) -> _Timed:
    times = [Times(part.forward.time, part.backward.time, part.last.time, part.send, holds) for part in parts]
    table = timetable(orders(schedule, stages, microbatches, len(parts) // stages), times)
    finished = [ends[-1] for ends in table.end]
    ends = [
        max(finished[rank], _gradients(parts, table, rank)) + _optimizer(parts, stages, rank) for rank in range(stages)
    ]
    return _Timed(table, finished, ends)


def _pass(part: Part, backward: bool, last: bool) -> Played:
    if not backward:
        return part.forward
    return part.last if last else part.backward


def _passes(parts: Sequence[Part], table: Timetable, rank: int) -> list[Played]:
    """What *rank* does, in order."""
    order, stages = table.orders[rank], len(table.orders)
    final = max(work.microbatch for work in order)
    return [_pass(parts[work.chunk * stages + rank], work.backward, work.microbatch == final) for work in order]


def _gradients(parts: Sequence[Part], table: Timetable, rank: int) -> int:
    """When the last collective that nothing waits for has ended: they follow each other on the same links."""
    reached = 0
    for played, end in zip(_passes(parts, table, rank), table.end[rank], strict=True):
        if played.after:
            reached = max(reached + played.alone.get("dp", 0), end + played.after)
    return reached


def _optimizer(parts: Sequence[Part], stages: int, rank: int) -> int:
    own = (parts[index].optimizer for index in range(rank, len(parts), stages))
    return sum(played.time + played.after for played in own)


def _sends(parts: Sequence[Part], table: Timetable, rank: int, alone: Counter[str], volume: Counter[str]) -> None:
    """Add what *rank* hands to the next parts, and back to those before."""
    stages = len(table.orders)
    for work in table.orders[rank] if stages > 1 else ():
        part = work.chunk * stages + rank
        crossed = part - 1 if work.backward else part
        if 0 <= crossed < len(parts) - 1:
            alone["pp"] += parts[crossed].send
            volume["pp"] += parts[crossed].sent


def _own(
    parts: Sequence[Part], found: _Timed, rank: int
) -> tuple[Counter[Resource], Counter[str], Counter[str], Counter[str]]:
    """Time by resource, exposed and total communication and its volume, over all that *rank* does."""
    stages = len(found.table.orders)
    spent: Counter[Resource] = Counter()
    exposed, alone, volume = Counter[str](), Counter[str](), Counter[str]()
    own = [parts[index].optimizer for index in range(rank, len(parts), stages)]
    for played in _passes(parts, found.table, rank) + own:
        spent.update(played.bounds)
        exposed.update(played.exposed)
        alone.update(played.alone)
        volume.update(played.volume)
    for played in own:  # nobody computes while the last parameters are gathered
        spent[Resource.INTERCONNECT] += played.after
        if played.after:
            exposed["dp"] += played.after
    return spent, exposed, alone, volume
