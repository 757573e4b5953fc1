"""GEMMs for the RTL: shapes, operands, the words that the tops take and give, and the results to expect."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from hw_models.rtl_bench import bf16_reference

Matrix = npt.NDArray[Any]
Word = tuple[int, bool]
"""One beat of a stream: data with lane 0 in the low bits, and tlast."""


@dataclass(frozen=True, slots=True)
class Top:
    """One elaboration of one top module; *depth* counts only for ``ws``."""

    dataflow: str
    rows: int
    columns: int
    depth: int = 8
    is_float: bool = False
    hides_preload: bool = True

    @property
    def module(self) -> str:
        return f"{self.dataflow}_top"

    @property
    def parameters(self) -> dict[str, int]:
        """Verilog parameters of the module."""
        shared = {"ROWS": self.rows, "COLS": self.columns, "FLOAT": int(self.is_float)}
        shared["DATA_W"] = 16 if self.is_float else 8
        return shared | ({"DEPTH": self.depth, "HIDE": int(self.hides_preload)} if self.dataflow == "ws" else {})


@dataclass(frozen=True, slots=True)
class Gemm:
    """C[m, n] = A[m, k] B[k, n]; int8 operands, or bf16 as bit patterns in uint16."""

    a: Matrix
    b: Matrix

    @property
    def shape(self) -> tuple[int, int, int]:
        """m, n, k."""
        return self.a.shape[0], self.b.shape[1], self.a.shape[1]


def random_gemm(rng: random.Random, top: Top) -> Gemm:
    """Return a GEMM with folds and edges in every dimension more often than not, and M = 1 every eighth time."""
    tallest = 2 * top.depth + 2 if top.dataflow == "ws" else 2 * top.rows + 2
    m = 1 if rng.random() < 0.125 else rng.randint(1, tallest)
    n = rng.randint(1, 2 * top.columns + 2)
    k = rng.randint(1, 3 * top.rows + 2)
    return gemm_of_shape(rng, top, m, n, k)


def gemm_of_shape(rng: random.Random, top: Top, m: int, n: int, k: int) -> Gemm:
    """Return a GEMM with random operands: all of int8, or bf16 of which some are special."""
    generator = np.random.default_rng(rng.getrandbits(64))
    if top.is_float:
        return Gemm(bf16_reference.random_bf16(generator, (m, k)), bf16_reference.random_bf16(generator, (k, n)))
    return Gemm(
        generator.integers(-128, 128, (m, k), dtype=np.int8), generator.integers(-128, 128, (k, n), dtype=np.int8)
    )


def seeded_gemm(seed: int, top: Top, m: int, n: int, k: int) -> Gemm:
    """Return the same random GEMM for the same *seed*, inside the simulator and outside."""
    return gemm_of_shape(random.Random(seed), top, m, n, k)


def extreme_gemms(top: Top) -> Iterator[Gemm]:
    """Yield the largest products of both signs, and a k of many folds with nothing but -128 x -128."""
    for left, right, k in ((-128, -128, top.rows), (-128, 127, 2 * top.rows + 1), (-128, -128, 40 * top.rows + 1)):
        a = np.full((2, k), left, dtype=np.int8)
        b = np.full((k, top.columns), right, dtype=np.int8)
        yield Gemm(a, b)


def cut(extent: int, size: int) -> list[slice]:
    """Return the pieces of at most *size* that *extent* is cut into."""
    return [slice(start, min(start + size, extent)) for start in range(0, extent, size)]


def activation_words(top: Top, gemm: Gemm) -> list[Word]:
    """Return the beats of s_activations, in the order of tiles of the top."""
    m, n, k = gemm.shape
    if top.dataflow == "os":
        tiles = [gemm.a[rows].T for rows, _ in product(cut(m, top.rows), cut(n, top.columns))]
    else:
        tiles = [
            gemm.a[rows, lanes] for rows, _, lanes in product(cut(m, top.depth), cut(n, top.columns), cut(k, top.rows))
        ]
    return [word for tile in tiles for word in _beats(tile)]


def weight_words(top: Top, gemm: Gemm) -> list[Word]:
    """Return the beats of s_weights, in the order of tiles of the top."""
    m, n, k = gemm.shape
    if top.dataflow == "os":
        tiles = [gemm.b[:, lanes] for _, lanes in product(cut(m, top.rows), cut(n, top.columns))]
    else:
        tiles = [
            gemm.b[rows, lanes][::-1]
            for _, lanes, rows in product(cut(m, top.depth), cut(n, top.columns), cut(k, top.rows))
        ]
    return [word for tile in tiles for word in _beats(tile)]


def result_words(top: Top, gemm: Gemm) -> list[Word]:
    """Return the beats that m_results has to give; lanes beyond the edge are zero."""
    m, n, _ = gemm.shape
    c = expected(top, gemm)
    words = []
    for rows, lanes in product(cut(m, top.rows if top.dataflow == "os" else top.depth), cut(n, top.columns)):
        words += _beats(c[rows, lanes])
    return words


def expected(top: Top, gemm: Gemm) -> Matrix:
    """Return C: exact for integers; for bf16 with the roundings of the array, in its order."""
    if not top.is_float:
        return (gemm.a.astype(np.int64) @ gemm.b.astype(np.int64)).astype(np.int32)
    fold = top.rows if top.dataflow == "ws" else None
    return bf16_reference.matmul(gemm.a, gemm.b, fold)


def matrix_of(top: Top, shape: tuple[int, int, int], words: Sequence[int]) -> Matrix:
    """Put the data of the result beats together to C[m, n]: int32, or the bits of fp32."""
    m, n, _ = shape
    kind = np.dtype(np.uint32 if top.is_float else np.int32)
    c = np.empty((m, n), dtype=kind)
    beats = iter(words)
    for rows, lanes in product(cut(m, top.rows if top.dataflow == "os" else top.depth), cut(n, top.columns)):
        for row in range(rows.start, rows.stop):
            lane = np.frombuffer(next(beats).to_bytes(4 * top.columns, "little"), dtype=kind)
            c[row, lanes] = lane[: lanes.stop - lanes.start]
    return c


def _beats(tile: Matrix) -> list[Word]:
    words = [int.from_bytes(np.ascontiguousarray(row).tobytes(), "little") for row in tile]
    return [(word, index == len(words) - 1) for index, word in enumerate(words)]
