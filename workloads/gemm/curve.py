"""The answer of the lab as a curve: bytes on a core -> best tile -> traffic -> time."""

from dataclasses import dataclass
from itertools import product

from simulator.dtypes import DType
from simulator.hardware import Chip
from workloads.gemm.predict import Prediction, predict
from workloads.gemm.steps import Config, Step
from workloads.gemm.traffic import Sizes

KIB = 1024
CAPACITIES = tuple(2**power for power in range(2, 15))  # KiB of one core for slices and sums
_SIDES = (16, 32, 64, 128, 256, 512, 1024)
_DEPTHS = (16, 32, 64)
_STAGES = 3  # as many slices as hide the latency of the next
_SUM = 4  # bytes
_ENOUGH = 0.05  # a doubling that saves less than this part of the time is not worth its area


@dataclass(frozen=True, slots=True)
class Point:
    """The best tile for *capacity* bytes on a core, and what follows from it."""

    capacity: int
    config: Config
    prediction: Prediction


def storage(cut: Config, item: int) -> int:
    """Return the bytes of a tile on its core: slices of *item*-byte elements in flight, and fp32 sums.

    >>> storage(Config(128, 256, 64, stages=3), 2) // KIB  # 3 x 48 KiB of slices, 128 KiB of sums
    272
    """
    return cut.stages * cut.slice_bytes(item) + cut.block_m * cut.block_n * _SUM


def candidates(capacity: int, item: int) -> list[Config]:
    """Return every tile that fits *capacity* bytes, sides powers of 2, in bands of 8 rows, as deep as fits."""
    found = []
    for rows, columns in product(_SIDES, _SIDES):
        cuts = [Config(rows, columns, depth, warps=8, stages=_STAGES, group=8) for depth in _DEPTHS]
        fitting = [cut for cut in cuts if storage(cut, item) <= capacity]
        found += fitting[-1:]
    return found


def curve(chip: Chip, sizes: Sizes, dtype: DType = DType.BF16) -> list[Point]:
    """Return the best tile for each capacity, one program to a core, and its traffic and time on *chip*.

    The curve ends one doubling after what is `enough`.
    """
    points = []
    for capacity in (each * KIB for each in CAPACITIES):
        tried = [
            predict(chip, Step("tile", "descriptor", cut, ""), sizes, dtype, programs=1)
            for cut in candidates(capacity, dtype.bits // 8)
        ]
        if tried:
            best = min(tried, key=lambda each: (each.time, each.traffic.asked))
            points.append(Point(capacity, best.step.config, best))
    return points[: points.index(enough(points)) + 2]


def enough(points: list[Point]) -> Point:
    """Return the smallest point beyond which no larger one saves more than 5 % of its time."""
    for index, point in enumerate(points):
        best = min(each.prediction.time for each in points[index:])
        if point.prediction.time - best <= _ENOUGH * point.prediction.time:
            return point
    raise ValueError("no tile fits any of the capacities")
