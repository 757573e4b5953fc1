"""The ``tile`` fidelity: operators become waves of tiles, blocks, streams or folds, with caches between them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from hw_models.residency import hits
from hw_models.roofline import roofline_cost
from hw_models.tile.attention import Attention, attention
from hw_models.tile.folds import folded, folded_attention
from hw_models.tile.machine import Machine, machine
from hw_models.tile.matmul import WIDEST, Product, matmul
from hw_models.tile.paged import paged
from hw_models.tile.rows import AXES, Stream, pointwise, rows
from hw_models.tile.timing import Timing
from simulator.costs import Cost, Unit, register_model
from simulator.dims import AttentionDims, ConvolutionDims, MatmulDims, RowDims
from simulator.dtypes import DType
from simulator.graph import MATRIX_KINDS, Operator, OperatorGraph, OpKind, Phase, Role
from simulator.hardware import Chip

_PLAIN, _BROADCAST_AXES = 3, 2  # up to so many axes tensors are taken for contiguous; then so many are left
_OWN = "xpusim_inference."  # namespace of the kernels of workloads.inference
_GENERATED = ("fused.", _OWN)  # kernels that a compiler writes (simulator.passes), or that are written like those
_TWO_SUMS = ("layer_norm", "softmax")  # along a row: mean and variance (gradient: two as well), maximum and sum
_FLOATS = (DType.FP64, DType.FP32, DType.FP16, DType.BF16)
_UNITS = {OpKind.MOVE: Unit.DMA, OpKind.COLLECTIVE: Unit.LINK}


@register_model("tile")
class TileModel:
    """Costs of operators on *chip*, one computation for each distinct shape and share of cached bytes."""

    ideal = False

    def __init__(self, chip: Chip) -> None:
        self._machine = machine(chip)
        self._known: dict[tuple[Any, ...], _Priced] = {}

    def costs(self, graph: OperatorGraph) -> Sequence[Cost]:
        """One cost per operator of *graph*, in order."""
        known = self._known
        weights = {storage.id for storage in graph.storages if storage.role is Role.WEIGHT}
        found: list[_Priced] = []
        for op, cached in zip(graph.operators, hits(graph, self._machine.resident), strict=True):
            rows_apart = _contiguous_rows(op, weights) if op.phase is Phase.BACKWARD else 0
            key = (op.target, op.kind, op.dtype, op.dims, op.flops, op.reads, op.writes, cached, rows_apart)
            priced = known.get(key)
            if priced is None:
                priced = known[key] = self._priced(op, cached, rows_apart)
            found.append(priced)
        return self._capped(found)

    def _capped(self, found: Sequence["_Priced"]) -> list[Cost]:
        """Costs under the power cap, which looks at each kernel and at the run as a whole."""
        hungry = {id(each): each for each in found if each.watts > self._machine.headroom > 0}
        if not hungry:
            return [each.cost for each in found]
        joules = sum(each.watts * each.cost.time for each in found)
        mean = joules / sum(each.cost.time for each in found)
        slowed = {key: _longer(each, self._machine.slowdown(each.watts, mean)) for key, each in hungry.items()}
        return [slowed.get(id(each), each.cost) for each in found]

    def _priced(self, op: Operator, cached: int, rows_apart: int) -> "_Priced":
        if op.kind is OpKind.COLLECTIVE:
            return _Priced(roofline_cost(self._machine.chip, op), 0.0)
        if not op.flops and not op.nbytes:
            return _Priced(Cost(_unit(self._machine, op), 0, 0, 0, 0, 0, "empty: nothing is launched"), 0.0)
        timing = self._timing(op, cached, rows_apart)
        unit = _unit(self._machine, op)
        time, launch, compute, memory, traffic = (
            _up(value) for value in (timing.time, timing.launch, timing.compute, timing.memory, timing.traffic)
        )
        longest, done = max(time, launch, compute, memory), _up(timing.operations)
        cost = Cost(unit, longest, launch, compute, memory, traffic, timing.detail, operations=done)
        return _Priced(cost, timing.watts)

    def _timing(self, op: Operator, cached: int, rows_apart: int) -> Timing:
        dims, chip = op.dims, self._machine
        on_array = chip.chip.matrix.array is not None and chip.macs(op.dtype) is not None
        if isinstance(dims, MatmulDims | ConvolutionDims):
            product = _product(op, dims, cached, rows_apart)
            return folded(chip, product) if on_array else matmul(chip, product)
        if isinstance(dims, AttentionDims):
            if on_array:
                return folded_attention(chip, dims, op.dtype, op.nbytes, cached)
            work = Attention(dims, op.dtype, op.dtype.bits / 8, op.nbytes, cached, "flash" in op.target)
            return paged(chip, work) if op.target.startswith(_OWN) else attention(chip, work)
        return _vector(chip, op, cached)


@dataclass(frozen=True, slots=True)
class _Priced:
    """What an operator costs if nothing holds it back, and the *watts* above idle that it would then draw."""

    cost: Cost
    watts: float


def _longer(priced: _Priced, factor: float) -> Cost:
    detail = f"{priced.cost.detail}, {factor:.3g}x by the power cap" if factor > 1.005 else priced.cost.detail
    return replace(priced.cost, time=_up(priced.cost.time * factor), detail=detail, clock=1 / factor)


def _up(value: float) -> int:
    """Round up to a whole number, but not because of the last bits of a float."""
    whole = round(value)
    return whole if abs(value - whole) <= 1e-9 * max(1.0, abs(value)) else -int(-value // 1)


def _unit(chip: Machine, op: Operator) -> Unit:
    if op.kind in MATRIX_KINDS:
        return Unit.MATRIX if chip.macs(op.dtype) is not None else Unit.VECTOR
    return _UNITS.get(op.kind, Unit.VECTOR)


def _product(op: Operator, dims: MatmulDims | ConvolutionDims, cached: int, rows_apart: int) -> Product:
    """The matrix product of *op*; a grouped one is so many smaller ones in one launch."""
    size = op.dtype.bits / 8
    out = op.outputs[0].dtype.bits / 8 if op.outputs else size
    if isinstance(dims, ConvolutionDims):
        k = dims.in_channels * dims.taps
        return Product(dims.positions, dims.out_channels, k, dims.groups, op.dtype, size, out, cached=cached)
    m, batch = dims.m, dims.batch
    if dims.groups > 1:
        m, batch = -(-m // dims.groups), dims.groups
    contiguous = {0: (dims.n, dims.k), 1: (dims.m, dims.n)}[rows_apart]
    one = 1 in (dims.m, dims.n) and batch > 1  # vector kernels, which need no wide rows
    width = WIDEST if one else gcd(WIDEST, *(int(extent * size) for extent in contiguous))
    return Product(m, dims.n, dims.k, batch, op.dtype, size, out, width, cached, _packed(op))


def _packed(op: Operator) -> float:
    """Part of its dense size that a quantised weight takes, scales included; 1 where nothing is quantised."""
    narrow = next((at for at, each in enumerate(op.inputs) if each.dtype in (DType.INT4, DType.INT8)), None)
    if narrow is None or not op.dtype.floating or not isinstance(op.dims, MatmulDims):
        return 1.0
    packed = sum(each.nbytes for each in op.inputs[narrow:])  # integers, then their scales and zeros
    return packed * 8 / (op.dims.batch * op.dims.groups * op.dims.n * op.dims.k * op.dtype.bits)


def _contiguous_rows(op: Operator, weights: set[int]) -> int:
    """1 for the gradient of a weight: rows of its transposed operands run along m and n; 0 otherwise (n and k)."""
    if not isinstance(op.dims, MatmulDims):
        return 0
    return int(not any(tensor.storage in weights for tensor in op.inputs))


def _vector(chip: Machine, op: Operator, cached: int) -> Timing:
    """Time of an operator that is no matrix product."""
    name = op.target.rsplit(".", 1)[-1]
    elements = max((tensor.elements for tensor in op.outputs), default=0)
    if name == "adamw":  # writes the parameter and its two moments
        elements = sum(tensor.elements for tensor in op.outputs) // 3
    dims = op.dims if isinstance(op.dims, RowDims) else None
    strided = op.kind is OpKind.MOVE and dims is not None and dims.inner > 1
    aligned = not _ragged(op)
    if "norm" in name and dims is not None:
        aligned = dims.columns * op.dtype.bits // 8 % WIDEST == 0
    work = Stream(
        name,
        op.reads,
        op.writes,
        op.flops,
        op.dtype,
        elements,
        cached,
        dims,
        strided,
        aligned,
        _addressed(op, name),
        _converted(op),
        name.endswith("norm_backward") and len(op.outputs) > 1,
        op.target.startswith(_GENERATED),
        2 if op.target.startswith(_GENERATED) and any(each in op.target for each in _TWO_SUMS) else 1,
    )
    if op.kind is not OpKind.REDUCTION or dims is None:
        return pointwise(chip, work)
    cal = chip.calibration.vector
    if op.target.startswith(_OWN):
        return rows(chip, work, cal.block_norm)
    if "rms_norm" in name:
        return rows(chip, work, cal.rms_norm)
    if "norm" in name:
        return rows(chip, work, cal.norm)
    if "softmax" in name:
        return rows(chip, work, cal.softmax)
    return rows(chip, work, cal.reduction)


def _ragged(op: Operator) -> bool:
    """Whether a copy pads rows that are no multiples of 16 bytes: it cannot load several elements at once."""
    if op.kind is not OpKind.MOVE or len(op.inputs) != 1 or len(op.outputs) != 1 or not op.inputs[0].shape:
        return False
    row, source = op.inputs[0].shape[-1], op.inputs[0]
    return row < op.outputs[0].shape[-1] and row * source.dtype.bits // 8 % WIDEST != 0


def _converted(op: Operator) -> bool:
    """Whether a kernel loads several floating types, or one that it stores in a wider type.

    Libraries convert those element by element, with narrow loads; only the way from fp32 down has kernels of its own.
    A generated loop loads each operand as wide as it can.
    """
    if op.kind not in (OpKind.POINTWISE, OpKind.MOVE) or op.target.startswith(_GENERATED):
        return False
    loaded = {each.dtype for each in op.inputs if each.dtype in _FLOATS and each.shape}
    stored = {each.dtype for each in op.outputs if each.dtype in _FLOATS}
    if len(loaded) > 1:
        return True
    return (
        op.kind is OpKind.MOVE
        and bool(loaded and stored)
        and max(each.bits for each in loaded) < max(each.bits for each in stored)
    )


def _addressed(op: Operator, name: str) -> int:
    """Axes that a kernel takes apart to find the address of each element, as far as shapes tell; 0 if it has not to.

    Operands of different sizes are broadcast; a copy that the program had to make (``clone``) rearranges; pieces of
    heads that are joined along the last axis (rotary embeddings) are views of a permuted tensor.  Up to three axes are
    taken for contiguous: a library makes two of them, the one that is broadcast and the other.
    """
    if name == "adamw":
        return AXES
    if op.target.startswith(_GENERATED):
        return 0
    if op.kind is OpKind.POINTWISE:
        sizes = {tensor.elements for tensor in op.inputs if tensor.elements > 1}
        return 0 if len(sizes) < 2 else AXES if len(op.outputs[0].shape) > _PLAIN else _BROADCAST_AXES
    if op.kind is not OpKind.MOVE or op.dims is not None or not op.outputs:
        return 0
    if name == "cat":
        shape = op.outputs[0].shape
        return AXES * (len(shape) > _PLAIN and any(tensor.shape[-1:] != shape[-1:] for tensor in op.inputs))
    return AXES * (name == "clone")
