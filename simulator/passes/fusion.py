"""Fusion of neighbours: pairs of nodes that hand each other tensors, or read the same ones, until no pair is left.

The pair that saves most bytes comes first, as in Inductor's scheduler.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator

from simulator.graph import OperatorGraph, OpKind, Tensor
from simulator.passes.draft import Draft, Node
from simulator.passes.prices import Prices
from simulator.passes.spaces import Space, connected, joined, space
from simulator.scope import outside

_NEAR = 4  # nodes on from one that reads the same storage
Allowed = Callable[[Space, Space], bool]


def fuse_pairs(graph: OperatorGraph, prices: Prices, allowed: Allowed) -> OperatorGraph:
    """Merge pairs of generated kernels whose loops *allowed* lets meet."""
    return _Fusion(graph, prices, allowed).run()


class _Fusion:
    def __init__(self, graph: OperatorGraph, prices: Prices, allowed: Allowed) -> None:
        self._draft = Draft(graph, prices)
        self._allowed = allowed
        self._spaces: dict[Node, Space] = {}
        eager = outside(graph)
        for node in self._draft:
            found = space(node.members[0])
            if found is not None and node.first not in eager:
                self._spaces[node] = found
                if allowed(found, found):
                    self._draft.generate(node)

    def run(self) -> OperatorGraph:
        refused: set[tuple[Node, Node]] = set()
        while pairs := [pair for pair in self._pairs() if pair[1:] not in refused]:
            for _, first, second in sorted(pairs, key=lambda each: (-each[0], each[1].place, each[2].place)):
                if first not in self._spaces or second not in self._spaces:
                    continue  # merged in this round already
                if not self._merge(first, second):
                    refused.add((first, second))
        return self._draft.build()

    def _pairs(self) -> Iterator[tuple[int, Node, Node]]:
        """Bytes in common and the two nodes, the earlier first."""
        common: defaultdict[tuple[Node, Node], int] = defaultdict(int)
        for storage in self._draft.graph.storages:
            near = [node for node in self._draft.touching(storage.id) if node in self._spaces]
            for index, node in enumerate(near):
                for other in near[index + 1 : index + 1 + _NEAR]:
                    common[node, other] += storage.nbytes
        for (first, second), nbytes in common.items():
            yield nbytes, first, second

    def _merge(self, first: Node, second: Node) -> bool:
        """Make one kernel of two if that is legal and pays; a legal one that does not pay stays as it is."""
        one, other = self._spaces[first], self._spaces[second]
        if not self._allowed(one, other):
            return False
        handed = connected(first.members, second.members)
        if handed is False or (handed is None and connected(second.members, first.members) is not None):
            return False
        inner = handed is True and self._draft.feeds_only(first, second)
        loop = joined(one, other, _shared(first, second), inner=inner)
        node = self._draft.merged((first, second)) if loop is not None else None
        if loop is None or node is None or not self._draft.pays((first, second), node):
            return False
        self._draft.enter(node)
        del self._spaces[first], self._spaces[second]
        self._spaces[node] = loop
        return True


def _shared(first: Node, second: Node) -> list[Tensor]:
    """Tensors over storages that both nodes touch."""
    touched = [
        {tensor.storage for op in node.members for tensor in (*op.inputs, *op.outputs)} for node in (first, second)
    ]
    both = touched[0] & touched[1]
    return [
        tensor
        for node in (first, second)
        for op in node.members
        for tensor in (*op.inputs, *op.outputs)
        if tensor.storage in both
    ]


def pointwise(graph: OperatorGraph, prices: Prices) -> OperatorGraph:
    """Chains and siblings of pointwise operators and moves over the same elements become one kernel."""
    return fuse_pairs(graph, prices, lambda one, other: one.rows is None and other.rows is None)


def reductions(graph: OperatorGraph, prices: Prices) -> OperatorGraph:
    """Pointwise work before and after a norm, softmax or sum along the same rows joins it."""
    return fuse_pairs(graph, prices, lambda one, other: not (one.rows is None and other.rows is None))


def epilogue(graph: OperatorGraph, prices: Prices) -> OperatorGraph:
    """Pointwise work on the result of a matrix product moves into it, where nothing else needs the bare result.

    Not in the default pipeline: Inductor calls the vendor's library for matrix products and fuses around them.
    """
    draft = Draft(graph, prices)
    for op in graph:
        if op.kind is not OpKind.MATMUL:
            continue
        while (merged := _next(draft, draft.of(op.id))) is not None:
            draft.enter(merged)
    return draft.build()


def _next(draft: Draft, product: Node) -> Node | None:
    """The product with the one kernel that takes all of its result, if that can be part of it."""
    result = draft.operator(product).outputs
    after = [node for node in draft.touching(result[0].storage) if node is not product] if len(result) == 1 else []
    if len(after) != 1 or len(after[0].members) != 1:
        return None
    loop = space(after[0].members[0])
    taken = connected(product.members, after[0].members) and draft.feeds_only(product, after[0])
    if loop is None or loop.rows is not None or loop.elements != result[0].elements or not taken:
        return None
    node = draft.merged((product, after[0]))
    return node if node is not None and draft.pays((product, after[0]), node) else None
