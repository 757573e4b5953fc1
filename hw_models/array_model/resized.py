"""A traced program on one chip with other sizes of array, scratchpad and memory bandwidth.

Every run costs what ``SystolicModel`` says, operator after operator: nothing is fetched ahead across operators, so
neither more scratchpad nor more bandwidth ever makes it slower.  Equal operators are costed once, and all bandwidths
of one array and scratchpad are planned together.

What grows with the array: the scratchpad's port, with the edge that it feeds (rows + columns), and the vector unit,
with the columns that results leave by.  All else is the base chip's.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import isinf

from hw_models.array_model.model import SystolicModel, cost_key
from hw_models.array_model.place import Place, least_bytes, step_rate, word_bytes
from hw_models.array_model.plan import Plan, Product, plan, plans
from hw_models.array_model.point import Binds, Point, Size
from hw_models.systolic import Array, Dataflow
from simulator.costs import Cost, Unit
from simulator.dtypes import DType
from simulator.errors import UsageError
from simulator.graph import MATRIX_KINDS, Operator, OperatorGraph
from simulator.hardware import Chip, MemoryLevel, SystolicArray
from simulator.units import transfer_ps


class Program:
    """A traced *graph* ready to run on variants of *chip*.

    UsageError for a chip without an array, without on-chip memory, or whose array does not multiply the graph's type.
    """

    def __init__(self, graph: OperatorGraph, chip: Chip) -> None:
        self.graph, self.chip = graph, chip
        self._level = check_chip(chip, self.dtype)
        counts = Counter(cost_key(op) for op in graph)
        if not any(op.flops and op.kind in MATRIX_KINDS for op in graph):
            raise UsageError(f"{graph.workload.name}: has no matrix product, so there is no array to size")
        distinct = {cost_key(op): op for op in graph}
        self._distinct = [(op, counts[key]) for key, op in distinct.items()]

    @property
    def dtype(self) -> DType:
        """The type of most FLOP of matrix products; that of the weights if there are none."""
        flops: Counter[DType] = Counter()
        for op in self.graph:
            if op.kind in MATRIX_KINDS:
                flops[op.dtype] += op.flops
        return max(flops, key=lambda dtype: flops[dtype], default=self.graph.workload.dtype)

    @cached_property
    def _largest(self) -> int:
        """Which of the distinct operators has most FLOP in all."""
        flops = [op.flops * count * (op.kind in MATRIX_KINDS) for op, count in self._distinct]
        return flops.index(max(flops))

    @property
    def largest(self) -> Operator:
        """The matrix operator with most FLOP, all equal ones together."""
        return self._distinct[self._largest][0]

    @property
    def least(self) -> int:
        """Off-chip bytes if every operand of every operator crosses once."""
        return sum(op.nbytes * count for op, count in self._distinct)

    def variant(self, size: Size, dataflow: Dataflow, sram: int, bandwidth: int) -> Chip:
        """Return the base chip with another array, scratchpad and memory bandwidth."""
        chip, old = self.chip, self.chip.matrix.array
        assert old is not None  # __init__ has refused chips without one
        array = SystolicArray(rows=size.rows, columns=size.columns, count=old.count, dataflow=dataflow.value)
        edge, wide = (size.rows + size.columns) / (old.rows + old.columns), size.columns / old.columns
        lanes = {dtype: max(1, round(rate * wide)) for dtype, rate in chip.vector.flops_per_cycle.items()}
        port = None if self._level.bandwidth is None else max(1, round(self._level.bandwidth / self._share * edge))
        level = replace(self._level, scope="core", capacity=sram, bandwidth=port)
        return replace(
            chip,
            matrix=replace(chip.matrix, array=array),
            vector=replace(chip.vector, flops_per_cycle=lanes),
            memory={"scratchpad": level, chip.dram_name: replace(chip.dram, bandwidth=bandwidth)},
        )

    @property
    def _share(self) -> int:
        """Cores among which the bandwidth of the scratchpad level is divided."""
        return self.chip.cores if self._level.scope == "chip" else 1

    def least_sram(self, size: Size, dataflow: Dataflow) -> int:
        """Bytes of scratchpad of a core with which an array of *size* can work at all."""
        old = self.chip.matrix.array
        assert old is not None
        one = least_bytes(Array(size.rows, size.columns, dataflow), word_bytes(self.dtype))
        return one * old.count

    def points(self, size: Size, dataflow: Dataflow, sram: int, bandwidths: Sequence[int]) -> list[Point]:
        """Run at each of *bandwidths*; empty if the scratchpad cannot hold one fold."""
        if sram < self.least_sram(size, dataflow):
            return []
        chips = [self.variant(size, dataflow, sram, bandwidth) for bandwidth in bandwidths]
        together = _Together(chips)
        found = []
        for chip, bandwidth in zip(chips, bandwidths, strict=True):
            costs = SystolicModel(chip, together).price([op for op, _ in self._distinct])
            found.append(self._point(chip, costs, size, dataflow, sram, bandwidth))
        return found

    def _point(
        self, chip: Chip, costs: Sequence[Cost], size: Size, dataflow: Dataflow, sram: int, bandwidth: int
    ) -> Point:
        shares = dict.fromkeys(Binds, 0)
        shares[Binds.LAUNCH] = chip.overheads.host_submit
        flops = ideal = busy = traffic = 0
        for (op, count), cost in zip(self._distinct, costs, strict=True):
            for binds, part in _shares(op, cost, bandwidth).items():
                shares[binds] += count * part
            traffic += count * cost.traffic
            if cost.unit is Unit.MATRIX:
                flops += count * op.flops
                ideal += count * transfer_ps(op.flops, chip.peak(op.dtype))
                busy += count * cost.compute
        return Point(
            size, dataflow, sram, bandwidth, sum(shares.values()), shares, flops, chip.peak(self.dtype), ideal, busy,
            traffic, self.least, costs[self._largest].detail,
        )  # fmt: skip


def check_chip(chip: Chip, dtype: DType) -> MemoryLevel:
    """Return the largest on-chip level, which stands for all of them.

    UsageError for a chip without an array or on-chip memory, or whose array does not multiply *dtype*.
    """
    SystolicModel(chip)  # refuses a chip without an array
    if dtype not in chip.matrix.rate:
        known = ", ".join(chip.matrix.rate)
        raise UsageError(f"the arrays of {chip.name} do not multiply {dtype} (they multiply {known})")
    levels = [level for level in chip.memory.values() if level.scope != "device"]
    if not levels:
        raise UsageError(f"chip {chip.name}: has no on-chip memory (a level with 'scope: core' or 'scope: chip')")
    return max(levels, key=lambda level: level.capacity)


def _shares(op: Operator, cost: Cost, bandwidth: int) -> dict[Binds, int]:
    """Divide the time of one operator by what it goes to.

    Where the traffic takes longer than the arithmetic it is bandwidth that binds; of that, what the traffic takes
    beyond the least bytes, or beyond the arithmetic, is capacity.  Else the unit binds, but for its waits.
    """
    unit = Binds.ARRAY if cost.unit is Unit.MATRIX else Binds.VECTOR
    least = transfer_ps(op.nbytes, bandwidth)
    capacity = max(0, cost.memory - max(cost.compute, least))
    rest = cost.time - cost.launch - capacity
    compute = min(cost.compute, rest) if cost.compute >= least else 0
    return {Binds.LAUNCH: cost.launch, Binds.CAPACITY: capacity, unit: compute, Binds.BANDWIDTH: rest - compute}


class _Together:
    """Plans products for the bandwidths of all *chips*, which differ in nothing else, when the first one asks."""

    def __init__(self, chips: Sequence[Chip]) -> None:
        rates = chips[0].matrix.rate
        self._drams = [tuple(chip.dram_bandwidth / step_rate(chip, dtype) for chip in chips) for dtype in rates]
        self._known: dict[tuple[object, ...], Sequence[Plan]] = {}

    def __call__(
        self, choices: tuple[Place, ...], products: tuple[Product, ...], size: float, dram: float, stalls: bool
    ) -> Sequence[Plan]:
        if isinf(dram):
            return plan(choices, products, size, dram, stalls)
        asked = choices, products, size, stalls
        if (*asked, dram) not in self._known:
            drams = next(each for each in self._drams if dram in each)
            found = plans(choices, products, size, drams, stalls)
            self._known |= {(*asked, each): one for each, one in zip(drams, found, strict=True)}
        return self._known[*asked, dram]
