"""Words that pass between DRAM, the scratchpads and the array.

Each operand has a scratchpad that is double-buffered: one half works while the other is filled, so half of it can
keep words for reuse.  Folds run as two nested loops, over the array's rows and over its columns.  One operand sits in
the cells and depends on both loops: each of its tiles moves once.  Of the other two, one depends only on the loop
over rows and one only on the loop over columns.  Such an operand is used again in every turn of the loop that it does
not depend on; what fits into half its scratchpad stays, the rest comes from DRAM again.  Partial sums that do not fit
go out and come back.
"""

from dataclasses import dataclass, fields
from enum import Enum

import numpy as np

from hw_models.systolic.array import Array, Convention, Count, Dataflow, Mapping, ceil_div, positive
from simulator.errors import UsageError


class Order(Enum):
    """Which loop over folds runs inside the other."""

    ROWS_INSIDE = "rows inside"
    COLUMNS_INSIDE = "columns inside"


@dataclass(frozen=True, slots=True)
class Words:
    """Words of each operand that pass a border; partial sums count each way."""

    ifmap: Count
    filter: Count
    ofmap: Count

    @property
    def total(self) -> Count:
        """Words of all three."""
        return self.ifmap + self.filter + self.ofmap


@dataclass(frozen=True, slots=True)
class Scratchpads:
    """Capacity of the three scratchpads in words, both halves together."""

    ifmap: int
    filter: int
    ofmap: int


@dataclass(frozen=True, slots=True)
class Roles:
    """One value for each operand, by the loop that the operand depends on.

    by_row      os, ws: ifmap; is: filter
    by_column   os: filter; ws, is: ofmap (partial sums)
    in_cells    os: ofmap; ws: filter; is: ifmap
    """

    by_row: Count
    by_column: Count
    in_cells: Count


def roles_of(dataflow: Dataflow, values: Scratchpads) -> Roles:
    """Sort the values of the three operands by role."""
    match dataflow:
        case Dataflow.OUTPUT:
            return Roles(values.ifmap, values.filter, values.ofmap)
        case Dataflow.WEIGHT:
            return Roles(values.ifmap, values.ofmap, values.filter)
        case _:
            return Roles(values.filter, values.ofmap, values.ifmap)


def words_of(dataflow: Dataflow, roles: Roles) -> Words:
    """Sort the values of the three roles by operand."""
    match dataflow:
        case Dataflow.OUTPUT:
            return Words(ifmap=roles.by_row, filter=roles.by_column, ofmap=roles.in_cells)
        case Dataflow.WEIGHT:
            return Words(ifmap=roles.by_row, filter=roles.in_cells, ofmap=roles.by_column)
        case _:
            return Words(ifmap=roles.in_cells, filter=roles.by_row, ofmap=roles.by_column)


def sram_words(array: Array, mapping: Mapping) -> Words:
    """Return ifmap and filter words read from the scratchpads and ofmap words written to them.

    A word is read once for each fold that needs it.  The RTL adds up its partial sums behind the array, so only
    finished results are written; SCALE-Sim writes the partial sums of every fold.
    """
    across, along = ceil_div(mapping.across, array.rows), ceil_div(mapping.along, array.columns)
    by_row = mapping.across * mapping.time * along
    by_column = mapping.along * mapping.time * (1 if keeps_sums(array) else across)
    in_cells = mapping.across * mapping.along
    if array.depth is not None:
        in_cells = in_cells * ceil_div(mapping.time, array.depth)
    return words_of(array.dataflow, Roles(by_row, by_column, in_cells))


def keeps_sums(array: Array) -> bool:
    """Return whether partial sums stay in accumulators behind the array: the RTL's ws and is."""
    return array.convention is Convention.RTL and array.dataflow is not Dataflow.OUTPUT


def dram_words(array: Array, mapping: Mapping, halves: Roles, order: Order) -> Words:
    """Return the DRAM words of one pass over all folds in the given order; *halves* of the scratchpads keep words."""
    rows_inside = order is Order.ROWS_INSIDE
    by_row = mapping.across * mapping.time
    by_column = mapping.along * mapping.time
    across, along = ceil_div(mapping.across, array.rows), ceil_div(mapping.along, array.columns)
    row_misses = _misses(mapping.across, array.rows, mapping.time, halves.by_row, whole=rows_inside)
    by_row = by_row + (along - 1) * row_misses
    if not keeps_sums(array):
        column_misses = _misses(mapping.along, array.columns, mapping.time, halves.by_column, whole=not rows_inside)
        ways = 1 if array.dataflow is Dataflow.OUTPUT else 2  # partial sums go out and come back
        by_column = by_column + ways * (across - 1) * column_misses
    return words_of(array.dataflow, Roles(by_row, by_column, mapping.across * mapping.along))


def _misses(extent: Count, size: int, time: Count, capacity: Count, whole: bool) -> Count:
    """Return the words of an operand that one turn of the loop it does not depend on brings in again.

    whole   between two uses of a word all of the operand passes, else one tile of it.
    """
    if whole:
        return positive(extent * time - capacity)
    tiles = ceil_div(extent, size)
    last = extent - (tiles - 1) * size
    return (tiles - 1) * positive(size * time - capacity) + positive(last * time - capacity)


def minimum_scratchpads(array: Array, mapping: Mapping) -> Scratchpads:
    """Return the least words with which a GEMM runs: twice the tile in the cells, twice a vector of the others."""
    rows = int(np.max(np.minimum(mapping.across, array.rows)))
    columns = int(np.max(np.minimum(mapping.along, array.columns)))
    words = words_of(array.dataflow, Roles(2 * rows, 2 * columns, 2 * rows * columns))
    return Scratchpads(int(words.ifmap), int(words.filter), int(words.ofmap))


def check_capacity(array: Array, mapping: Mapping, pads: Scratchpads) -> None:
    """Refuse scratchpads that cannot hold one fold, and say what the least would be."""
    if min(pads.ifmap, pads.filter, pads.ofmap) >= 2 * array.cells:
        return  # enough for any GEMM
    least = minimum_scratchpads(array, mapping)
    faults = [
        f"the {field.name} scratchpad holds {getattr(pads, field.name)} words, "
        f"wanted at least {getattr(least, field.name)} for one fold"
        for field in fields(Scratchpads)
        if getattr(pads, field.name) < getattr(least, field.name)
    ]
    if faults:
        raise UsageError("; ".join(faults))
