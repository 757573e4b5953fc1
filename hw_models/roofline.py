"""The roofline: an operator takes the longer of its arithmetic and its memory traffic, and nothing else.

It is the floor that no program on the chip can beat, and the explanation of what binds.  It knows no launch
latency, no tiles and no caches; ``tile`` and ``systolic`` do.
"""

from collections.abc import Sequence
from math import inf

from simulator.costs import Cost, Unit, register_model
from simulator.dtypes import DType
from simulator.graph import MATRIX_KINDS, Operator, OperatorGraph, OpKind
from simulator.hardware import Chip
from simulator.units import transfer_ps

_Key = tuple[OpKind, DType, int, int, int]


@register_model("roofline")
class Roofline:
    """Costs of operators on *chip*, one computation for each distinct (kind, dtype, flops, reads, writes)."""

    ideal = True

    def __init__(self, chip: Chip) -> None:
        self._chip = chip
        self._known: dict[_Key, Cost] = {}

    def costs(self, graph: OperatorGraph) -> Sequence[Cost]:
        """One cost per operator of *graph*, in order."""
        known = self._known
        found: list[Cost] = []
        for op in graph.operators:
            key = (op.kind, op.dtype, op.flops, op.reads, op.writes)
            cost = known.get(key)
            if cost is None:
                cost = known[key] = roofline_cost(self._chip, op)
            found.append(cost)
        return found


def roofline_cost(chip: Chip, op: Operator) -> Cost:
    """Cost of *op* alone on *chip*: max(flops / peak, bytes / bandwidth), no launch.

    A matrix product runs on the matrix units at the rate of its dtype, and on the vector units if the matrix units
    have no such mode; everything else that computes runs on the vector units.
    """
    matrix = chip.matrix_peak(op.dtype) if op.kind in MATRIX_KINDS else None
    peak = matrix or chip.vector_peak(op.dtype)
    compute = transfer_ps(op.flops, peak)
    memory = transfer_ps(op.nbytes, chip.dram_bandwidth)
    return Cost(
        unit=_unit(op.kind, on_matrix=matrix is not None),
        time=max(compute, memory),
        launch=0,
        compute=compute,
        memory=memory,
        traffic=op.nbytes,
        detail=_detail(chip, op, on_matrix=matrix is not None),
    )


def _unit(kind: OpKind, on_matrix: bool) -> Unit:
    if on_matrix:
        return Unit.MATRIX
    return {OpKind.MOVE: Unit.DMA, OpKind.COLLECTIVE: Unit.LINK}.get(kind, Unit.VECTOR)


def _detail(chip: Chip, op: Operator, on_matrix: bool) -> str:
    ridge = (ridge_point if on_matrix else vector_ridge_point)(chip, op.dtype)
    text = f"{op.intensity:.4g} FLOP/B, ridge {ridge:.4g}"
    if op.kind in MATRIX_KINDS and not on_matrix:
        text += f"; the matrix unit has no {op.dtype} mode, the vector unit does it"
    return text


def ridge_point(chip: Chip, dtype: DType) -> float:
    """FLOP per byte from which a matrix product in *dtype* is bound by arithmetic and no longer by the DRAM."""
    return chip.peak(dtype) / chip.dram_bandwidth


def vector_ridge_point(chip: Chip, dtype: DType) -> float:
    """The same for work on the vector units."""
    return chip.vector_peak(dtype) / chip.dram_bandwidth


def attainable(chip: Chip, dtype: DType, intensity: float) -> float:
    """FLOP per second that a matrix product of *intensity* FLOP per byte can reach: the roof over that point."""
    if intensity == inf:
        return float(chip.peak(dtype))
    return min(float(chip.peak(dtype)), intensity * chip.dram_bandwidth)
