"""The best way found to run each of many products on the arrays of a chip.

A compiler has choices: which arrays, how to cut batch, m and n among them, how to divide the scratchpad, in how many
blocks to run what does not fit, and over how many folds side by side the accumulators keep their sums, so that a word
that streams is fetched once for all of them.  All combinations are costed at once by the closed forms; for each product
the one that ends first is taken, and of equals the one that moves less.  More memory or bandwidth only adds choices or
shortens each of them, so it never makes a product slower.

With one fold (as in the RTL) waits are worked out fold by fold.  With several, words come evenly and the accumulators
are double-buffered, so traffic runs beside the work as a whole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from hw_models.array_model.place import Place, Room, divisors, grids, rooms
from hw_models.systolic import Array, Dataflow, Run, Scratchpads, Words, map_gemm, run_gemm
from hw_models.systolic.traffic import Roles, words_of

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_BLOCKS = np.array([1] + [part << power for power in range(24) for part in (2, 3)])
_WIDE = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Product:
    """*batch* products C[m, n] = A[m, k] B[k, n] of one element type.

    nbytes  that must cross the off-chip memory, if everything crosses it once.
    spread  words of A in memory for each word of the matrix: below 1 where a convolution unrolls its input.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    nbytes: int = 0
    spread: float = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How one product runs; times in steps of the cells.

    steps     from start to end; *busy* of them without any wait for memory.
    traffic   off-chip bytes; *passes* times more than the least, 1 where everything moves once.
    grid      pieces of batch, m and n, one array each; *blocks* one after another on each.
    wide      folds side by side whose sums the accumulators keep at a time.
    folds     fillings of the cells on the array that has most to do.
    """

    steps: float
    busy: float
    traffic: float
    place: Place
    grid: tuple[int, int, int]
    blocks: int
    wide: int
    folds: int

    @property
    def order(self) -> tuple[float, float, float]:
        """The best plan is the least."""
        return self.steps, self.traffic, self.busy


@dataclass(frozen=True, slots=True)
class Products:
    """Many products as arrays, in the order of the list that they came from."""

    m: Ints
    n: Ints
    k: Ints
    batch: Ints
    nbytes: Ints
    spread: Floats

    @classmethod
    def of(cls, products: Sequence[Product]) -> "Products":
        """Turn a list around."""
        table = np.array([(p.m, p.n, p.k, p.batch, p.nbytes) for p in products], dtype=np.int64).T
        m, n, k, batch, nbytes = table
        return cls(m, n, k, batch, nbytes, np.array([p.spread for p in products]))


@lru_cache(maxsize=256)
def plan(
    choices: tuple[Place, ...], products: tuple[Product, ...], size: float, dram: float, stalls: bool = True
) -> list[Plan]:
    """Return the best plan of each product.

    size    bytes of an element; *dram* off-chip bytes a step, of all arrays together (infinite: arithmetic alone).
    stalls  whether waits are worked out fold by fold; otherwise memory traffic runs beside the work as a whole.
    """
    return plans(choices, products, size, (dram,), stalls)[0]


def plans(
    choices: tuple[Place, ...], products: tuple[Product, ...], size: float, drams: tuple[float, ...], stalls: bool
) -> list[list[Plan]]:
    """Return what `plan` does for each of *drams*; all together cost little more time than one of them."""
    count = len(products)
    many, speed = Products.of(products * len(drams)), np.repeat(np.array(drams), count)
    best: list[Plan | None] = [None] * len(speed)
    least = np.full(len(speed), inf)  # steps of the best so far: what takes longer need not become a Plan
    for place in choices:
        for parts in divisors(place.units):
            for wide, room in product(_WIDE if stalls else (1,), rooms(place.array, size, place.sram)):
                if room.limit_for(wide) < 1:
                    continue
                for index, one in _Candidates(many, place, parts, room, wide, size).costed(speed, stalls, least):
                    before = best[index]
                    if before is None or one.order < before.order:
                        best[index], least[index] = one, one.steps
    assert None not in best  # places with room for one fold have a plan for everything
    found = [each for each in best if each is not None]
    return [found[start : start + count] for start in range(0, len(found), count)]


class _Candidates:
    """Every grid and every number of blocks, for all products, with one division of the scratchpad."""

    def __init__(self, many: Products, place: Place, parts: int, room: Room, wide: int, size: float) -> None:
        self.place, self.room, self.wide, self.size, self.parts, self.many = place, room, wide, size, parts, many
        limit = room.limit_for(wide)
        self.grids = grids(parts)
        array = place.array
        pieces = np.array(self.grids, dtype=np.int64)
        each = _up(many.batch[:, None], pieces[:, 0])
        m, n = _up(many.m[:, None], pieces[:, 1]), _up(many.n[:, None], pieces[:, 2])
        block = _blocks(array, m, n)
        allowed = _allowed(array, block, limit)
        self.product, self.grid, self.step = np.nonzero(allowed)
        self.each, self.m, self.n = (extent[self.product, self.grid] for extent in (each, m, n))
        self.k, self.block = many.k[self.product], block[allowed]

    def costed(self, drams: Floats, stalls: bool, least: Floats) -> Iterator[tuple[int, Plan]]:
        """Yield the best candidate of each product, unless it takes more steps than *least*.

        *drams* has off-chip bytes a step for each product.
        """
        own = self.product
        dram = drams[own]
        extent = self.m if self.place.array.dataflow is Dataflow.WEIGHT else self.n
        full, rest = extent // self.block, extent % self.block
        share: Floats | float = dram / self.parts / self.size if stalls else inf
        work = _sum(self.each * full, self._work(self.block, share))
        work = _sum(1, work, self.each * (rest > 0), self._work(np.maximum(rest, 1), share))
        traffic = self.many.nbytes[own] + self._again(work) * self.size
        moved = work.sram * self.size / self.place.sram_rate
        steps = np.maximum(np.maximum(work.cycles, traffic / dram), moved)
        order = np.lexsort((work.busy, traffic, steps, own))
        first = order[np.unique(own[order], return_index=True)[1]]
        for at in first[steps[first] <= least[own[first]]]:
            yield (
                int(own[at]),
                Plan(
                    steps=float(steps[at]),
                    busy=float(work.busy[at]),
                    traffic=float(traffic[at]),
                    place=self.place,
                    grid=self.grids[self.grid[at]],
                    blocks=int(full[at] + (rest[at] > 0)),
                    wide=self.wide,
                    folds=int(work.folds[at]),
                ),
            )

    def _work(self, length: Ints, share: Floats | float) -> "_Work":
        """What one block of *length* asks of one array that has *share* words of DRAM a step."""
        array, pads = self.place.array, self._pads()
        m, n = (length, self.n) if array.dataflow is Dataflow.WEIGHT else (self.m, length)
        run = run_gemm(array, m, n, self.k, pads if self.wide == 1 else None, share)
        words, cycles = run.dram, run.cycles
        if words is None:
            words, first = self._wide_words(m, n, run)
            cycles = cycles + first / share
        return _Work(cycles, run.phases.cycles, words.ifmap, words.filter, words.ofmap, run.sram.total, run.folds)

    def _pads(self) -> Scratchpads:
        room = self.room
        match self.place.array.dataflow:
            case Dataflow.WEIGHT:
                return Scratchpads(room.by_row, room.in_cells, room.by_column)
            case Dataflow.OUTPUT:
                return Scratchpads(room.by_row, room.by_column, room.in_cells)
            case _:
                return Scratchpads(room.in_cells, room.by_row, room.by_column)

    def _wide_words(self, m: Ints, n: Ints, run: Run) -> tuple[Words, Any]:
        """DRAM words with *wide* folds side by side, and the words of the first fold, which nothing hides."""
        array, mapping = self.place.array, map_gemm(self.place.array, m, n, self.k)
        stream = mapping.across * mapping.time
        turns = _up(_up(np.asarray(mapping.along), array.columns), self.wide)
        again = (turns - 1) * np.maximum(0, stream - self.room.by_row // 2)
        roles = Roles(stream + again, mapping.along * mapping.time, mapping.across * mapping.along)
        first = np.minimum(mapping.across, array.rows) * np.minimum(mapping.along, array.columns)
        return words_of(array.dataflow, roles), first

    def _again(self, work: "_Work") -> Any:
        """Words beyond those that each move once, over all arrays."""
        many, own, active = self.many, self.product, self._active()
        a, b, c = many.m * many.k, many.k * many.n, many.m * many.n
        parts = ((work.a, a, many.spread), (work.b, b, 1 + 0 * many.spread), (work.c, c, 1 + 0 * many.spread))
        return sum(
            spread[own] * np.maximum(0, active * got - (many.batch * least)[own]) for got, least, spread in parts
        )

    def _active(self) -> Ints:
        """Arrays that have something to do."""
        many, own = self.many, self.product
        busy: Ints = _up(many.batch[own], self.each) * _up(many.m[own], self.m) * _up(many.n[own], self.n)
        return busy


def _blocks(array: Array, m: Ints, n: Ints) -> Ints:
    """Return block lengths for each product, grid and number of blocks: of m (ws), or of n (is; os: whole folds)."""
    extent = (m if array.dataflow is Dataflow.WEIGHT else n)[:, :, None]
    if array.dataflow is Dataflow.OUTPUT:
        tiles = _up(extent, array.columns)
        return np.minimum(_up(tiles, _BLOCKS) * array.columns, extent)
    return _up(extent, _BLOCKS)


def _allowed(array: Array, block: Ints, limit: int) -> npt.NDArray[np.bool_]:
    """Blocks that fit and in which loading the next fold can hide; where none can, the longest that fits."""
    least = array.columns if array.dataflow is Dataflow.OUTPUT else array.rows
    fits = block <= limit
    shorter = np.concatenate([np.ones_like(fits[..., :1]), block[..., 1:] < block[..., :-1]], axis=-1)
    longest = fits & (np.cumsum(fits, axis=-1) == 1)
    chosen: npt.NDArray[np.bool_] = longest | (fits & shorter & (block >= least))
    return chosen


@dataclass(frozen=True, slots=True)
class _Work:
    """Cycles with and without stalls, DRAM words of A, B and C, SRAM words and folds of one array."""

    cycles: Any
    busy: Any
    a: Any
    b: Any
    c: Any
    sram: Any
    folds: Any


def _sum(count: Any, one: _Work, more: Any = 0, other: _Work | None = None) -> _Work:
    """Return *count* times *one* and *more* times *other*."""
    second = other or one
    names = _Work.__slots__
    return _Work(*(count * getattr(one, name) + more * getattr(second, name) for name in names))


def _up(value: Ints, by: Ints | int) -> Ints:
    """Return *value* / *by*, rounded up."""
    return np.negative(np.negative(value) // by)
