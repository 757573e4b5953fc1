"""Finished runs that are small enough to add up by hand, for the tests of tables, terminal, report and timeline."""

from collections.abc import Sequence
from dataclasses import replace

from simulator import simulate
from simulator.costs import Cost, Unit, register_model
from simulator.dtypes import DType
from simulator.graph import MATRIX_KINDS, Operator, OperatorGraph, OpKind, Phase, Role, Workload
from simulator.hardware import Chip, Execution
from simulator.result import Result
from simulator.units import transfer_ps
from tests.simulator.toys import GraphMaker, toy_chip, with_overheads

HOSTILE = '<script>alert("&")</script>'
_UNITS = {OpKind.MOVE: Unit.DMA}


@register_model("by-hand")
class ByHand:
    """The longer of arithmetic and traffic; unlike ``roofline`` it leaves the times between operators alone."""

    ideal = False

    def __init__(self, chip: Chip) -> None:
        self._chip = chip

    def costs(self, graph: OperatorGraph) -> Sequence[Cost]:
        return [self._cost(op) for op in graph]

    def _cost(self, op: Operator) -> Cost:
        matrix = op.kind in MATRIX_KINDS
        unit = Unit.MATRIX if matrix else _UNITS.get(op.kind, Unit.VECTOR)
        peak = self._chip.peak(op.dtype) if matrix else self._chip.vector_peak(op.dtype)
        launch = self._chip.overheads.launch
        compute, memory = transfer_ps(op.flops, peak), transfer_ps(op.nbytes, self._chip.dram_bandwidth)
        return Cost(unit, launch + max(compute, memory), launch, compute, memory, op.nbytes, "one tile")


def two_layers(odd: str = "custom.odd") -> OperatorGraph:
    """Two equal layers and an operator that no rule knows.

    up      64x64x64 product: 524288 FLOP at 32 GFLOP/s = 16.384 us; 24576 B at 16 GB/s = 1.536 us
    layer   4096 additions at 8 GFLOP/s = 0.512 us; 16384 B = 1.024 us
    odd     16000 B = 1 us
    """
    maker = GraphMaker("prefill", tokens=64)
    maker.graph.workload = Workload("toy", "prefill", batch=1, tokens=64, context=64)
    for layer in range(2):
        product = maker.matmul(64, 64, 64, deps=(2 * layer - 1,) if layer else (), module=f"blocks.{layer}.up")
        maker.graph.operators[product.id] = replace(product, target="aten.mm")
        total = maker.storage(f"z{layer}", Role.ACTIVATION, 4096)
        maker.op(product.outputs, (total,), (2 * layer,), flops=4096, module=f"blocks.{layer}", target="aten.add")
    rest = maker.storage("rest", Role.INPUT, 8000)
    maker.op((rest,), (), (3,), OpKind.OTHER, target=odd)
    maker.graph.uncovered[odd] = 1
    return maker.graph


def run(graph: OperatorGraph, chip: Chip | None = None, mode: str = "graph") -> Result:
    """Simulate on the toy chip, with 1 us between operators: 32.768 + 2.048 + 1 + 4 = 39.816 us for two layers."""
    return simulate(graph, chip or with_overheads(toy_chip(), gap=10**6), mode=mode, fidelity="by-hand")


def training() -> OperatorGraph:
    """One product forward and two backward, and an optimizer that moves 8192 B."""
    maker = GraphMaker("train", tokens=64)
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.BACKWARD):
        op = maker.matmul(64, 64, 64, deps=(len(maker.graph) - 1,) if len(maker.graph) else (), module="up")
        maker.graph.operators[op.id] = replace(op, phase=phase)
    weights = maker.graph.operators[0].inputs[1]
    op = maker.op((weights,), (), (2,), target="adamw", flops=1)
    maker.graph.operators[op.id] = replace(op, phase=Phase.OPTIMIZER)
    return maker.graph


def on_units(graph: OperatorGraph) -> Result:
    """The same on a chip whose units run side by side and fetch weights ahead into 32 KiB of SRAM."""
    return run(graph, toy_chip(Execution.UNITS, sram=2**15))


def empty() -> OperatorGraph:
    """A program without any operator; its weights take 1024 B."""
    graph = OperatorGraph(Workload("nothing", dtype=DType.BF16))
    graph.add_storage("w", Role.WEIGHT, 1024)
    return graph


def too_large(link: int | None = None) -> Result:
    """A product whose weights alone are 2 MiB, on a chip with 1 MiB of memory."""
    maker = GraphMaker("prefill", tokens=1)
    maker.matmul(1, 1024, 1024, module="head")
    return run(maker.graph, toy_chip(link=link))
