"""The RTL's schedule played cycle by cycle: what enters, what leaves, and the phase that the counters show.

An independent second opinion on the closed forms: nothing here adds or multiplies cycles, it only waits for things.
Time grows with the cycles simulated, so this is for tests and diagrams; use ``phases`` for everything else.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from hw_models.systolic.array import Array, Convention, Dataflow, map_gemm
from hw_models.systolic.cycles import Phases
from simulator.errors import UsageError


class Phase(StrEnum):
    """What one cycle of a stall-free run counts as."""

    PRELOAD = "preload"
    FILL = "fill"
    STREAM = "stream"
    DRAIN = "drain"


Place = tuple[int, int]
"""Tile, and row (ws) or step of k (os) in it, both from 0."""


@dataclass(frozen=True, slots=True)
class Step:
    """One cycle.

    load    weight row that enters the chain (ws only)
    enter   operand word that enters the first cell
    result  result row written to the accumulators (ws) or to the result register (os)
    """

    phase: Phase
    load: Place | None = None
    enter: Place | None = None
    result: Place | None = None


def play(array: Array, m: int, n: int, k: int) -> list[Step]:
    """Return every cycle of C[m, n] = A[m, k] B[k, n] on the RTL, when no port ever waits."""
    if array.convention is not Convention.RTL:
        raise UsageError(f"convention is {array.convention}, and only the RTL is played cycle by cycle")
    mapping = map_gemm(array, m, n, k)
    across, along, time = int(mapping.across), int(mapping.along), int(mapping.time)
    if array.dataflow is Dataflow.OUTPUT:
        heights = [h for h in _cut(across, array.rows) for _ in _cut(along, array.columns)]
        return list(_output_stationary(array, heights, time))
    tiles = len(_cut(across, array.rows)) * len(_cut(along, array.columns))
    blocks = _cut(time, array.depth or time)
    return list(_weight_stationary(array, [height for height in blocks for _ in range(tiles)]))


def count_phases(steps: list[Step]) -> Phases:
    """Return how many of *steps* fall into each phase."""
    count = Counter(step.phase for step in steps)
    return Phases(count[Phase.PRELOAD], count[Phase.FILL], count[Phase.STREAM], count[Phase.DRAIN])


def _cut(extent: int, size: int) -> list[int]:
    """Return the extents of the pieces of at most *size* that *extent* is cut into."""
    return [min(size, extent - start) for start in range(0, extent, size)]


def _weight_stationary(array: Array, heights: list[int]) -> Iterator[Step]:
    """Yield the cycles of tiles of *heights* rows; the weights of one tile may wait in the shadow registers."""
    rows = iter([(tile, row) for tile, height in enumerate(heights) for row in range(height)])
    loads = iter([(tile, row) for tile in range(len(heights)) for row in reversed(range(array.rows))])
    row, load, in_shadow = next(rows), next(loads, None), -1
    at_bottom: dict[int, Place] = {}  # cycle -> row that leaves the bottom of column 0
    cycle, last_entry = 0, None
    waiting: Place | None = row
    while last_entry is None or cycle < last_entry + array.rows + array.columns:
        entered = waiting if waiting is not None and waiting[0] <= in_shadow else None
        free = load is not None and (load[0] == 0 or _may_load(array, load[0] - 1, entered, waiting))
        loaded = load if free else None
        if entered is not None:
            at_bottom[cycle + array.rows - 1] = entered
            waiting = next(rows, None)
            last_entry = cycle if waiting is None else None
        if loaded is not None:
            in_shadow = loaded[0] if loaded[1] == 0 else in_shadow
            load = next(loads, None)
        yield Step(
            _phase_at_bottom(cycle, at_bottom, last_entry, array.rows),
            loaded,
            entered,
            at_bottom.get(cycle - array.columns),
        )
        cycle += 1


def _may_load(array: Array, tile: int, entered: Place | None, waiting: Place | None) -> bool:
    """Return whether *tile* has switched to its weights, so that the shadow registers are free again.

    Without hiding: whether all of *tile* has entered in an earlier cycle.
    """
    if not array.hides_preload:
        return entered is None and waiting is not None and waiting[0] > tile
    if entered is not None:
        return entered[0] >= tile
    return waiting is None or waiting[0] > tile or (waiting[0] == tile and waiting[1] > 0)


def _phase_at_bottom(cycle: int, at_bottom: dict[int, Place], last_entry: int | None, rows: int) -> Phase:
    """Return the phase as seen at the bottom of column 0, where results begin to leave."""
    if cycle in at_bottom:
        return Phase.STREAM
    if not at_bottom:
        return Phase.PRELOAD
    if cycle < next(iter(at_bottom)):  # the first to be entered is the first to arrive
        return Phase.FILL
    return Phase.PRELOAD if last_entry is None or cycle < last_entry + rows else Phase.DRAIN


def _output_stationary(array: Array, heights: list[int], time: int) -> Iterator[Step]:
    """Yield the cycles of tiles with *heights* result rows and *time* steps of k each."""
    far = array.rows + array.columns - 2  # cycles from the first cell to the last
    entries = iter([(tile, step) for tile in range(len(heights)) for step in range(time)])
    waiting: Place | None = next(entries)
    at_far_corner: set[int] = set()
    results: dict[int, Place] = {}  # cycle -> row written to the result register
    chain_free = cycle = 0
    while waiting is not None or cycle <= next(reversed(results)):
        blocked = waiting is not None and waiting[1] == time - 1 and cycle < chain_free
        entered = None if blocked else waiting
        if entered is not None:
            at_far_corner.add(cycle + far)
            waiting = next(entries, None)
            if entered[1] == time - 1:
                height = heights[entered[0]]
                chain_free = cycle + height
                results |= {cycle + far + 1 + row: (entered[0], row) for row in range(height)}
        yield Step(
            Phase.STREAM if cycle in at_far_corner else Phase.FILL if cycle < far else Phase.DRAIN,
            enter=entered,
            result=results.get(cycle),
        )
        cycle += 1
