"""What Inductor works out again where it is used, in place of writing it to memory once.

* `inline`: a value that takes few loads is no tensor: every kernel that uses it works it out.  A residual stream so is
  read as the sum of its last few addends, and written only when these are more than four.  This costs bytes where
  kernels are few, and Inductor does not ask.
* `recompute`: what the backward pass can work out element by element from tensors that are there anyway is not kept
  for it (``min_cut_rematerialization_partition``): less memory, and one tensor less to write.

FLOPs grow by what is done again; the program's own stay what they were, in the phase of the first time.
"""

from collections import defaultdict
from dataclasses import replace

from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role, Storage, Tensor
from simulator.memory import memory_timeline
from simulator.passes.draft import needed, rebuilt
from simulator.passes.fused import fuse
from simulator.passes.prices import Prices
from simulator.passes.spaces import connected, space
from simulator.scope import outside

_MOST_LOADS = 4  # Inductor's realize_reads_threshold


def inline(graph: OperatorGraph, prices: Prices) -> OperatorGraph:
    """Pointwise results of at most four loads that several kernels use are worked out in each of them."""
    found = _Inlining(graph).run()
    return found if _peak(found) <= _peak(graph) else graph


def recompute(graph: OperatorGraph, prices: Prices) -> OperatorGraph:
    """Pointwise results of the forward pass whose operands the backward pass reads as well are worked out there."""
    use = _Use(graph)
    storages = list(graph.storages)
    pieces: list[list[Operator]] = []
    done: set[int] = set()
    again: dict[int, tuple[Operator, Tensor]] = {}  # storage of the first time -> what does it again, and into what
    for op in graph:
        if use.again_backward(op):
            result = op.outputs[0]
            storages.append(Storage(len(storages), f"{graph.storages[result.storage].name} again", Role.ACTIVATION,
                                    graph.storages[result.storage].nbytes))  # fmt: skip
            again[result.storage] = (op, replace(result, storage=storages[-1].id))
        pieces.append(_reading_again(op, again, done))
    return rebuilt(graph, storages, pieces)


def _reading_again(op: Operator, again: dict[int, tuple[Operator, Tensor]], done: set[int]) -> list[Operator]:
    """*op*, reading what is worked out again if it is of the backward pass; before it what does so the first time."""
    if op.phase is not Phase.BACKWARD:
        return [op]
    wanted = {tensor.storage for tensor in op.inputs if tensor.storage in again} - done
    done |= wanted
    first = [replace(again[each][0], outputs=(again[each][1],), phase=op.phase, deps=()) for each in sorted(wanted)]
    inputs = tuple(
        replace(each, storage=again[each.storage][1].storage) if each.storage in again else each for each in op.inputs
    )
    return [*first, replace(op, inputs=inputs)]


class _Use:
    """Who reads and writes each storage of *graph*, by id, and what the compiler sees."""

    def __init__(self, graph: OperatorGraph) -> None:
        self.graph = graph
        self.readers: defaultdict[int, list[Operator]] = defaultdict(list)
        self.writers: defaultdict[int, list[int]] = defaultdict(list)
        self._eager = outside(graph)
        for op in graph:
            for storage in {tensor.storage for tensor in op.inputs}:
                self.readers[storage].append(op)
            for storage in {tensor.storage for tensor in op.outputs}:
                self.writers[storage].append(op.id)

    def generated(self, op: Operator) -> bool:
        """Whether the compiler writes a loop for *op* that reduces nothing."""
        loop = space(op) if op.id not in self._eager else None
        return loop is not None and loop.rows is None

    def fresh(self, op: Operator) -> bool:
        """Whether *op* alone writes its one result, which only readers after it need, out of operands that stay."""
        if len(op.outputs) != 1 or not self.generated(op):
            return False
        result = op.outputs[0].storage
        once = self.writers[result] == [op.id] and not needed(self.graph, result)
        return once and all(max(self.writers[tensor.storage], default=-1) < op.id for tensor in op.inputs)

    def again_backward(self, op: Operator) -> bool:
        """Whether the backward pass should do *op* again: it reads the result, and all operands in any case."""
        if op.phase is not Phase.FORWARD or op.kind is not OpKind.POINTWISE or not self.fresh(op):
            return False
        readers = self.readers[op.outputs[0].storage]
        backward = {each.id for each in readers if each.phase is Phase.BACKWARD}
        forward_fuses = all(self.generated(each) for each in readers if each.phase is Phase.FORWARD)
        elementwise = all(self.generated(each) for each in readers if each.id in backward)
        return bool(backward) and forward_fuses and elementwise and op.id not in backward and all(
            self.graph.storages[tensor.storage].role.resident
            or any(each.phase is Phase.BACKWARD for each in self.readers[tensor.storage])
            for tensor in op.inputs
        )  # fmt: skip


class _Inlining:
    def __init__(self, graph: OperatorGraph) -> None:
        self._graph = graph
        self._use = _Use(graph)
        self._inlined: dict[int, Operator] = {}  # storage -> what works it out from tensors that are in memory

    def run(self) -> OperatorGraph:
        pieces = []
        for old in self._graph:
            op = self._expanded(old)
            if self._few(old, op):
                self._inlined[old.outputs[0].storage] = self._whole(op)
            pieces.append([op])
        return rebuilt(self._graph, self._graph.storages, pieces)

    def _expanded(self, op: Operator) -> Operator:
        """*op* with what it reads worked out in it, unless it is the first to read it: that one is fused anyway."""
        sources = [
            self._inlined[tensor.storage]
            for tensor in op.inputs
            if tensor.storage in self._inlined and self._use.readers[tensor.storage][0].id != op.id
        ]
        if not sources:
            return op
        internal = frozenset(source.outputs[0].storage for source in sources)
        return replace(fuse([*sources, op], self._graph.storages, internal), id=op.id, deps=op.deps, module=op.module)

    def _few(self, old: Operator, op: Operator) -> bool:
        """Whether the result of *op* takes few loads, and more than one kernel uses it, the later ones pointwise."""
        if old.kind is not OpKind.POINTWISE or not self._use.fresh(old) or len(self._whole(op).inputs) > _MOST_LOADS:
            return False
        readers = self._use.readers[old.outputs[0].storage]
        same = all(each.phase is old.phase and connected([old], [each]) for each in readers)
        return len(readers) > 1 and same and all(self._use.generated(each) for each in readers[1:])

    def _whole(self, op: Operator) -> Operator:
        """*op* with what only it uses worked out in it."""
        makers = [maker for maker in map(self._maker, {each.storage for each in op.inputs}) if maker is not None]
        members = [*sorted(map(self._whole, makers), key=lambda each: each.id), op]
        internal = frozenset(maker.outputs[0].storage for maker in makers)
        return fuse(members, self._graph.storages, internal) if makers else op

    def _maker(self, storage: int) -> Operator | None:
        """What makes *storage* for one reader, element by element."""
        made = self._use.writers[storage]
        if len(made) != 1 or len(self._use.readers[storage]) != 1:
            return None
        maker = self._graph.operators[made[0]]
        return maker if self._use.fresh(maker) else None


def _peak(graph: OperatorGraph) -> int:
    return memory_timeline(graph, range(len(graph))).peak
