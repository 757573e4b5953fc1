"""What depends on nothing but shapes and buffers is computed once, when the program is compiled.

Positions, masks, rotation tables and converted buffers so become buffers that stay in memory.  Inductor does less by
default: it folds tensors of one value only (``constant_fold_uniform_value``), and all others, weights included, if
``config.freezing`` is set, for inference.  This pass is therefore not among the default ones.
"""

from collections import defaultdict
from dataclasses import replace

from simulator.graph import MATRIX_KINDS, Operator, OperatorGraph, OpKind, Role
from simulator.memory import memory_timeline
from simulator.passes.cleaning import without
from simulator.passes.draft import needed
from simulator.passes.fused import fuse, names
from simulator.passes.prices import Prices
from simulator.passes.spaces import joined, space
from simulator.scope import outside

_RANDOM = frozenset((
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "bernoulli", "bernoulli_", "normal", "normal_",
    "uniform_", "random_", "exponential_", "native_dropout", "multinomial", "empty", "empty_like", "new_empty",
))  # fmt: skip


def constants(graph: OperatorGraph, prices: Prices) -> OperatorGraph:
    """Operators on shapes and buffers alone go; what others read of them becomes a buffer.

    Legal if nothing that they read or make is written otherwise, and if nothing outside gets what they make.  A result
    is kept where reading it is faster than working it out in the loops that read it; the largest are left if the
    buffers do not fit the chip, or where that is not known raise the peak memory.
    """
    use = _Constants(graph, prices)
    refused: set[int] = set()
    limit = max(prices.capacity, _peak(graph))
    while True:
        gone, held = use.folded(refused)
        found = _with_buffers(without(graph, [op for op in graph if op.id not in gone]), held)
        if not held or _peak(found) <= limit:
            return found
        refused.add(max(held, key=lambda storage: graph.storages[storage].nbytes))


class _Constants:
    def __init__(self, graph: OperatorGraph, prices: Prices) -> None:
        self._graph = graph
        self._prices = prices
        self._readers: defaultdict[int, list[Operator]] = defaultdict(list)
        self._writers: defaultdict[int, list[int]] = defaultdict(list)
        for op in graph:
            for storage in {tensor.storage for tensor in op.inputs}:
                self._readers[storage].append(op)
            for storage in {tensor.storage for tensor in op.outputs}:
                self._writers[storage].append(op.id)
        self._constant = self._found()

    def _found(self) -> set[int]:
        """Ids of the operators that depend on shapes and buffers alone."""
        eager, found = outside(self._graph), set[int]()
        for op in self._graph:
            known = op.id not in eager and not op.group and bool(op.outputs) and not set(names([op])) & _RANDOM
            if known and op.kind is not OpKind.OTHER and op.kind not in MATRIX_KINDS and all(
                self._fixed(tensor.storage, found) for tensor in op.inputs
            ) and all(self._own(tensor.storage) for tensor in op.outputs):  # fmt: skip
                found.add(op.id)
        return found

    def _fixed(self, storage: int, constant: set[int]) -> bool:
        """Whether *storage* holds the same in every run, at any time."""
        writers = self._writers[storage]
        return set(writers) <= constant if writers else self._graph.storages[storage].role is Role.BUFFER

    def _own(self, storage: int) -> bool:
        """Whether *storage* is written once, and nothing outside gets it."""
        return len(self._writers[storage]) == 1 and not needed(self._graph, storage)

    def folded(self, refused: set[int]) -> tuple[set[int], set[int]]:
        """Ids of the operators that go, and the storages that others read of them; none of *refused*."""
        gone, held = set[int](), set[int]()
        for op in reversed(self._graph.operators):
            if op.id not in self._constant:
                continue
            read = {tensor.storage for tensor in op.outputs if self._outside(tensor.storage, gone)}
            if read & refused or not all(self._worth_holding(op, storage, gone) for storage in read):
                continue
            gone.add(op.id)
            held |= read
        return gone, held

    def _outside(self, storage: int, gone: set[int]) -> list[Operator]:
        return [each for each in self._readers[storage] if each.id not in gone]

    def _worth_holding(self, op: Operator, storage: int, gone: set[int]) -> bool:
        """Whether some reader that remains would be slower if it worked out what *op* makes in its own loop."""
        return any(not self._inside(op, storage, each) for each in self._outside(storage, gone))

    def _inside(self, op: Operator, storage: int, reader: Operator) -> bool:
        """Whether *reader* can work out *op* in its loop and is then no slower than if it reads the result."""
        first, second = space(op), space(reader)
        if first is None or second is None or op.phase is not reader.phase or len(op.outputs) > 1:
            return False
        if joined(first, second, op.outputs, inner=True) is None:
            return False
        together = fuse([op, reader], self._graph.storages, frozenset((storage,)))
        return self._prices.of([together], self._graph.storages) <= self._prices.of([reader], self._graph.storages)


def _with_buffers(graph: OperatorGraph, held: set[int]) -> OperatorGraph:
    """*graph* with *held* as buffers, which are there before the first operator."""
    for storage in held:
        graph.storages[storage] = replace(graph.storages[storage], role=Role.BUFFER)
        graph.released.pop(storage, None)
    return graph


def _peak(graph: OperatorGraph) -> int:
    return memory_timeline(graph, range(len(graph))).peak
