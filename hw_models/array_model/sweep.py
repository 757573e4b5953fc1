"""A traced program over a grid of array sizes, scratchpads, memory bandwidths and dataflows."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from hw_models.array_model.point import Point, Size
from hw_models.array_model.resized import Program
from hw_models.systolic import Dataflow
from simulator.errors import UsageError
from simulator.units import binary, decimal

MOST_POINTS = 4096
"""A grid beyond that is a slip of the hand, and its heat map could not be read."""


@dataclass(frozen=True, slots=True)
class Axes:
    """What is swept: sizes of each array, bytes of scratchpad of each core, off-chip bytes a second, dataflows.

    UsageError unless every axis has values, all different and positive, and there are at most MOST_POINTS points.
    """

    sizes: tuple[Size, ...]
    srams: tuple[int, ...]
    bandwidths: tuple[int, ...]
    dataflows: tuple[Dataflow, ...] = (Dataflow.WEIGHT,)

    def __post_init__(self) -> None:
        for name, values in self._written().items():
            if not values:
                raise UsageError(f"{name}: empty, wanted one value at least")
            twice = [value for value, count in Counter(values).items() if count > 1]
            if twice:
                raise UsageError(f"{name}: {twice[0]} stands twice")
        least = min(*self.srams, *self.bandwidths, *(min(size.rows, size.columns) for size in self.sizes))
        if least < 1:
            raise UsageError(f"an array, SRAM or bandwidth of {least}, wanted at least 1")
        if self.points > MOST_POINTS:
            factors = " x ".join(f"{len(axis)}" for axis in self._written().values())
            raise UsageError(f"{factors} are {self.points:,} points, wanted at most {MOST_POINTS:,}")
        order = sorted(self.sizes, key=lambda size: (size.rows * size.columns, size))
        object.__setattr__(self, "sizes", tuple(order))
        object.__setattr__(self, "srams", tuple(sorted(self.srams)))
        object.__setattr__(self, "bandwidths", tuple(sorted(self.bandwidths)))

    def _written(self) -> dict[str, list[str]]:
        return {
            "array sizes": [str(size) for size in self.sizes],
            "SRAM": [binary(sram, digits=9) for sram in self.srams],
            "bandwidth": [decimal(bandwidth, "B/s", digits=9) for bandwidth in self.bandwidths],
            "dataflows": [str(dataflow) for dataflow in self.dataflows],
        }

    @property
    def points(self) -> int:
        return len(self.sizes) * len(self.srams) * len(self.bandwidths) * len(self.dataflows)


@dataclass(frozen=True, slots=True)
class Sweep:
    """All points of *axes* for one program.

    at  (index of size, of scratchpad, of bandwidth) -> the point of the fastest dataflow; points without room for one
        fold are missing.
    """

    program: Program
    axes: Axes
    at: Mapping[tuple[int, int, int], Point]

    @property
    def points(self) -> list[Point]:
        """Every point that runs, the sizes outermost."""
        return list(self.at.values())

    @property
    def without_fold(self) -> int:
        """Points left out because the scratchpad cannot hold one fold of the array."""
        return len(self.axes.sizes) * len(self.axes.srams) * len(self.axes.bandwidths) - len(self.at)


def sweep(program: Program, axes: Axes) -> Sweep:
    """Run *program* at every point of *axes*; UsageError if not one scratchpad holds a fold of any array."""
    at = {}
    for (row, size), (column, sram) in product(enumerate(axes.sizes), enumerate(axes.srams)):
        for depth, point in enumerate(fastest(program, axes, size, sram, axes.bandwidths)):
            at[row, column, depth] = point
    if not at:
        least = min(program.least_sram(axes.sizes[0], dataflow) for dataflow in axes.dataflows)
        raise UsageError(
            f"{binary(axes.srams[-1])} of scratchpad cannot hold one fold of the smallest array, {axes.sizes[0]} "
            f"{program.dtype}; the least is {least:,} B"
        )
    return Sweep(program, axes, at)


def fastest(program: Program, axes: Axes, size: Size, sram: int, bandwidths: Sequence[int]) -> list[Point]:
    """Return for each of *bandwidths* the point of the fastest dataflow of *axes*; empty if no fold fits."""
    found = [points for dataflow in axes.dataflows if (points := program.points(size, dataflow, sram, bandwidths))]
    return [min(each, key=lambda point: (point.time, point.traffic)) for each in zip(*found, strict=True)]
