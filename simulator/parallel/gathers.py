"""ZeRO-3 (Rajbhandari et al. 2020; torch calls it FSDP): a layer's weights are gathered when a pass comes to it."""

from collections.abc import Sequence
from dataclasses import replace

from simulator.graph import Operator, OperatorGraph, Role, Storage, Tensor
from simulator.parallel.plan import Plan
from simulator.parallel.rewriting import Rewriting


def gathered(
    graph: OperatorGraph, layers: Sequence[int], plan: Plan, rank: int, experts: frozenset[str]
) -> OperatorGraph:
    """Return one pass with the weights of each layer gathered from the replicas of *rank*, one layer ahead of its use.

    layers   of each operator; weights outside of all layers are gathered with those they are used with.
    experts  names of weights that only the replicas of the same experts share.
    """
    pass_ = _Gathering(graph, plan, rank, experts)
    units = _units(graph, layers)
    ahead = iter(units.items())
    pass_.gather(next(ahead, None))
    started: set[int] = set()
    for op, layer in zip(graph, layers, strict=True):
        if layer in units and layer not in started:
            started.add(layer)
            pass_.gather(next(ahead, None))
        pass_.made.keep(op, layer, pass_.names)
    return pass_.made.close()


def _units(graph: OperatorGraph, layers: Sequence[int]) -> dict[int, list[Tensor]]:
    """Weights by the layer that uses them first, in the order in which layers come."""
    found: dict[int, list[Tensor]] = {}
    seen: set[int] = set()
    for op, layer in zip(graph, layers, strict=True):
        for each in _weights(op, graph):
            if each.storage not in seen:
                seen.add(each.storage)
                found.setdefault(layer, []).append(each)
    return found


def _weights(op: Operator, graph: OperatorGraph) -> list[Tensor]:
    return [each for each in op.inputs if graph.storages[each.storage].role is Role.WEIGHT]


class _Gathering:
    """*names*: storages of shards to those of the gathered weights."""

    def __init__(self, graph: OperatorGraph, plan: Plan, rank: int, experts: frozenset[str]) -> None:
        self._groups = {False: plan.ranks_of("dp", rank), True: plan.expert_data_ranks(rank)}
        self._graph, self._experts = graph, experts
        self.made = Rewriting(graph, [self._own(each) for each in graph.storages])
        self.names: dict[int, int] = {}

    def _own(self, storage: Storage) -> Storage:
        """What this replica keeps of *storage*."""
        if storage.role is not Role.WEIGHT:
            return storage
        return replace(storage, nbytes=-(-storage.nbytes // len(self._groups[storage.name in self._experts])))

    def gather(self, unit: tuple[int, list[Tensor]] | None) -> None:
        """Gather the weights of *unit* while what comes next computes; not earlier, or memory would fill."""
        if unit is None:
            return
        layer, tensors = unit
        here = len(self.made.graph)
        before = (here - 1,) if here else ()
        for expert, group in self._groups.items():
            chosen = [each for each in tensors if (self._name(each) in self._experts) == expert]
            if chosen and len(group) > 1:
                self._collect(chosen, group, layer, before)

    def _name(self, tensor: Tensor) -> str:
        return self._graph.storages[tensor.storage].name

    def _collect(self, tensors: list[Tensor], group: tuple[int, ...], layer: int, before: tuple[int, ...]) -> None:
        shards, wholes = [], []
        for each in tensors:
            old = self._graph.storages[each.storage]
            whole = Tensor(each.storage, (old.nbytes * 8 // each.dtype.bits,), each.dtype)
            shards.append(replace(whole, shape=(-(-whole.elements // len(group)),)))
            self.names[each.storage] = self.made.storage(old.name, Role.ACTIVATION, old.nbytes).id
            wholes.append(replace(whole, storage=self.names[each.storage]))
        phase = next(op.phase for op in self._graph)
        module = self._name(tensors[0]).rpartition(".")[0]
        self.made.collective("all_gather", group, shards, wholes, module=module, phase=phase, layer=layer, deps=before)
