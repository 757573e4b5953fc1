"""Graphs of any length for benchmarks: a layer repeated, with the operator mix of a transformer."""

from collections.abc import Sequence

from simulator.costs import Cost, Unit
from simulator.dtypes import DType
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role, Tensor, Workload

_LAYER = 30  # operators of one layer; every third is a matrix product


def chain(length: int) -> tuple[OperatorGraph, Sequence[Cost]]:
    """Return a chain of *length* operators, each reading what the one before wrote, and a cost for each."""
    graph = OperatorGraph(Workload("synthetic chain", tokens=1))
    weight = Tensor(graph.add_storage("weight", Role.WEIGHT, 2048).id, (32, 32), DType.BF16)
    shape = (1, 32)
    values = (Tensor(graph.add_storage("input", Role.INPUT, 64).id, shape, DType.BF16),)
    costs = [Cost(Unit.VECTOR, 50, 10, 20, 40, 128)] * length
    layers = [f"layers.{index}" for index in range(-(-length // _LAYER))]
    for index in range(length):
        matmul = index % 3 == 0
        outputs = (Tensor(graph.add_storage("value", Role.ACTIVATION, 64).id, shape, DType.BF16),)
        deps = (graph.operators[-1].id,) if index else ()
        graph.add(
            Operator(
                id=index,
                module=layers[index // _LAYER],
                target="aten.mm" if matmul else "aten.gelu",
                kind=OpKind.MATMUL if matmul else OpKind.POINTWISE,
                phase=Phase.FORWARD,
                inputs=(*values, weight) if matmul else values,
                outputs=outputs,
                flops=2048,
                reads=2112,
                writes=64,
                deps=deps,
                dtype=DType.BF16,
            )
        )
        if matmul:
            costs[index] = _MATMUL
        values = outputs
    return graph, costs


_MATMUL = Cost(Unit.MATRIX, 100, 10, 50, 90, 2176)
