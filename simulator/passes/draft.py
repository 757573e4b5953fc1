"""A graph while a pass works on it: operators become nodes, nodes merge, and a graph comes out again.

Order is kept by two rules.  A merge is legal only if everything that its members wait for stands before everything that
waits for them, so that no other operator has to move; and what waits for what follows from the storages (reads after
writes, writes after reads and writes), not only from the dependencies that the graph declares.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from simulator.graph import Operator, OperatorGraph, Role, Storage
from simulator.memory import MemoryTimeline, memory_timeline
from simulator.passes.fused import fuse, generated
from simulator.passes.prices import Prices


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """Operators that run as one kernel, in program order; *place* says where among the others."""

    members: tuple[Operator, ...]
    place: float

    @property
    def first(self) -> int:
        return self.members[0].id

    @property
    def last(self) -> int:
        return self.members[-1].id


class Draft:
    """The nodes of *graph*, and what stands between them; *prices* decide whether a merge pays."""

    def __init__(self, graph: OperatorGraph, prices: Prices) -> None:
        self.graph = graph
        self._prices = prices
        self._node: dict[int, Node] = {}
        self._readers: defaultdict[int, list[int]] = defaultdict(list)
        self._writers: defaultdict[int, list[int]] = defaultdict(list)
        self._before: list[frozenset[int]] = []
        self._after: defaultdict[int, set[int]] = defaultdict(set)
        self._replaced: dict[Node, Operator] = {}
        for op, before in zip(graph, hazards(graph), strict=True):
            self._before.append(before)
            self._node[op.id] = self._alone(op)
            for each in before:
                self._after[each].add(op.id)
            for tensor in op.inputs:
                self._readers[tensor.storage].append(op.id)
            for tensor in op.outputs:
                self._writers[tensor.storage].append(op.id)

    def _alone(self, op: Operator) -> Node:
        """What waits for nothing (a fill) may run as early as anything needs it: it stands before all others."""
        return Node((op,), float(op.id) if self._before[op.id] else -1.0)

    def __iter__(self) -> Iterator[Node]:
        """Nodes in program order."""
        return iter(sorted({id(node): node for node in self._node.values()}.values(), key=lambda node: node.place))

    def of(self, operator: int) -> Node:
        """The node that the operator is in."""
        return self._node[operator]

    def touching(self, storage: int) -> list[Node]:
        """Nodes that read or write *storage*, in program order."""
        users = self._writers[storage] + self._readers[storage]
        found = {id(self._node[each]): self._node[each] for each in users}
        return sorted(found.values(), key=lambda node: node.place)

    def internal(self, members: Sequence[Operator]) -> frozenset[int]:
        """Storages that *members* write and only they touch, and that nothing needs when they are done."""
        inside = {op.id for op in members}
        made = {tensor.storage for op in members for tensor in op.outputs}
        return frozenset(
            storage
            for storage in made
            if not needed(self.graph, storage)
            and inside.issuperset(self._writers[storage])
            and inside.issuperset(self._readers[storage])
        )

    def feeds_only(self, producer: Node, consumer: Node) -> bool:
        """Whether nothing but *consumer* needs what *producer* makes."""
        made = {tensor.storage for op in producer.members for tensor in op.outputs}
        return made <= self.internal(producer.members + consumer.members)

    def merged(self, nodes: Sequence[Node]) -> Node | None:
        """Return the node of all members of *nodes*, not entered yet; None if it is not legal.

        Members have one phase: forward, backward and optimizer are compiled apart.  A collective is no kernel of the
        chip.  Within a node a storage is written once at most, and by no member after another one has read it.
        """
        members = tuple(sorted((op for node in nodes for op in node.members), key=lambda op: op.id))
        if len({op.phase for op in members}) > 1 or any(op.group for op in members) or _overwrites(members):
            return None
        inside = {op.id for op in members}
        before = (self._node[each].place for op in members for each in self._before[op.id] if each not in inside)
        after = (self._node[each].place for op in members for each in self._after[op.id] if each not in inside)
        earliest, latest = max(before, default=-1.0), min(after, default=float("inf"))
        if earliest >= latest:
            return None
        last = float(members[-1].id)
        return Node(members, last if earliest < last < latest else (earliest + min(latest, earliest + 1.0)) / 2)

    def pays(self, nodes: Sequence[Node], node: Node) -> bool:
        """Whether the model says that *node* is no slower than *nodes* one after another."""
        return self._prices.of([self.operator(node)], self.graph.storages) <= self._prices.of(
            [self.operator(each) for each in nodes], self.graph.storages
        )

    def enter(self, node: Node, operator: Operator | None = None) -> None:
        """Let *node* replace those that its members were in; *operator* is what it becomes, if not what `fuse` says."""
        for op in node.members:
            self._node[op.id] = node
        if operator is not None:
            self._replaced[node] = operator

    def generate(self, node: Node) -> None:
        """Let the one operator of *node* be a kernel that the compiler writes, where it was a library's."""
        self._replaced[node] = generated(node.members[0])

    def enter_if_faster(self, node: Node, operator: Operator) -> None:
        """Let *node*, which becomes *operator*, replace its members if the model says that it is no slower."""
        if self._prices.of([operator], self.graph.storages) <= self._prices.of(node.members, self.graph.storages):
            self.enter(node, operator)

    def operator(self, node: Node) -> Operator:
        """The operator that *node* becomes."""
        if node in self._replaced:
            return self._replaced[node]
        if len(node.members) == 1:
            return node.members[0]
        return fuse(node.members, self.graph.storages, self.internal(node.members))

    def build(self) -> OperatorGraph:
        """Return the graph of all nodes.

        The peak memory never grows: a kernel that would raise it, because it needs all its operands at once or holds
        some of them longer, is taken apart again.
        """
        limit = _peak(self.graph)
        graph, nodes = self._built()
        while len(graph) < len(self.graph) and (found := _timeline(graph)).peak > limit:
            assert found.peak_operator is not None  # an empty graph has no higher peak
            self._take_apart(nodes[found.peak_operator])
            graph, nodes = self._built()
        return graph

    def _take_apart(self, peak: Node) -> None:
        """Undo the merges around *peak*, or all of them if none is near."""
        merged = [node for node in self if len(node.members) > 1]
        near = [node for node in merged if node.first <= peak.last and peak.first <= node.last]
        for node in near or merged:
            for op in node.members:
                self._node[op.id] = self._alone(op)

    def _built(self) -> tuple[OperatorGraph, list[Node]]:
        nodes = self._sorted()
        number = {op.id: index for index, node in enumerate(nodes) for op in node.members}
        graph = copied(self.graph)
        for index, node in enumerate(nodes):
            waits = {number[each] for op in node.members for each in self._before[op.id]} - {index}
            graph.add(replace(self.operator(node), id=index, deps=tuple(sorted(waits))))
        used = {tensor.storage for op in graph for tensors in (op.inputs, op.outputs) for tensor in tensors}
        graph.released = {key: number[op] for key, op in self.graph.released.items() if key in used}
        return graph, nodes

    def _sorted(self) -> list[Node]:
        """Nodes in the order of their places as far as they may run in it.

        What may run early does so only if it has to: where the program has it, or just before the first that needs it.
        """
        nodes = list(self)
        waits = {node: {self._node[b] for op in node.members for b in self._before[op.id]} - {node} for node in nodes}
        followers: defaultdict[Node, list[Node]] = defaultdict(list)
        for node, before in waits.items():
            for each in before:
                followers[each].append(node)
        open_ = {node: len(before) for node, before in waits.items()}
        place = {node: node.place for node in nodes}
        for node in nodes:
            if node.place < 0:
                place[node] = min([float(node.first), *(each.place for each in followers[node])])
        ready = [(place[node], node.first, node) for node in nodes if not open_[node]]
        heapq.heapify(ready)
        order = []
        while ready:
            node = heapq.heappop(ready)[-1]
            order.append(node)
            for each in followers[node]:
                open_[each] -= 1
                if not open_[each]:
                    heapq.heappush(ready, (place[each], each.first, each))
        assert len(order) == len(nodes)  # a legal merge makes no cycle
        return order


def needed(graph: OperatorGraph, storage: int) -> bool:
    """Whether what is in *storage* matters when the run is over: state, gradients, and what the program returns."""
    role = graph.storages[storage].role
    return role.resident or role is Role.GRADIENT or storage in graph.outputs


def hazards(graph: OperatorGraph) -> list[frozenset[int]]:
    """For each operator those that must end first: declared, writers of what it touches, readers of what it writes."""
    return [frozenset((*op.deps, *waits)) for op, waits in zip(graph, _sharing(graph), strict=True)]


def _sharing(graph: OperatorGraph) -> list[frozenset[int]]:
    """`hazards` that follow from the storages."""
    writer: dict[int, int] = {}
    readers: defaultdict[int, set[int]] = defaultdict(set)
    found = []
    for op in graph:
        waits = set[int]()
        written = {tensor.storage for tensor in op.outputs}
        read = {tensor.storage for tensor in op.inputs}
        waits.update(writer[each] for each in read | written if each in writer)
        for each in written:
            waits |= readers[each]
        for each in read:
            readers[each].add(op.id)
        for each in written:
            writer[each] = op.id
            readers[each] = set()
        found.append(frozenset(waits - {op.id}))
    return found


def copied(graph: OperatorGraph, storages: Sequence[Storage] | None = None) -> OperatorGraph:
    """Return a graph with the storages and results of *graph* and no operators yet."""
    return OperatorGraph(
        workload=graph.workload,
        storages=list(graph.storages if storages is None else storages),
        outputs=graph.outputs,
        uncovered=dict(graph.uncovered),
    )


def rebuilt(graph: OperatorGraph, storages: Sequence[Storage], pieces: Sequence[Sequence[Operator]]) -> OperatorGraph:
    """Return *graph* over *storages* with each operator replaced by its *pieces*, in program order, one at least.

    What waited for an operator without sharing a storage with it, or let a storage go with it, does so with the last
    of its pieces; what else the pieces wait for follows from the storages.
    """
    found = copied(graph, storages)
    last: list[int] = []
    for op, made, shared in zip(graph, pieces, _sharing(graph), strict=True):
        deps = tuple(last[dep] for dep in op.deps if dep not in shared)
        for piece in made:
            found.add(replace(piece, id=len(found), deps=deps))
        last.append(len(found) - 1)
    for index, waits in enumerate(hazards(found)):
        found.operators[index] = replace(found.operators[index], deps=tuple(sorted(waits)))
    found.released = {key: last[moment] for key, moment in graph.released.items()}
    return found


def _overwrites(members: Sequence[Operator]) -> bool:
    """Whether a member writes what another one has read or written before: the order within a kernel is not fixed."""
    touched: set[int] = set()
    for op in members:
        if any(tensor.storage in touched for tensor in op.outputs):
            return True
        touched.update(tensor.storage for tensors in (op.inputs, op.outputs) for tensor in tensors)
    return False


def _timeline(graph: OperatorGraph) -> MemoryTimeline:
    return memory_timeline(graph, range(len(graph)))


def _peak(graph: OperatorGraph) -> int:
    return _timeline(graph).peak
