"""Activation recomputation: forward work done again in the backward pass, so that its results need not be kept.

``full`` keeps each layer's input and runs the whole layer again; ``selective`` runs attention's core again, the scores,
their softmax and its product with the values, which are large and cheap (Korthikanti et al. 2022, section 5).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from simulator.dims import MatmulDims
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role
from simulator.parallel.rewriting import Rewriting, renamed
from simulator.parallel.tensor import Sharded

_FUSED = "recompute=selective: attention is one kernel that keeps no scores; nothing to do again"


def recompute(sharded: Sharded, mode: str) -> Sharded:
    """Return *sharded* with the recomputation that *mode* asks for."""
    if mode == "none":
        return sharded
    graph = sharded.graph
    again = _whole_layers(sharded) if mode == "full" else _cores(sharded)
    if not again:
        return replace(sharded, notes=(*sharded.notes, _FUSED)) if mode == "selective" else sharded
    kept = _kept(graph, again) if mode == "selective" else frozenset[int]()
    made = _Again(sharded, again, kept)
    return replace(sharded, graph=made.run(), layers=made.rewriting.layers)


class _Again:
    """Writes forward operators of each layer a second time, before its backward pass first needs one."""

    def __init__(self, sharded: Sharded, again: dict[int, list[Operator]], kept: frozenset[int]) -> None:
        self._sharded, self._again, self._kept = sharded, again, kept
        self.rewriting = Rewriting(sharded.graph)
        self._names: dict[int, dict[int, int]] = {}
        self._written = {
            layer: {each.storage for op in ops for each in op.outputs} - kept for layer, ops in again.items()
        }

    def run(self) -> OperatorGraph:
        for op, layer in zip(self._sharded.graph, self._sharded.layers, strict=True):
            if op.phase is not Phase.BACKWARD or layer not in self._again:
                self.rewriting.keep(op, layer)
                continue
            if layer not in self._names and any(each.storage in self._written[layer] for each in op.inputs):
                self._write(layer, op)
            self.rewriting.keep(op, layer, self._names.get(layer))
        graph = self.rewriting.close()
        self._release(graph)
        return graph

    def _write(self, layer: int, cause: Operator) -> None:
        """The layer's operators again, when the gradient has come to it."""
        names = self._names[layer] = {}
        graph = self.rewriting.graph
        for storage in sorted({each.storage for op in self._again[layer] for each in op.outputs}):
            old = graph.storages[storage]
            if old.role is Role.ACTIVATION:
                names[storage] = self.rewriting.storage(old.name, old.role, old.nbytes).id
        operators = self._sharded.graph.operators
        gradient = [self.rewriting.number[dep] for dep in cause.deps if operators[dep].phase is Phase.BACKWARD]
        inside: dict[int, int] = {}
        for op in self._again[layer]:
            deps = [inside[each] if each in inside else self.rewriting.number[each] for each in op.deps]
            again = renamed(op, names, Phase.RECOMPUTE)
            inside[op.id] = self.rewriting.add(again, deps if inside else [*deps, *gradient], layer).id
        for storage in self._kept & set(names):
            del names[storage]

    def _release(self, graph: OperatorGraph) -> None:
        """What the program held until its backward pass is now held by the second run."""
        for names in self._names.values():
            for old, new in names.items():
                moment = graph.released.pop(old, None)
                if moment is not None and graph.operators[moment].phase is Phase.BACKWARD:
                    graph.released[new] = moment
                elif moment is not None:
                    graph.released[old] = moment


def _forward(sharded: Sharded) -> dict[int, list[Operator]]:
    """Forward operators of each layer, without those before the first and after the last."""
    found: defaultdict[int, list[Operator]] = defaultdict(list)
    for op, layer in zip(sharded.graph, sharded.layers, strict=True):
        if op.phase is Phase.FORWARD and 0 <= layer < sharded.depth:
            found[layer].append(op)
    return found


def _whole_layers(sharded: Sharded) -> dict[int, list[Operator]]:
    return dict(_forward(sharded))


def _cores(sharded: Sharded) -> dict[int, list[Operator]]:
    """From the first product of two activations of a layer to the last: what hangs on it."""
    found = {}
    for layer, ops in _forward(sharded).items():
        products = [op for op in ops if _product(op, sharded.graph)]
        if len(products) > 1:
            found[layer] = _between(ops, products)
    return found


def _product(op: Operator, graph: OperatorGraph) -> bool:
    weights = any(graph.storages[each.storage].role is Role.WEIGHT for each in op.inputs)
    return op.kind is OpKind.MATMUL and isinstance(op.dims, MatmulDims) and op.dims.batch > 1 and not weights


def _between(ops: Sequence[Operator], products: Sequence[Operator]) -> list[Operator]:
    first, last = products[0], products[-1]
    reached = {each.storage for each in first.outputs}
    found = [first]
    for op in ops:
        if first.id < op.id <= last.id and any(each.storage in reached for each in op.inputs):
            reached |= {each.storage for each in op.outputs}
            found.append(op)
    return found


def _kept(graph: OperatorGraph, again: dict[int, list[Operator]]) -> frozenset[int]:
    """What operators of the forward pass outside of the core read of it: attention's output stays."""
    inside = {op.id for ops in again.values() for op in ops}
    made = {each.storage for ops in again.values() for op in ops for each in op.outputs}
    outside = (op for op in graph if op.phase is Phase.FORWARD and op.id not in inside)
    return frozenset(each.storage for op in outside for each in op.inputs) & made
