"""Data parallelism in the backward pass: gradients in buckets, summed over the replicas while it goes on."""

from dataclasses import replace

from simulator.dtypes import DType
from simulator.graph import Operator, OperatorGraph, Phase, Role, Tensor
from simulator.parallel.plan import Plan
from simulator.parallel.rewriting import Rewriting

BUCKET = 25 * 2**20  # bytes; what torch's DistributedDataParallel takes


def accumulated(graph: OperatorGraph, mixed: bool, adds: bool) -> OperatorGraph:
    """Return the backward pass with gradients in fp32 (*mixed*), added to those of earlier microbatches (*adds*).

    The product that makes a gradient adds to it (fused accumulation, as in Megatron-LM): it reads what it writes.
    """
    storages = list(graph.storages)
    if mixed:
        for op in graph:
            for each in op.outputs:
                held = graph.storages[each.storage]
                if held.role is Role.GRADIENT:
                    storages[held.id] = replace(held, nbytes=held.nbytes * DType.FP32.bits // each.dtype.bits)
    return replace(graph, storages=storages, operators=[_adding(op, graph, mixed, adds) for op in graph])


def _adding(op: Operator, graph: OperatorGraph, mixed: bool, adds: bool) -> Operator:
    if not any(graph.storages[each.storage].role is Role.GRADIENT for each in op.outputs):
        return op
    gradient = [graph.storages[each.storage].role is Role.GRADIENT for each in op.outputs]
    outputs = tuple(
        replace(each, dtype=DType.FP32) if mixed and is_gradient else each
        for each, is_gradient in zip(op.outputs, gradient, strict=True)
    )
    wider = sum(each.nbytes for each in outputs) - sum(each.nbytes for each in op.outputs)
    there = sum(each.nbytes for each, is_gradient in zip(outputs, gradient, strict=True) if is_gradient and adds)
    return replace(op, reads=op.reads + there, writes=op.writes + wider, outputs=outputs)


def reduced(
    graph: OperatorGraph, plan: Plan, rank: int, experts: frozenset[str], bucket: int = BUCKET
) -> OperatorGraph:
    """Return the backward pass with the gradients reduced over the replicas of *rank*.

    bucket   bytes of gradients that go together, in the order in which they are complete.
    experts  names of weights and gradients that only the replicas of the same experts share.

    zero=0 sums them in place; with 1 to 3 each replica gets its part of the sum, which from 2 on is all that it keeps.
    """
    if plan.dp == 1:
        return graph
    made = _Reducing(graph, plan, rank, experts)
    for op in graph:
        made.write(op, bucket)
    made.flush()
    return made.rewriting.close()


class _Reducing:
    def __init__(self, graph: OperatorGraph, plan: Plan, rank: int, experts: frozenset[str]) -> None:
        self._graph, self._plan, self._experts = graph, plan, experts
        self._groups = {False: plan.ranks_of("dp", rank), True: plan.expert_data_ranks(rank)}
        passing = plan.zero > 1
        self.rewriting = Rewriting(
            graph,
            [
                replace(each, role=Role.ACTIVATION) if passing and each.role is Role.GRADIENT else each
                for each in graph.storages
            ],
        )
        self._last = {each.storage: op.id for op in graph for each in op.outputs}
        self._open: dict[bool, list[Tensor]] = {False: [], True: []}
        self._ops: dict[bool, Operator] = {}

    def write(self, op: Operator, bucket: int) -> None:
        self.rewriting.keep(op, -1)
        for each in op.outputs:
            storage = self._graph.storages[each.storage]
            if storage.role is Role.GRADIENT and self._last[each.storage] == op.id:
                expert = storage.name in self._experts
                self._open[expert].append(each)
                self._ops[expert] = op
                if sum(tensor.nbytes for tensor in self._open[expert]) >= bucket:
                    self._send(expert)

    def flush(self) -> None:
        for expert, tensors in self._open.items():
            if tensors:
                self._send(expert)

    def _send(self, expert: bool) -> None:
        tensors, self._open[expert] = self._open[expert], []
        group = self._groups[expert]
        if len(group) == 1:
            return
        pattern = "reduce_scatter" if self._plan.zero else "all_reduce"
        outputs = [self._part(each, len(group)) for each in tensors] if self._plan.zero else tensors
        self.rewriting.collective(
            pattern, group, tensors, outputs, module=self._ops[expert].module, phase=Phase.BACKWARD
        )

    def _part(self, tensor: Tensor, ways: int) -> Tensor:
        """Where the part of a gradient goes that this replica updates."""
        part = replace(tensor, shape=(-(-tensor.elements // ways),))
        if self._plan.zero == 1:
            return part
        name = self._graph.storages[tensor.storage].name
        return replace(part, storage=self.rewriting.storage(name, Role.GRADIENT, part.nbytes).id)
