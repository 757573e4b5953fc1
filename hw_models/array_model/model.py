"""The ``systolic`` fidelity: products on the arrays cycle by cycle, everything else on the vector unit."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from hw_models.array_model.attention import attention
from hw_models.array_model.place import Place, places, step_rate, word_bytes
from hw_models.array_model.plan import Plan, Product, plan
from hw_models.array_model.products import product_of, products_of_attention
from hw_models.loader import chip_names, load_chip
from hw_models.roofline import roofline_cost
from simulator.costs import Cost, register_model
from simulator.dims import AttentionDims
from simulator.dtypes import DType
from simulator.errors import UsageError
from simulator.graph import MATRIX_KINDS, Operator, OperatorGraph
from simulator.hardware import Chip
from simulator.units import PS_PER_SECOND

Planner = Callable[[tuple[Place, ...], tuple[Product, ...], float, float, bool], Sequence[Plan]]
"""Finds the best plan of each product, as `plan` does; the last two are off-chip bytes a step, and stalls or not."""

_Key = tuple[Any, ...]


@register_model("systolic")
class SystolicModel:
    """Costs of operators on a *chip* with a systolic array; UsageError for a chip without one.

    All products of a graph that are not known yet are planned together by *planner*; each distinct one once.
    """

    ideal = False

    def __init__(self, chip: Chip, planner: Planner = plan) -> None:
        if chip.matrix.array is None:
            raise UsageError(_refusal(chip))
        self._chip = chip
        self._plan = planner
        self._known: dict[_Key, Cost] = {}
        self._places: dict[DType, tuple[Place, ...]] = {}

    def costs(self, graph: OperatorGraph) -> Sequence[Cost]:
        """One cost per operator of *graph*, in order."""
        return self.price(graph.operators)

    def price(self, operators: Sequence[Operator]) -> list[Cost]:
        """One cost per operator, in order."""
        keys = [cost_key(op) for op in operators]
        new = {key: op for key, op in zip(keys, operators, strict=True) if key not in self._known}
        self._price(new)
        known = self._known
        return [known[key] for key in keys]

    def _price(self, new: dict[_Key, Operator]) -> None:
        asked: defaultdict[tuple[DType, bool], dict[_Key, Product]] = defaultdict(dict)
        for key, op in new.items():
            product = product_of(op)
            if op.dtype not in self._chip.matrix.rate or not op.flops or op.kind not in MATRIX_KINDS:
                self._known[key] = self._vector(op)
            elif isinstance(op.dims, AttentionDims):
                self._known[key] = self._attention(op, op.dims)
            elif product is not None:
                asked[op.dtype, product.spread == 1][key] = product
            else:
                self._known[key] = self._vector(op)
        for (dtype, stalls), products in asked.items():
            wanted = tuple(products.values())
            found = self._plan(self._where(dtype), wanted, word_bytes(dtype), self._dram(dtype), stalls)
            self._known |= {key: self._product(new[key], each) for key, each in zip(products, found, strict=True)}

    def _where(self, dtype: DType) -> tuple[Place, ...]:
        if dtype not in self._places:
            self._places[dtype] = places(self._chip, dtype)
        return self._places[dtype]

    def _dram(self, dtype: DType) -> float:
        """Off-chip bytes a step."""
        return self._chip.dram_bandwidth / step_rate(self._chip, dtype)

    def _ps(self, steps: float, dtype: DType) -> int:
        """Picoseconds of *steps*, rounded up but for the last bits of a float."""
        exact = steps * PS_PER_SECOND / step_rate(self._chip, dtype)
        return -int(-exact * (1 - 1e-12) // 1)

    def _product(self, op: Operator, found: Plan) -> Cost:
        floor = roofline_cost(self._chip, op)
        launch = self._chip.overheads.launch
        time = max(self._ps(found.steps, op.dtype), floor.time)
        compute = max(self._ps(found.busy, op.dtype), floor.compute)
        return replace(
            floor,
            time=launch + time,
            launch=launch,
            compute=min(compute, time),
            memory=min(time, max(floor.memory, self._transfer(found.traffic))),
            traffic=max(op.nbytes, round(found.traffic)),
            detail=_detail(found, op, floor.compute / max(1, compute), 1 - compute / max(1, time)),
        )

    def _transfer(self, nbytes: float) -> int:
        return int(nbytes * PS_PER_SECOND / self._chip.dram_bandwidth)

    def _attention(self, op: Operator, dims: AttentionDims) -> Cost:
        chip, floor, launch = self._chip, roofline_cost(self._chip, op), self._chip.overheads.launch
        where = self._where(op.dtype)
        plans = self._plan(where, products_of_attention(dims), word_bytes(op.dtype), inf, False)
        found = attention(dims, op.dtype, tuple(plans), where[-1])
        softmax = int(found.softmax * PS_PER_SECOND / chip.vector_peak(op.dtype))
        arrays = self._ps(found.steps, op.dtype)
        memory = max(floor.memory, self._transfer(op.nbytes + found.again))
        compute = max(arrays, softmax, floor.compute)
        busy = f"cells {floor.compute / max(1, arrays):.0%} busy"
        return replace(
            floor,
            time=launch + max(compute, memory),
            launch=launch,
            compute=compute,
            memory=memory,
            traffic=op.nbytes + round(found.again),
            detail=f"{found.detail}, {busy}, softmax {softmax / max(1, arrays):.2f}x as long beside",
        )

    def _vector(self, op: Operator) -> Cost:
        floor, launch = roofline_cost(self._chip, op), self._chip.overheads.launch
        return replace(floor, time=floor.time + launch, launch=launch)


def cost_key(op: Operator) -> _Key:
    """Return what the cost of *op* depends on: operators with equal keys cost the same on any chip."""
    first = op.inputs[0].elements if op.inputs else 0
    return op.kind, op.dtype, op.dims, op.flops, op.reads, op.writes, first


def _detail(found: Plan, op: Operator, busy: float, stalled: float) -> str:
    """Say how: ``1024 folds of 128x128 (ws), cells 98 % busy, stalled 3 %, 4 arrays as 1x2x2, 3 blocks``."""
    array = found.place.array
    parts = [f"{found.folds} folds of {array.rows}x{array.columns} ({array.dataflow})", f"cells {busy:.0%} busy"]
    if stalled >= 0.005:
        parts.append(f"stalled {stalled:.0%}")
    batch, m, n = found.grid
    if batch * m * n > 1:
        parts.append(f"{batch * m * n} arrays as {batch}x{m}x{n}")
    if found.wide > 1:
        parts.append(f"sums of {found.wide} folds kept")
    if found.blocks > 1:
        parts.append(f"{found.blocks} blocks")
    if op.nbytes and found.traffic >= 1.005 * op.nbytes:
        parts.append(f"traffic {found.traffic / op.nbytes:.2f}x the least")
    return ", ".join(parts)


def _refusal(chip: Chip) -> str:
    rates = ", ".join(f"{macs} {dtype}" for dtype, macs in chip.matrix.macs_per_cycle.items())
    known = [name for name in chip_names() if load_chip(name).matrix.array is not None]
    return (
        f"chip {chip.name} has no systolic array, which fidelity systolic needs: its matrix unit does {rates} "
        f"multiply-adds a cycle in each of {chip.cores} cores (chips with an array: {', '.join(known)})"
    )
