"""What a systolic array is, and which dimension of a GEMM it lays where.

A GEMM multiplies ``A[m, k]`` (ifmap) by ``B[k, n]`` (filter) into ``C[m, n]`` (ofmap).  A dataflow keeps one of the
three in the cells, folded into tiles of *rows* x *columns*, and streams the third dimension past it.
"""

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
        return value
    counts = np.asarray(value)
    if not np.issubdtype(counts.dtype, np.integer):
        raise UsageError(f"{name} has elements of {counts.dtype}, wanted integers")
    if counts.size and counts.min() < 1:
        raise UsageError(f"{name} has an element of {counts.min()}, wanted at least 1")
    return counts.astype(np.int64)


def ceil_div(value: Count, by: Count) -> Count:
    """Return *value* / *by*, rounded up."""
    return -(-value // by)


def positive(value: Count) -> Count:
    """Return max(0, *value*), for an integer or an array alike."""
    return value * (value > 0)
