"""Cycles that an array waits for DRAM behind double-buffered scratchpads.

A fold takes as long as its cycles, or as the DRAM words that move beside it, whichever is longer.  One tile of the
operand in the cells has nothing to hide behind: the first that goes in (ws, is) or the last that comes out (os).
Folds that are alike, being first, last or in between in both loops, are counted and not walked over, so the time
does not depend on their number.

Every step is monotone, in real and in floating-point numbers, and so is the choice of the better order: neither a
larger scratchpad nor a higher bandwidth ever adds a stall.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hw_models.systolic.array import MOST_COUNT, Array, Convention, Count, Dataflow, Mapping, Sizes, ceil_div, positive
from hw_models.systolic.traffic import (
    Order,
    Roles,
    Scratchpads,
    Words,
    check_capacity,
    dram_words,
    keeps_sums,
    roles_of,
)
from simulator.errors import UsageError


@dataclass(frozen=True, slots=True)
class Traffic:
    """DRAM words of a GEMM and the cycles that the array waits for them."""

    words: Words
    stall_cycles: Count


Bandwidth = float | npt.NDArray[np.float64]
"""Words a cycle, or one number for each of the shapes; infinite: no stalls."""


def dram_traffic(
    array: Array, mapping: Mapping, pads: Scratchpads, bandwidth: Bandwidth, input_words: Sizes | None = None
) -> Traffic:
    """Return DRAM words and stall cycles with *bandwidth* words a cycle; *input_words* as in run_gemm.

    The RTL's order of tiles is fixed; for SCALE-Sim's convention the better of the two orders is taken: the one
    with fewer stalls, then with fewer words.
    """
    least = np.min(bandwidth) if isinstance(bandwidth, np.ndarray) else bandwidth  # np.min of a float takes 10 us
    if not least > 0:
        raise UsageError(f"DRAM bandwidth is {least} words a cycle, wanted more than 0")
    check_capacity(array, mapping, pads)
    halves = roles_of(
        array.dataflow, Scratchpads(*(min(each // 2, MOST_COUNT) for each in (pads.ifmap, pads.filter, pads.ofmap)))
    )
    share = None if input_words is None else _share(array, mapping, pads, input_words)
    if isinstance(mapping.across, int) and isinstance(mapping.along, int) and isinstance(mapping.time, int):
        return _traffic(array, mapping, halves, bandwidth, share)
    shape = np.broadcast(mapping.across, mapping.along, mapping.time).shape
    if math.prod(shape) <= CHUNK:
        return _traffic(array, mapping, halves, bandwidth, share)
    across, along, time, speed, shares = (
        np.broadcast_to(each, shape).ravel()
        for each in (mapping.across, mapping.along, mapping.time, bandwidth, 1.0 if share is None else share)
    )
    parts = [
        _traffic(
            array,
            Mapping(across[start:end], along[start:end], time[start:end]),
            halves,
            speed[start:end],
            None if share is None else shares[start:end],
        )
        for start, end in ((start, start + CHUNK) for start in range(0, across.size, CHUNK))
    ]
    words = (np.concatenate([getattr(part.words, name) for part in parts]).reshape(shape) for name in _OPERANDS)
    return Traffic(Words(*words), np.concatenate([part.stall_cycles for part in parts]).reshape(shape))


def _share(array: Array, mapping: Mapping, pads: Scratchpads, input_words: Sizes) -> Any:
    """Return which share of the unrolled ifmap's words come from DRAM: 1 unless the scratchpad holds all of the input.

    With a depth the blocks share nothing, so each brings its own part of the unrolled ifmap.
    """
    distinct, unrolled = np.asarray(input_words), np.asarray(_unrolled(array, mapping))
    held = (distinct <= pads.ifmap // 2) & (array.depth is None)
    return np.where(held, np.minimum(1.0, distinct / unrolled), 1.0)


def _unrolled(array: Array, mapping: Mapping) -> Count:
    """Words of the ifmap: K by M or M by K."""
    return mapping.across * (mapping.along if array.dataflow is Dataflow.INPUT else mapping.time)


CHUNK = 8192
"""Shapes computed at once, so that the arrays in between stay in the processor's cache."""


def _traffic(array: Array, mapping: Mapping, halves: Roles, bandwidth: Bandwidth, share: Any) -> Traffic:
    if array.depth is not None:
        return _in_blocks(array, mapping, halves, bandwidth, array.depth)
    if array.convention is Convention.RTL:
        fixed = Order.COLUMNS_INSIDE if array.dataflow is Dataflow.OUTPUT else Order.ROWS_INSIDE
        return _in_order(array, mapping, halves, bandwidth, fixed, share)
    return _better(*(_in_order(array, mapping, halves, bandwidth, order, share) for order in Order))


def _better(one: Traffic, other: Traffic) -> Traffic:
    """Take, for each shape, the traffic with fewer stalls, then with fewer words."""
    tie = one.stall_cycles == other.stall_cycles
    change = (other.stall_cycles < one.stall_cycles) | (tie & (other.words.total < one.words.total))
    if not isinstance(change, np.ndarray):
        return other if change else one
    words = (np.where(change, getattr(other.words, name), getattr(one.words, name)) for name in _OPERANDS)
    return Traffic(Words(*words), np.where(change, other.stall_cycles, one.stall_cycles))


_OPERANDS = ("ifmap", "filter", "ofmap")


def _in_blocks(array: Array, mapping: Mapping, halves: Roles, bandwidth: Bandwidth, depth: int) -> Traffic:
    """Blocks of *depth* rows run one after the other and share nothing."""
    blocks, rest = mapping.time // depth, mapping.time % depth
    full, last = (
        _in_order(array, Mapping(mapping.across, mapping.along, time), halves, bandwidth, Order.ROWS_INSIDE)
        for time in (depth, rest + (rest == 0))
    )
    some = rest > 0
    words = (blocks * getattr(full.words, name) + some * getattr(last.words, name) for name in _OPERANDS)
    return Traffic(Words(*words), blocks * full.stall_cycles + some * last.stall_cycles)


def _in_order(
    array: Array, mapping: Mapping, halves: Roles, bandwidth: Bandwidth, order: Order, share: Any = None
) -> Traffic:
    words = dram_words(array, mapping, halves, order)
    if share is not None:
        once = np.rint(share * _unrolled(array, mapping)).astype(np.int64)
        words = replace(words, ifmap=np.where(share < 1, once, words.ifmap))
    if not isinstance(bandwidth, np.ndarray) and math.isinf(bandwidth):
        return Traffic(words, 0 * words.total)
    in_cells = share if share is not None and array.dataflow is Dataflow.INPUT else 1.0
    by_row = share if share is not None and array.dataflow is not Dataflow.INPUT else 1.0
    lost = _lost(array, mapping, halves, bandwidth, order, by_row, in_cells)
    return Traffic(words, _round_up(lost + in_cells * _exposed(array, mapping) / bandwidth))


def _round_up(cycles: Any) -> Any:
    most = np.max(cycles, initial=0.0) if isinstance(cycles, np.ndarray) else cycles
    if most > 4 * MOST_COUNT:
        raise UsageError(f"DRAM takes {most:.3g} cycles longer than the array, wanted at most {4 * MOST_COUNT:.3g}")
    return np.ceil(cycles).astype(np.int64) if isinstance(cycles, np.ndarray) else math.ceil(cycles)


def _turns(extent: Count, size: int) -> list[tuple[Any, Any, Any]]:
    """Return (count, size, is the last) for the first turn of a loop, for those between, and for another last one."""
    count = ceil_div(extent, size)
    more = (count > 1) * 1
    return [
        (1, _least(extent, size), 1 - more),
        (positive(count - 2), size, 0),
        (more, extent - (count - 1) * size, 1),
    ]


def _least(extent: Count, size: int) -> Count:
    return extent + (extent > size) * (size - extent)


def _exposed(array: Array, mapping: Mapping) -> Count:
    """Return the words of the one tile of the operand in the cells whose transfer nothing hides."""
    return _least(mapping.across, array.rows) * _least(mapping.along, array.columns)


def _lost(
    array: Array, mapping: Mapping, halves: Roles, bandwidth: Bandwidth, order: Order, row_share: Any, cell_share: Any
) -> Any:
    """Return the cycles by which the transfers of all folds outlast the folds.

    Words count as cycles of DRAM from the start.  The tile in the cells is charged to its own fold, but for the first.
    A share below 1 is that of a convolution's input of which nothing moves twice, spread evenly over the folds.
    """
    a_step = mapping.time / bandwidth  # cycles of DRAM for one row, or one column, of a streaming operand
    rows_inside = order is Order.ROWS_INSIDE
    by_row = mapping.across * mapping.time if rows_inside else None
    by_column = None if rows_inside else mapping.along * mapping.time
    columns = [
        (count, size, size * a_step, size * a_step * _missing(by_column, size * mapping.time, halves.by_column))
        for count, size, _ in _turns(mapping.along, array.columns)
    ]
    lost: Any = 0.0
    for position, (count, size, is_last) in enumerate(_turns(mapping.across, array.rows)):
        cycles = _fold_cycles(array, mapping, size)
        always, again = _column_shares(array, position == 0, is_last)
        row_time = size * a_step
        later = row_time * _missing(by_row, size * mapping.time, halves.by_row) * (row_share >= 1)
        row_time = row_time * row_share
        tile = size / bandwidth * cell_share
        for place, (column_count, column_size, column_time, column_again) in enumerate(columns):
            busy = (later if place else row_time) + always * column_time + again * column_again
            if place or position:
                busy = busy + tile * column_size
            lost = lost + count * column_count * positive(busy - cycles)
    return lost


def _missing(whole: Any, tile: Any, capacity: Any) -> Any:
    """Return which share of the words that pass between two uses of a word cannot be kept."""
    return positive(1 - capacity / (tile if whole is None else whole))


def _column_shares(array: Array, is_first: bool, is_last: Any) -> tuple[Any, Any]:
    """Return how often the operand by column moves beside a fold: in any case, and if it cannot be kept.

    The filter of os comes in the first turn of the rows, and again in the others.  Finished results go out in the
    last turn; partial sums go out in the others, and come in again in all but the first.
    """
    if array.dataflow is Dataflow.OUTPUT:
        return (1, 0) if is_first else (0, 1)
    if keeps_sums(array):
        return is_last, 0
    return is_last, 1 - is_last + (not is_first)


def _fold_cycles(array: Array, mapping: Mapping, rows: Count) -> Count:
    """Return the cycles of one fold of *rows* among others: T of the stream, or what it cannot hide."""
    if array.convention is Convention.SCALESIM:
        ends = array.rows + array.columns - 2 + (0 if array.dataflow is Dataflow.OUTPUT else array.rows)
        return mapping.time + ends
    if not array.hides_preload:
        return mapping.time + array.rows
    least = rows if array.dataflow is Dataflow.OUTPUT else array.rows
    return mapping.time + positive(least - mapping.time)
