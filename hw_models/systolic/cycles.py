"""Cycles of one GEMM in closed form, phase by phase.

Single folds follow from one fact: the cell in row r and column c works on step t of its operands in cycle t + r + c.
rtl/README.md derives the formulas of the RTL; SCALE-Sim's are those of its paper (arXiv 1811.02883).
"""

from dataclasses import dataclass

from hw_models.systolic.array import Array, Convention, Count, Dataflow, Mapping, Sizes, ceil_div, map_gemm, positive


@dataclass(frozen=True, slots=True)
class Phases:
    """Cycles in each phase.  They do not overlap and add up to *cycles*; stalls are not among them.

    preload  weights enter and nothing else can happen, because the wave has passed or has yet to come
    fill     the first operands are on their way to where results leave
    stream   one result row (ws, is) or one step of every sum (os) a cycle
    drain    the last results leave; for os also the wait for the drain chain between short tiles
    """

    preload: Count
    fill: Count
    stream: Count
    drain: Count

    @property
    def cycles(self) -> Count:
        """From the start of the first preload to the last result."""
        return self.preload + self.fill + self.stream + self.drain


def phases(array: Array, m: Sizes, n: Sizes, k: Sizes) -> Phases:
    """Return the stall-free cycles of C[m, n] = A[m, k] B[k, n], for one shape or for arrays of them.

    A 4 x 4 array with 7 x 5 x 9: 2 x 3 tiles of 7 rows each; the weights of all but the first load unseen.

    >>> phases(Array(4, 4), m=7, n=5, k=9)
    Phases(preload=4, fill=3, stream=42, drain=4)
    """
    return phases_of(array, map_gemm(array, m, n, k))


def phases_of(array: Array, mapping: Mapping) -> Phases:
    """Return the stall-free cycles of a GEMM that is already laid out."""
    if array.convention is Convention.SCALESIM:
        return _scalesim(array, mapping)
    if array.dataflow is Dataflow.OUTPUT:
        return _rtl_output_stationary(array, mapping)
    return _rtl_weight_stationary(array, mapping)


def folds(array: Array, mapping: Mapping) -> Count:
    """Return how many tiles of rows x columns the stationary operand needs."""
    return ceil_div(mapping.across, array.rows) * ceil_div(mapping.along, array.columns)


def _scalesim(array: Array, mapping: Mapping) -> Phases:
    """Folds one after the other: R + C + T - 2 cycles for os, 2R + C + T - 2 for ws and is."""
    count = folds(array, mapping)
    if array.dataflow is Dataflow.OUTPUT:
        return Phases(0 * count, (array.rows + array.columns - 2) * count, mapping.time * count, 0 * count)
    return Phases(array.rows * count, (array.rows - 1) * count, mapping.time * count, (array.columns - 1) * count)


def _rtl_weight_stationary(array: Array, mapping: Mapping) -> Phases:
    """A tile of T rows hides up to T of the R cycles in which the next tile's weights load."""
    count = folds(array, mapping)
    height = mapping.time if array.depth is None else array.depth
    blocks, rest = mapping.time // height, mapping.time % height
    last = rest + (rest == 0) * height
    exposed = count * (blocks * positive(array.rows - height) + (rest > 0) * positive(array.rows - rest))
    exposed = exposed - positive(array.rows - last)  # nothing is loaded behind the last tile
    loads = count * (blocks + (rest > 0))
    return Phases(
        preload=array.rows + exposed if array.hides_preload else array.rows * loads,
        fill=array.rows - 1 + 0 * count,
        stream=count * mapping.time,
        drain=array.columns + 0 * count,
    )


def _rtl_output_stationary(array: Array, mapping: Mapping) -> Phases:
    """A tile of K steps hides up to K of the cycles in which the tile before shifts out, one for each of its rows."""
    across = ceil_div(mapping.across, array.rows)
    along = ceil_div(mapping.along, array.columns)
    last = mapping.across - (across - 1) * array.rows
    waits = along * ((across - 1) * positive(array.rows - mapping.time) + positive(last - mapping.time))
    waits = waits - positive(last - mapping.time)  # the last tile drains in full, below
    return Phases(
        preload=0 * waits,
        fill=array.rows + array.columns - 2 + 0 * waits,
        stream=across * along * mapping.time,
        drain=waits + last,
    )
