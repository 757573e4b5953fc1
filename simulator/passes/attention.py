"""Attention written out as products and a softmax becomes the one kernel that keeps its scores on the chip."""

from simulator.dims import AttentionDims, MatmulDims
from simulator.graph import Operator, OperatorGraph, OpKind
from simulator.passes.draft import Draft, Node
from simulator.passes.fused import fuse, names
from simulator.passes.prices import Prices

_SOFTMAX = frozenset(("_softmax", "_safe_softmax"))
_BETWEEN = frozenset((
    "mul", "div", "add", "sub", "where", "masked_fill", "_to_copy", "clone", "mul_", "div_", "masked_fill_"
))  # fmt: skip


def attention(graph: OperatorGraph, prices: Prices) -> OperatorGraph:
    """softmax(Q K^T x scale + mask) V becomes fused attention.

    Legal where nothing else reads scores or probabilities (training keeps them for the backward pass), the softmax runs
    along the keys, and what stands between works on every score alone.  What a mask leaves is data, which the graph
    does not hold: all pairs count, as they did before.
    """
    draft = Draft(graph, prices)
    for op in graph:
        if op.kind is OpKind.REDUCTION and set(names([op])) & _SOFTMAX and not op.group:
            _rewrite(draft, op)
    return draft.build()


def _rewrite(draft: Draft, softmax: Operator) -> None:
    scores, above = _walk(draft, softmax, up=True)
    values, below = _walk(draft, softmax, up=False)
    if scores is None or values is None:
        return
    dims = _dims(scores, values, softmax)
    members = sorted([scores, *above, softmax, *below, values], key=lambda op: op.id)
    node = draft.merged([draft.of(op.id) for op in members])
    if dims is None or node is None or not _scores_stay(draft, node, values):
        return
    internal = draft.internal(node.members)
    fused = fuse(node.members, draft.graph.storages, internal, kind=OpKind.ATTENTION, dims=dims)
    draft.enter_if_faster(node, fused)


def _walk(draft: Draft, softmax: Operator, *, up: bool) -> tuple[Operator | None, list[Operator]]:
    """Follow the scores from the softmax to the product that makes (takes) them, with what stands between."""
    between: list[Operator] = []
    here = softmax
    while True:
        found = _neighbour(draft, here, up=up)
        if found is None or found.kind is OpKind.MATMUL:
            return found, between
        if not set(names([found])) <= _BETWEEN:
            return None, between
        between.append(found)
        here = found


def _neighbour(draft: Draft, op: Operator, *, up: bool) -> Operator | None:
    """The one operator that makes the scores that *op* reads, or that reads those that it makes."""
    size = max(tensor.elements for tensor in op.outputs)
    tensors = op.inputs if up else op.outputs
    found = [
        node.members[0]
        for storage in {tensor.storage for tensor in tensors if tensor.elements == size}
        for node in draft.touching(storage)
        if (node.first < op.id if up else node.first > op.id) and len(node.members) == 1
    ]
    return found[0] if len(found) == 1 else None


def _dims(scores: Operator, values: Operator, softmax: Operator) -> AttentionDims | None:
    """Sizes of the attention, if the products and the softmax fit together."""
    first, second, rows = scores.dims, values.dims, softmax.dims
    if not isinstance(first, MatmulDims) or not isinstance(second, MatmulDims) or first.groups * second.groups > 1:
        return None
    if (first.batch, first.m, first.n) != (second.batch, second.m, second.k):
        return None
    columns, inner = getattr(rows, "columns", 0), getattr(rows, "inner", 0)
    if (columns, inner) != (first.n, 1) or softmax.outputs[0].elements != first.batch * first.m * first.n:
        return None
    shape = softmax.outputs[0].shape
    batch, heads = (shape[0], first.batch // shape[0]) if len(shape) == 4 and shape[0] else (1, first.batch)
    return AttentionDims(batch, heads, heads, first.m, first.n, first.k, second.n)


def _scores_stay(draft: Draft, node: Node, values: Operator) -> bool:
    """Whether everything but the result is made and used up inside."""
    result = {tensor.storage for tensor in values.outputs}
    made = {tensor.storage for op in node.members for tensor in op.outputs}
    return made - result <= draft.internal(node.members)
