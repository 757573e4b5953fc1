"""Rules for norms, softmax, sums and losses, and for the tables of an embedding, over tensor-parallel ranks."""

from dataclasses import replace

from simulator.dims import RowDims
from simulator.graph import Operator, Role, Tensor
from simulator.parallel.decisions import Context, Decision, merged
from simulator.parallel.layouts import PARTIAL, WHOLE, Layout, Split

_F, _T = Split.FEATURES, Split.TOKENS
_SOFTMAX = {"_softmax": 2, "_log_softmax": 2, "_safe_softmax": 2}  # the largest of a row, and its sum
_SOFTMAX_BACKWARD = frozenset({"_softmax_backward_data", "_log_softmax_backward_data"})
_SUMS = frozenset({"sum", "mean"})


def decide_rows(op: Operator, name: str, context: Context) -> Decision:
    """Work along rows: each rank has some of the rows, or a part of every row."""
    dims = op.dims if isinstance(op.dims, RowDims) else RowDims(1, op.inputs[0].elements)
    layouts = [context.of(each) for each in op.inputs]
    divided = [each for each in layouts if each.split is _F]
    if divided:
        return _on_features(op, name, dims, context, layouts)
    settled = [context.settled(each) for each in op.inputs]
    if any(each.split is _T for each in settled):
        return _on_tokens(op, name, dims, context, settled)
    return Decision((WHOLE,) * len(op.inputs), (WHOLE,) * len(op.outputs))


def _on_features(op: Operator, name: str, dims: RowDims, context: Context, layouts: list[Layout]) -> Decision:
    found = merged([each for each in layouts if each.split is _F])
    crosses = dims.inner == 1 and dims.columns == found.width and found.share[0] < found.share[1]
    known = name in _SOFTMAX or name in _SOFTMAX_BACKWARD
    if (crosses and not known) or any(_foreign(op, place, context, layouts) for place in range(len(layouts))):
        context.keep_whole(op, tuple(each for each in layouts if each.split is _F))
        return Decision((WHOLE,) * len(op.inputs), (WHOLE,) * len(op.outputs))
    needs = tuple(
        layout if layout.split is _F else context.settled(each, whole=True)
        for each, layout in zip(op.inputs, layouts, strict=True)
    )
    if crosses:
        count = _SOFTMAX.get(name, 0 if op.inputs[0].storage in context.summed else 1)
        local = replace(dims, columns=found.part(dims.columns))
        return Decision(needs, (found,) * len(op.outputs), found.share, local, (dims.rows,) * count)
    gives = tuple(found if _carries(each, found, context) else PARTIAL for each in op.outputs)
    local = replace(dims, rows=found.part(dims.rows))
    return Decision(needs, gives, found.share, local)


def _foreign(op: Operator, place: int, context: Context, layouts: list[Layout]) -> bool:
    """Whether an input is an activation as large as the divided ones, but not divided."""
    size = max(each.elements for each, layout in zip(op.inputs, layouts, strict=True) if layout.split is _F)
    tensor, layout = op.inputs[place], layouts[place]
    own = layout.split not in (_F, Split.FILLED) and context.role(tensor) is Role.ACTIVATION
    return own and tensor.elements >= size > 1


def _carries(tensor: Tensor, layout: Layout, context: Context) -> bool:
    """Whether *tensor* has something for each divided feature or head, and is not one sum over them all."""
    wide = layout.width > 0 and tensor.elements % layout.width == 0
    return wide or (context.role(tensor) is not Role.GRADIENT and tensor.elements % context.sizes.tokens == 0)


def _on_tokens(op: Operator, name: str, dims: RowDims, context: Context, settled: list[Layout]) -> Decision:
    """Rows are whole on the rank that has the token; sums over tokens are partial."""
    sizes, tokens = context.sizes, context.tokens
    needs = tuple(
        tokens if each.elements % sizes.tokens == 0 and context.role(each) is not Role.WEIGHT else layout
        for each, layout in zip(op.inputs, settled, strict=True)
    )
    if dims.inner == 1 and dims.rows % sizes.tokens == 0:
        gives = tuple(
            PARTIAL if each.elements % sizes.tokens or context.role(each) is Role.GRADIENT else tokens
            for each in op.outputs
        )
        return Decision(needs, gives, tokens.share, replace(dims, rows=tokens.part(dims.rows)))
    if name in _SUMS:
        kept = sizes.seq in op.outputs[0].shape and context.role(op.outputs[0]) is not Role.GRADIENT
        local = replace(dims, rows=tokens.part(dims.rows)) if kept else replace(dims, columns=tokens.part(dims.columns))
        return Decision(needs, (tokens if kept else PARTIAL,) * len(op.outputs), tokens.share, local)
    return Decision((WHOLE,) * len(op.inputs), (WHOLE,) * len(op.outputs))


def embedding(op: Operator, context: Context) -> Decision:
    """Rows of a table: of the vocabulary a rank has a part and looks up what falls into it; the rest is zeros.

    The table of the program's own token ids is divided; a table of positions is small and stays whole.
    """
    table, ids = op.inputs[0], op.inputs[1]
    if table.storage in context.undivided or context.role(ids) is not Role.INPUT:
        local = context.tokens if context.sequence and context.sizes.seq in ids.shape else WHOLE
        return Decision((WHOLE, local), (local,), local.share)
    held = context.of(table)
    if not held.axis:
        held = Layout(_F, context.share(table.storage), table.shape[0], "out", frozenset({table.storage}))
    return Decision((held, WHOLE), (PARTIAL,), (1, 1))


def embedding_backward(op: Operator, context: Context) -> Decision:
    """The gradient of a table: of a divided one every rank needs all tokens, of a whole one it sums its own."""
    gradient, ids = op.inputs[0], op.inputs[1]
    layout = context.settled(gradient)
    if context.role(ids) is Role.INPUT:
        rows = op.outputs[0].shape[0]
        for weight, held in context.layouts.items():
            if held.axis == "out" and context.graph.storages[weight].name.startswith(f"{op.module}."):
                found = Layout(_F, held.share, rows, "", frozenset({weight}))
                return Decision((WHOLE, WHOLE), (found,), (1, 1))
    if layout.split is _T:
        return Decision((layout, layout), (PARTIAL,), layout.share)
    return Decision((WHOLE, WHOLE), (WHOLE,))


def loss(op: Operator, context: Context) -> Decision:
    """The log-probability of each target: the rank that has its column knows it, and an all-reduce tells the others."""
    scores = context.of(op.inputs[0])
    rest = (WHOLE,) * (len(op.inputs) - 1)
    if scores.split is _F:
        return Decision((scores, *rest), (WHOLE,) * len(op.outputs), reduces=(op.inputs[1].elements,))
    settled = context.settled(op.inputs[0])
    if settled.split is _T:
        return Decision((settled, settled, *rest[1:]), (PARTIAL,) * len(op.outputs), settled.share)
    return Decision((WHOLE, *rest), (WHOLE,) * len(op.outputs))


def loss_backward(op: Operator, context: Context) -> Decision:
    """Minus one over the count in the target's column: its sum over the vocabulary needs no all-reduce."""
    scores = context.settled(op.inputs[1])
    needs = tuple(scores if place == 1 else WHOLE for place in range(len(op.inputs)))
    context.summed.add(op.outputs[0].storage)
    return Decision(needs, (scores,) * len(op.outputs), scores.share if scores.divided else (1, 1))
