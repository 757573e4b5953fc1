"""The rule: a pointwise operator moves into the one kernel that reads its result, if the generator can write both.

It is a pass as any other, in fewer lines than the generator: `Draft` keeps the order and says what a merge would break,
and the chip's model whether it pays.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from simulator.graph import Operator, OperatorGraph
from simulator.passes import PASSES
from simulator.passes.draft import Draft, Node
from simulator.passes.prices import Prices
from workloads.compiler.fusion.chain import writable

NAME = "chains"


def chains(graph: OperatorGraph, prices: Prices) -> OperatorGraph:
    """Return *graph* with every chain that the generator can write as one kernel."""
    return _fused(graph, prices).build()


def members(graph: OperatorGraph, prices: Prices) -> list[Sequence[Operator]]:
    """Return the operators of each kernel that `chains` makes, in program order."""
    return [node.members for node in _fused(graph, prices) if len(node.members) > 1]


@contextmanager
def registered() -> Iterator[None]:
    """The rule has a name in `simulator.passes` while this is open, between all other passes."""
    PASSES[NAME] = chains
    try:
        yield
    finally:
        del PASSES[NAME]


def _fused(graph: OperatorGraph, prices: Prices) -> Draft:
    draft = Draft(graph, prices)
    for op in graph:
        while (merged := _with_reader(draft, draft.of(op.id))) is not None:
            draft.enter(merged)
    return draft


def _with_reader(draft: Draft, node: Node) -> Node | None:
    """*node* and the kernel that reads its result, as one; None if they have to stay apart."""
    result = node.members[-1].outputs
    readers = [each for each in draft.touching(result[0].storage) if each is not node] if len(result) == 1 else []
    if len(readers) != 1 or not draft.feeds_only(node, readers[0]):
        return None
    together = (*node.members, *readers[0].members)
    if not all(writable(draft.graph, op) and op.outputs[0].shape == result[0].shape for op in together):
        return None
    merged = draft.merged((node, readers[0]))
    return merged if merged is not None and draft.pays((node, readers[0]), merged) else None
