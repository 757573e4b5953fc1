"""What a systolic array is, and which dimension of a GEMM it lays where.

A GEMM multiplies ``A[m, k]`` (ifmap) by ``B[k, n]`` (filter) into ``C[m, n]`` (ofmap).  A dataflow keeps one of the
three in the cells, folded into tiles of *rows* x *columns*, and streams the third dimension past it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.errors import UsageError

Count = int | npt.NDArray[Any]
"""One whole number, or an int64 for each of many shapes; every formula here takes either."""

Sizes = int | npt.NDArray[np.int64] | Sequence[int]
"""A dimension as a caller may give it: an integer, an array, or a list of integers."""

MOST_EXTENT = 2**31 - 1
"""The largest M, N, K and depth of accumulators."""
MOST_SIDE = 2**20
"""The most rows, and the most columns, of an array."""
MOST_COUNT = 2**60
"""The most multiply-adds, and the most cycles without stalls, of one GEMM: a few such counts add up to an int64."""


class Dataflow(StrEnum):
    """The operand that stays in the cells."""

    WEIGHT = "ws"
    OUTPUT = "os"
    INPUT = "is"


class Convention(StrEnum):
    """Whose cycles are counted.

    rtl       the array in ``rtl/``: weights are loaded behind the wave, results pass one more register.
    scalesim  SCALE-Sim 3.0.0: each fold stands alone and loads, fills, streams and drains by itself.
    """

    RTL = "rtl"
    SCALESIM = "scalesim"


@dataclass(frozen=True, slots=True)
class Array:
    """A systolic array.

    rows, columns   cells; a row vector of *rows* activations enters a cycle, *columns* results leave.
    depth           rows of results that the accumulators behind a weight-stationary array hold; a taller GEMM runs
                    in blocks of that height.  None: as tall as needed.  Only with the convention ``rtl``.
    hides_preload   whether a tile's weights load while the tile before streams; SCALE-Sim's convention never does.
    """

    rows: int
    columns: int
    dataflow: Dataflow = Dataflow.WEIGHT
    convention: Convention = Convention.RTL
    depth: int | None = None
    hides_preload: bool = True

    def __post_init__(self) -> None:
        faults = [
            f"{name} is {value}, wanted at least 1"
            for name, value in (("rows", self.rows), ("columns", self.columns), ("depth", self.depth))
            if value is not None and value < 1
        ]
        faults += [
            f"{name} is {value}, wanted at most {most:,}"
            for name, value, most in (
                ("rows", self.rows, MOST_SIDE),
                ("columns", self.columns, MOST_SIDE),
                ("depth", self.depth or 1, MOST_EXTENT),
            )
            if value > most
        ]
        faults += [
            f"{name} is {str(value)!r}, wanted one of {', '.join(kind)}"
            for name, value, kind in (
                ("dataflow", self.dataflow, Dataflow),
                ("convention", self.convention, Convention),
            )
            if value not in list(kind)
        ]
        if self.depth is not None and (self.convention, self.dataflow) in _WITHOUT_DEPTH:
            faults.append(f"depth is {self.depth}, but {self.convention} {self.dataflow} has no accumulators")
        if not self.hides_preload and (self.convention, self.dataflow) in _WITHOUT_DEPTH:
            faults.append(f"hides_preload is False, which is no choice of {self.convention} {self.dataflow}")
        if faults:
            raise UsageError("; ".join(faults))
        object.__setattr__(self, "dataflow", Dataflow(self.dataflow))
        object.__setattr__(self, "convention", Convention(self.convention))

    @property
    def cells(self) -> int:
        """Multiply-accumulate cells."""
        return self.rows * self.columns


_WITHOUT_DEPTH = {(Convention.RTL, Dataflow.OUTPUT)} | {(Convention.SCALESIM, dataflow) for dataflow in Dataflow}


@dataclass(frozen=True, slots=True)
class Mapping:
    """A GEMM as the array sees it.

    across  extent laid over the array's rows, *along* over its columns; both are folded.
    time    extent that streams past each fold, one step a cycle (SCALE-Sim's T).
    """

    across: Count
    along: Count
    time: Count


def map_gemm(array: Array, m: Sizes, n: Sizes, k: Sizes) -> Mapping:
    """Lay out C[m, n] = A[m, k] B[k, n]: (M, N, K) for os, (K, N, M) for ws, (K, M, N) for is.

    >>> map_gemm(Array(4, 4, Dataflow.OUTPUT), 7, 5, 9)
    Mapping(across=7, along=5, time=9)
    """
    rows, columns, depth = _count("m", m), _count("n", n), _count("k", k)
    match array.dataflow:
        case Dataflow.OUTPUT:
            return Mapping(rows, columns, depth)
        case Dataflow.WEIGHT:
            return Mapping(depth, columns, rows)
        case _:
            return Mapping(depth, rows, columns)


def _count(name: str, value: Sizes) -> Count:
    if isinstance(value, int):
        if value < 1:
            raise UsageError(f"{name} is {value}, wanted at least 1")
        if value > MOST_EXTENT:
            raise UsageError(f"{name} is {value}, wanted at most {MOST_EXTENT:,}")
        return value
    counts = np.asarray(value)
    if not np.issubdtype(counts.dtype, np.integer):
        raise UsageError(f"{name} has elements of {counts.dtype}, wanted integers")
    if counts.size and counts.min() < 1:
        raise UsageError(f"{name} has an element of {counts.min()}, wanted at least 1")
    if counts.size and counts.max() > MOST_EXTENT:
        raise UsageError(f"{name} has an element of {counts.max()}, wanted at most {MOST_EXTENT:,}")
    return counts.astype(np.int64)


def check_count(array: Array, mapping: Mapping) -> None:
    """Refuse a GEMM that is too long to be counted in 64 bits."""
    across, along, time = (_most(each) for each in (mapping.across, mapping.along, mapping.time))
    if not _too_long(array, across, along, time):
        return
    worst = max(  # the largest of each may belong to different shapes
        zip(*(np.ravel(each).tolist() for each in np.broadcast_arrays(*_dimensions(mapping))), strict=True),
        key=lambda each: _longest(array, *each),
    )
    if _too_long(array, *worst):
        raise UsageError(
            f"a GEMM of {math.prod(worst):.3g} multiply-adds and up to {_longest(array, *worst):.3g} cycles, "
            f"wanted at most {MOST_COUNT:.3g} of either"
        )


def _dimensions(mapping: Mapping) -> tuple[Count, Count, Count]:
    return mapping.across, mapping.along, mapping.time


def _most(value: Count) -> int:
    return value if isinstance(value, int) else int(value.max(initial=1))


def _too_long(array: Array, across: int, along: int, time: int) -> bool:
    return _longest(array, across, along, time) > MOST_COUNT or across * along * time > MOST_COUNT


def _longest(array: Array, across: int, along: int, time: int) -> int:
    """Return no fewer cycles than any convention counts: each fold alone, in blocks if the array has a depth."""
    blocks = 1 if array.depth is None else ceil_div(time, array.depth)
    folds = ceil_div(across, array.rows) * ceil_div(along, array.columns)
    return int(folds * (time + blocks * (2 * array.rows + array.columns)))


def ceil_div(value: Count, by: Count) -> Count:
    """Return *value* / *by*, rounded up."""
    return -(-value // by)


def positive(value: Count) -> Count:
    """Return max(0, *value*), for an integer or an array alike."""
    return value * (value > 0)
