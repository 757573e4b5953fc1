"""How large array, scratchpad and memory bandwidth have to be for one program: the answer of a sweep.

Array and bandwidth only help together: on a balanced chip neither alone gains anything.  So the bandwidth is taken as
given, and for each one swept there is an answer.

* The array is the smallest beyond which a step gains less than the threshold, with the largest scratchpad swept.
* The scratchpad is then the smallest beyond which a step gains less than the threshold, with that array.
* The bandwidth is the smallest beyond which a step gains less than the threshold, with array and scratchpad to match.

A step is one value further in the sweep, by default a doubling.  A plateau does not end the search: no later value may
gain the threshold a step on average either.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hw_models.array_model.point import Point, Size
from hw_models.array_model.sweep import Sweep, fastest
from simulator.errors import UsageError

THRESHOLD = 0.1
"""A step that gains less is not worth its silicon, unless the user says otherwise."""


class Axis(StrEnum):
    """What can be made larger."""

    ARRAY = "array"
    SRAM = "SRAM"
    BANDWIDTH = "bandwidth"


@dataclass(frozen=True, slots=True)
class Choice:
    """One axis at the *point* chosen; that of the array has the largest scratchpad swept, as its choice had.

    after   the next larger value on this axis alone; a doubling if the sweep ends, and then *swept* is False.
    before  the next smaller value; None if it was not swept or holds no fold.
    """

    axis: Axis
    point: Point
    after: Point
    swept: bool
    before: Point | None

    @property
    def gain(self) -> float:
        """Part of the time that one step more would save."""
        return 1 - self.after.time / self.point.time

    @property
    def loss(self) -> float | None:
        """Part of the time that one step less would add."""
        return None if self.before is None else self.before.time / self.point.time - 1


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The smallest *point* that will do at its bandwidth, and what a step on each axis would do.

    following  the recommendation's time at the next bandwidth of the sweep, with array and scratchpad to match, over
               the time here; None at the largest.
    """

    point: Point
    threshold: float
    choices: tuple[Choice, Choice, Choice]
    following: float | None


def recommend(sweep: Sweep, threshold: float = THRESHOLD) -> tuple[Recommendation, list[Recommendation]]:
    """Return the recommendation, and that for each bandwidth of the sweep, the smallest first.

    UsageError unless *threshold*, a part of the time, lies between 0 and 1.
    """
    if not 0 < threshold < 1:
        raise UsageError(f"a threshold of {threshold:.0%}, wanted more than 0 % and less than 100 %")
    chosen = [_sized(sweep, depth, threshold) for depth in range(len(sweep.axes.bandwidths))]
    times = [sweep.at[index].time for index in chosen]
    every = [
        Recommendation(
            point=sweep.at[index],
            threshold=threshold,
            choices=(_array(sweep, index), _sram(sweep, index), _bandwidth(sweep, index)),
            following=times[depth + 1] / times[depth] if depth + 1 < len(times) else None,
        )
        for depth, index in enumerate(chosen)
    ]
    return every[settled(times, threshold)], every


def settled(times: Sequence[int], threshold: float) -> int:
    """Return the first index after which no number of steps gains *threshold* a step.

    >>> settled([100, 60, 40, 39, 38], 0.1)
    2
    >>> settled([100, 99, 50, 49], 0.1)  # the plateau at the start is followed by a gain of 29 % a step
    2
    """
    for index, time in enumerate(times):
        if all(later > time * (1 - threshold) ** (ahead + 1) for ahead, later in enumerate(times[index + 1 :])):
            return index
    raise AssertionError  # nothing comes after the last, so it is settled


_Index = tuple[int, int, int]


def _sized(sweep: Sweep, depth: int, threshold: float) -> _Index:
    """The array with the largest scratchpad, then the scratchpad with that array."""
    largest = len(sweep.axes.srams) - 1
    rows = [row for row in range(len(sweep.axes.sizes)) if (row, largest, depth) in sweep.at]
    row = rows[settled([sweep.at[row, largest, depth].time for row in rows], threshold)]
    columns = [column for column in range(largest + 1) if (row, column, depth) in sweep.at]
    return row, columns[settled([sweep.at[row, column, depth].time for column in columns], threshold)], depth


def _array(sweep: Sweep, index: _Index) -> Choice:
    row, _, depth = index
    column = len(sweep.axes.srams) - 1
    point, after = sweep.at[row, column, depth], sweep.at.get((row + 1, column, depth))
    return Choice(Axis.ARRAY, point, after or _larger(sweep, point), after is not None,
                  sweep.at.get((row - 1, column, depth)))  # fmt: skip


def _larger(sweep: Sweep, point: Point) -> Point:
    """Twice as many rows and columns, with more scratchpad if these need it to work at all."""
    size = Size(2 * point.size.rows, 2 * point.size.columns)
    least = min(sweep.program.least_sram(size, dataflow) for dataflow in sweep.axes.dataflows)
    return _more(sweep, size, max(point.sram, least), point.bandwidth)


def _sram(sweep: Sweep, index: _Index) -> Choice:
    row, column, depth = index
    point = sweep.at[index]
    after = sweep.at.get((row, column + 1, depth))
    further = after or _more(sweep, point.size, 2 * point.sram, point.bandwidth)
    return Choice(Axis.SRAM, point, further, after is not None, sweep.at.get((row, column - 1, depth)))


def _bandwidth(sweep: Sweep, index: _Index) -> Choice:
    row, column, depth = index
    point = sweep.at[index]
    after = sweep.at.get((row, column, depth + 1))
    further = after or _more(sweep, point.size, point.sram, 2 * point.bandwidth)
    return Choice(Axis.BANDWIDTH, point, further, after is not None, sweep.at.get((row, column, depth - 1)))


def _more(sweep: Sweep, size: Size, sram: int, bandwidth: int) -> Point:
    """A point outside of the grid."""
    (point,) = fastest(sweep.program, sweep.axes, size, sram, (bandwidth,))
    return point
