"""Where a product can run on a chip: its arrays one by one, or those of a core joined to one larger array.

Arrays of one core share its scratchpad.  One by one, each has a part of it and fetches its own operands; joined side by
side they read the same rows of activations, joined one above the other they add up the same results.
"""

from dataclasses import dataclass
from math import inf

from hw_models.systolic import Array, Dataflow
from simulator.dtypes import DType
from simulator.errors import UsageError
from simulator.hardware import Chip, MemoryLevel
from simulator.units import binary, decimal

SUM_BYTES = 4
"""Bytes of a partial sum: int32 or fp32, as in the RTL."""
_UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class Place:
    """*units* equal arrays, each with *sram* bytes of scratchpad that move *sram_rate* bytes a step."""

    array: Array
    units: int
    sram: int
    sram_rate: float


@dataclass(frozen=True, slots=True)
class Room:
    """How a scratchpad is divided, in words: *by_row* and *by_column* for the two operands that stream.

    The operand in the cells needs twice one fold and gains nothing from more.
    limit  the longest block that may run at once: result rows that the accumulators hold (ws, is); no limit for os.
    """

    by_row: int
    by_column: int
    in_cells: int
    limit: int

    def limit_for(self, wide: int) -> int:
        """The longest block whose sums fit for *wide* folds side by side, double-buffered if there are several.

        The sums of os never leave the cells, so there is nothing to gain from more than one.
        """
        if wide == 1:
            return self.limit
        return 0 if self.limit >= _UNLIMITED else self.limit // (2 * wide)


def step_rate(chip: Chip, dtype: DType) -> float:
    """Steps a second of the cells: a type at twice the rate is counted as a clock twice as fast."""
    return chip.matrix.clock * chip.matrix.rate[dtype]


def places(chip: Chip, dtype: DType) -> tuple[Place, ...]:
    """Return the ways to use the arrays of *chip* for operands of *dtype*; UsageError if its memory holds no fold."""
    one = chip.matrix.array
    assert one is not None  # the model has refused chips without one
    capacity, rate = _scratchpad(chip)
    steps = step_rate(chip, dtype)
    dataflow = Dataflow(one.dataflow)
    alone = Place(
        Array(one.rows, one.columns, dataflow),
        chip.cores * one.count,
        capacity // one.count,
        rate / one.count / steps,
    )
    joined = [
        Place(Array(one.rows * above, one.columns * (one.count // above), dataflow), chip.cores, capacity, rate / steps)
        for above in divisors(one.count)
        if one.count > 1
    ]
    size = word_bytes(dtype)
    found = tuple(place for place in (alone, *joined) if place.sram >= least_bytes(place.array, size))
    if not found:
        raise UsageError(
            f"chip {chip.name}: {binary(alone.sram)} of on-chip memory for each array cannot hold one fold of "
            f"{one.rows}x{one.columns} {dtype}; the least is {binary(least_bytes(alone.array, size))}"
        )
    return found


def word_bytes(dtype: DType) -> float:
    """Bytes of one element; half a byte for int4."""
    return dtype.bits / 8


def rooms(array: Array, size: float, capacity: int) -> list[Room]:
    """Return divisions of *capacity* bytes, from all for one streaming operand to all for the other."""
    cells, row_least, column_least = _parts(array, size)
    rest = capacity - cells
    shares = {row_least, *(share * rest for share in (0.25, 0.5, 0.75)), rest - column_least}
    return [
        _room(array, size, share, rest - share)
        for share in sorted(shares)
        if share >= row_least and rest - share >= column_least
    ]


def least_bytes(array: Array, size: float) -> int:
    """Bytes of scratchpad with which *array* can work at all."""
    return int(sum(_parts(array, size)))


def _room(array: Array, size: float, row_bytes: float, column_bytes: float) -> Room:
    keeps_results = array.dataflow is Dataflow.OUTPUT
    return Room(
        by_row=int(row_bytes / size),
        by_column=int(column_bytes / size),
        in_cells=2 * array.cells,
        limit=_UNLIMITED if keeps_results else int(column_bytes) // (SUM_BYTES * array.columns),
    )


def _parts(array: Array, size: float) -> tuple[float, float, float]:
    """Least bytes for the operand in the cells, for the one by row and for the one by column."""
    column = 2 * array.columns * size
    if array.dataflow is not Dataflow.OUTPUT:
        column = max(column, SUM_BYTES * array.columns)
    return 2 * array.cells * size, 2 * array.rows * size, column


def _scratchpad(chip: Chip) -> tuple[int, float]:
    """Bytes of on-chip memory that a core has to itself, and the bytes a second that it moves; UsageError if none."""
    own = [level for level in chip.memory.values() if level.scope == "core"]
    shared = [level for level in chip.memory.values() if level.scope == "chip"]
    capacity = sum(level.capacity for level in own)
    common = sum(level.capacity for level in shared) // chip.cores
    if not max(capacity, common):
        raise UsageError(
            f"chip {chip.name}: has only {chip.dram_name} ({decimal(chip.dram.capacity, 'B')}); an array needs on-chip "
            "memory: a level with 'scope: core' or 'scope: chip'"
        )
    return (capacity, _rate(own)) if capacity >= common else (common, _rate(shared) / chip.cores)


def _rate(levels: list[MemoryLevel]) -> float:
    """Bytes a second of the slowest level that says how fast it is."""
    return float(min((level.bandwidth for level in levels if level.bandwidth), default=inf))


def divisors(count: int) -> list[int]:
    """Return the divisors of *count*, the largest first."""
    return [part for part in range(count, 0, -1) if count % part == 0]


def grids(parts: int) -> list[tuple[int, int, int]]:
    """Return every way to write *parts* as pieces of the batch, of m and of n; few pieces of m come first."""
    found = [(batch, m, parts // batch // m) for batch in divisors(parts) for m in divisors(parts // batch)]
    return sorted(found, key=lambda pieces: (pieces[1], pieces[0]))
