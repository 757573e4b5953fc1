"""Builds a graph operator by operator; what waits for what follows from the storages."""

from collections.abc import Iterable, Sequence

from simulator.dims import CollectiveDims
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role, Storage, Tensor, Workload


class Builder:
    """A graph in the making.

    layers  of each operator so far, for who splits it later.
    """

    def __init__(self, workload: Workload) -> None:
        self.graph = OperatorGraph(workload)
        self.layers: list[int] = []
        self._writer: dict[int, int] = {}
        self._readers: dict[int, list[int]] = {}

    def storage(self, name: str, role: Role, nbytes: int) -> Storage:
        return self.graph.add_storage(name, role, nbytes)

    def writer(self, storage: int) -> int | None:
        """The operator that wrote *storage* last."""
        return self._writer.get(storage)

    def add(self, op: Operator, deps: Iterable[int] = (), layer: int = -1) -> Operator:
        """Append *op* under the next id; it waits for *deps*, and for whoever touches its storages before it."""
        waits = set(deps)
        reads = [each.storage for each in op.inputs]
        writes = [each.storage for each in op.outputs]
        for each in (*reads, *writes):
            if (writer := self._writer.get(each)) is not None:
                waits.add(writer)
        for each in writes:
            waits.update(self._readers.pop(each, ()))
        made = self.graph.add(placed(op, len(self.graph), tuple(sorted(waits))))
        for each in reads:
            self._readers.setdefault(each, []).append(made.id)
        for each in writes:
            self._writer[each] = made.id
            self._readers[each] = []
        self.layers.append(layer)
        return made

    def collective(
        self,
        pattern: str,
        group: tuple[int, ...],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        *,
        module: str,
        phase: Phase,
        layer: int = -1,
        deps: Iterable[int] = (),
    ) -> Operator:
        """Append a collective of *inputs* into *outputs*; its payload is the larger side, as `CollectiveDims` says."""
        sent, received = (sum(each.nbytes for each in side) for side in (inputs, outputs))
        op = Operator(
            id=0, module=module, target=pattern, kind=OpKind.COLLECTIVE, phase=phase, inputs=tuple(inputs),
            outputs=tuple(outputs), flops=0, reads=sent, writes=received, deps=(), dtype=inputs[0].dtype,
            dims=CollectiveDims(pattern, sent if pattern == "all_to_all" else max(sent, received)), group=group,
        )  # fmt: skip
        return self.add(op, deps, layer)


def placed(op: Operator, id: int, deps: tuple[int, ...]) -> Operator:
    """*op* under another id; written out, since it is what most of the time of a plan goes to."""
    return Operator(
        id, op.module, op.target, op.kind, op.phase, op.inputs, op.outputs, op.flops, op.reads, op.writes, deps,
        op.dtype, op.dims, op.dispatches, op.group,
    )  # fmt: skip
