"""Decode against batch: why batching and quantisation speed up, where the roofline's knee is, and what fits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.dtypes import DType
from simulator.errors import UsageError
from simulator.graph import MATRIX_KINDS, OpKind
from simulator.hardware import Chip
from simulator.program import Mode
from simulator.serving.capacity import capacity
from simulator.serving.composed import Rows, StepShape
from simulator.serving.family import Family
from simulator.units import PS_PER_SECOND
from simulator.variants import Resource
from workloads.inference.bounds import Judge
from workloads.inference.measured import MeasuredPoint
from workloads.inference.times import StepTimes

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class Point:
    """One batch: picoseconds of a step, tokens a second over all sequences, and what binds most of the step."""

    batch: int
    step: int
    tokens_per_second: float
    bound: Resource
    share: float
    fits: bool


@dataclass(frozen=True, slots=True)
class Curve:
    """One kind of weights; *name* is the scheme, or the type of weights that are not quantised.

    weights  bytes of them.
    knee     batch at which the arithmetic of the matrices takes as long as reading them, by the data sheet.
    limit    largest batch whose KV cache fits at this context; 0 if none does.
    """

    quant: str
    name: str
    weights: int
    knee: float
    limit: int
    points: tuple[Point, ...]

    @property
    def best(self) -> Point | None:
        """The fastest point that fits."""
        return max((each for each in self.points if each.fits), key=lambda each: each.tokens_per_second, default=None)


@dataclass(frozen=True, slots=True)
class Settings:
    """What all curves of one picture share; *gain*: tokens a step and sequence (speculative decoding)."""

    chip: Chip
    context: int
    batches: Sequence[int] = BATCHES
    mode: Mode = Mode.GRAPH
    fidelity: str = "tile"
    cache: DType | None = None
    fraction: float = 0.9
    block_size: int = 16


Steps = Callable[[int, int], int]  # (batch, context) -> picoseconds of a step


def curve(family: Family, quant: str, settings: Settings, steps: Steps | None = None, gain: float = 1.0) -> Curve:
    """Decode of *family*, its weights as *quant* has made them.

    steps, gain  another way to time a step, and the tokens that it gains (speculative decoding).
    """
    chip = settings.chip
    times = StepTimes(family, chip, settings.mode, settings.fidelity, settings.cache)
    judge = Judge(times)
    limit = batch_limit(family, settings)
    points = []
    for batch in settings.batches:
        time = steps(batch, settings.context) if steps else times.decode(batch, settings.context)
        shares = judge.shares(StepShape(batch, batch, Rows(batch, 1, settings.context), None))
        bound = max(shares, key=lambda resource: shares[resource])
        rate = batch * gain * PS_PER_SECOND / time
        points.append(Point(batch, time, rate, bound, shares[bound], batch <= limit))
    weights, _, _ = _matrices(family)
    name = str(family.first.workload.dtype) if quant == "none" else quant
    return Curve(quant, name, weights, knee(family, chip), limit, tuple(points))


def _matrices(family: Family) -> tuple[int, int, DType]:
    """Bytes and FLOP a token of the products with weights, and their type."""
    stored = flops = 0
    dtype = family.first.workload.dtype
    for op in family.first:
        if op.kind in MATRIX_KINDS and op.kind is not OpKind.ATTENTION:
            one = family.operator(op.id, 1)
            flops += one.flops
            stored += one.reads - one.inputs[0].nbytes
            dtype = op.dtype
    return stored, flops, dtype


def knee(family: Family, chip: Chip) -> float:
    """Batch at which reading the weights and multiplying with them take equally long, both at the data-sheet rates."""
    stored, flops, dtype = _matrices(family)
    if not flops:
        raise UsageError(f"{family.first.workload.name}: no matrix products in its decode step")
    return (stored / chip.dram_bandwidth) / (flops / chip.peak(dtype))


def batch_limit(family: Family, settings: Settings) -> int:
    """Largest batch of *context* positions that fits beside the weights; 0 if not even one does."""
    try:
        found = capacity(family, settings.chip, settings.block_size, 256, 256, settings.fraction, settings.cache)
    except UsageError:
        return 0
    return found.blocks // -(-settings.context // settings.block_size)


def as_data(
    model: str, settings: Settings, curves: Sequence[Curve], measured: Sequence[MeasuredPoint] = ()
) -> dict[str, Any]:
    """Everything as JSON: seconds, bytes, tokens a second."""
    return {
        "model": model,
        "chip": settings.chip.name,
        "context": settings.context,
        "mode": str(settings.mode),
        "fidelity": settings.fidelity,
        "curves": [_data(each) for each in curves],
        "measured": [
            {"quant": each.quant, "batch": each.batch, "seconds": each.step / PS_PER_SECOND} for each in measured
        ],
    }


def _data(each: Curve) -> dict[str, Any]:
    return {
        "quant": each.quant,
        "name": each.name,
        "weights_bytes": each.weights,
        "knee_batch": each.knee,
        "limit_batch": each.limit,
        "points": [
            {
                "batch": point.batch,
                "seconds": point.step / PS_PER_SECOND,
                "tokens_per_second": point.tokens_per_second,
                "bound": str(point.bound),
                "share": point.share,
                "fits": point.fits,
            }
            for point in each.points
        ],
    }
