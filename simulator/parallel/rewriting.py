"""Rewrites a rank's graph operator by operator: storages keep their ids, operators move apart."""

from collections.abc import Mapping, Sequence

from simulator.graph import Operator, OperatorGraph, Phase, Storage, Tensor
from simulator.parallel.builder import Builder


class Rewriting(Builder):
    """A copy of *graph* in the making.

    number   operator of the old graph -> the one here that stands for it.
    renamed  storages that operators from now on read and write another one for.
    """

    def __init__(self, graph: OperatorGraph, storages: Sequence[Storage] | None = None) -> None:
        super().__init__(graph.workload)
        self._old = graph
        self.graph.storages = list(graph.storages if storages is None else storages)
        self.graph.outputs = graph.outputs
        self.graph.uncovered = dict(graph.uncovered)
        self.number: dict[int, int] = {}

    def keep(self, op: Operator, layer: int, names: Mapping[int, int] | None = None) -> Operator:
        """Append *op* of the old graph, its storages replaced as *names* say."""
        deps = [self.number[each] for each in op.deps if each in self.number]
        made = self.add(renamed(op, names) if names else op, deps, layer)
        self.number[op.id] = made.id
        return made

    def close(self) -> OperatorGraph:
        """Return the graph, with what the program held longer than it used it."""
        held = self._old.released.items()
        self.graph.released = {key: self.number[moment] for key, moment in held if moment in self.number}
        return self.graph


def renamed(op: Operator, names: Mapping[int, int], phase: Phase | None = None) -> Operator:
    """Return *op* over other storages, and in another *phase* if one is given."""
    return Operator(
        op.id, op.module, op.target, op.kind, phase or op.phase, _over(op.inputs, names), _over(op.outputs, names),
        op.flops, op.reads, op.writes, op.deps, op.dtype, op.dims, op.dispatches, op.group,
    )  # fmt: skip


def _over(tensors: tuple[Tensor, ...], names: Mapping[int, int]) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(names[each.storage], each.shape, each.dtype) if each.storage in names else each for each in tensors
    )
