"""Rules by which operators take their inputs' layouts over: products, attention, and all that works element by element.

Megatron-LM's way of dividing a transformer follows from them: a product of a whole activation with a weight divides the
weight's columns, a product of divided features divides its rows and leaves a partial sum.
"""

from dataclasses import replace

from simulator.dims import AttentionDims, MatmulDims
from simulator.graph import Operator, OpKind, Phase, Role, Tensor
from simulator.parallel.decisions import Context, Decision, merged
from simulator.parallel.layouts import FILLED, PARTIAL, WHOLE, Layout, Split
from simulator.parallel.rules_rows import decide_rows, embedding, embedding_backward, loss, loss_backward

_F, _T, _P, _W = Split.FEATURES, Split.TOKENS, Split.PARTIAL, Split.WHOLE
_MOVES = frozenset({
    "clone", "copy_", "copy", "_to_copy", "cat", "stack", "contiguous", "expand", "repeat", "repeat_interleave",
    "split", "slice", "select", "slice_backward", "select_backward", "constant_pad_nd", "fill_", "zero_",
    "native_dropout", "native_dropout_backward", "_unsafe_view", "reshape", "flip", "roll",
})  # fmt: skip
_INTO_CACHE = frozenset({"index_copy_", "index_put_", "scatter_", "slice_scatter", "index_copy"})
_SUMS = frozenset({"add", "add_", "sub", "neg", "clone", "cat", "index_add", "index_add_", "sum", "copy_"})
_PERMUTES = frozenset({"index", "index_select", "index_put", "index_put_", "gather"})
_SCALES = frozenset({"mul", "div", "mul_"})


def decide(op: Operator, context: Context) -> Decision:
    """Return how a rank runs *op*, by the layouts that *context* has of its inputs."""
    name = op.target.removeprefix("aten.")
    special = _SPECIAL.get(name)
    if special is not None:
        return special(op, context)
    if op.kind is OpKind.MATMUL and isinstance(op.dims, MatmulDims):
        return _matmul(op, op.dims, context)
    if op.kind is OpKind.ATTENTION and isinstance(op.dims, AttentionDims):
        return _attention(op, op.dims, context)
    if not op.inputs:
        return Decision((), (FILLED,) * len(op.outputs))
    if op.kind is OpKind.REDUCTION and name not in _MOVES and not _linear(name, op, context):
        return decide_rows(op, name, context)
    return _elementwise(op, name, context)


_SPECIAL = {
    "embedding": embedding,
    "embedding_dense_backward": embedding_backward,
    "nll_loss_forward": loss,
    "nll_loss_backward": loss_backward,
}


def _whole(op: Operator, context: Context) -> Decision:
    """Every rank does all of *op*."""
    layouts = tuple(context.of(each) for each in op.inputs)
    context.keep_whole(op, tuple(each for each in layouts if each.split is _F))
    return Decision((WHOLE,) * len(op.inputs), (WHOLE,) * len(op.outputs))


def _matmul(op: Operator, dims: MatmulDims, context: Context) -> Decision:
    weights = [
        place for place, each in enumerate(op.inputs) if context.role(each) is Role.WEIGHT and len(each.shape) >= 2
    ]
    biased = "addmm" in op.target or "addbmm" in op.target or "baddbmm" in op.target
    pair = tuple(range(1, 3) if biased else range(2))
    if len(op.inputs) < pair[1] + 1:
        return _whole(op, context)
    known = [place for place in pair if place in weights]
    if len(known) == 1:
        other = pair[0] if known[0] == pair[1] else pair[1]
        return _weighted(op, dims, context, other, known[0])
    return _whole(op, context) if known else _activations(op, dims, context, pair)


def _weighted(op: Operator, dims: MatmulDims, context: Context, act: int, weight: int) -> Decision:
    """The product of an activation and a weight; the backward pass contracts over the weight's other axis."""
    storage = op.inputs[weight].storage
    given, held = context.of(op.inputs[act]), context.of(op.inputs[weight])
    inner, outer = ("in", "out") if op.phase in (Phase.FORWARD, Phase.RECOMPUTE) else ("out", "in")
    if not held.axis:
        held = _assigned(op, context, storage, given)
    needs = [context.settled(each, whole=True) if each.elements > 1 else WHOLE for each in op.inputs]
    needs[weight] = held
    free = "n" if weight > act else "m"
    width = getattr(dims, free)
    if held.axis == "":
        context.keep_whole(op, (given,) if given.split is _F else ())
        tokens = given.split is _T or (given.split is _P and context.settled(op.inputs[act]).split is _T)
        layout = context.tokens if tokens else WHOLE
        needs[act] = layout
        rows = "m" if free == "n" else "n"
        local = replace(dims, **{rows: layout.part(getattr(dims, rows))})
        return Decision(tuple(needs), (layout,) * len(op.outputs), dims=local)
    origins = frozenset({storage})
    if held.axis == inner:
        divided = Layout(_F, held.share, dims.k, "", origins | given.origins)
        needs[act] = given if given.split is _F else divided
        return Decision(
            tuple(needs),
            (Layout(_P, origins=given.origins),) * len(op.outputs),
            dims=replace(dims, k=held.part(dims.k)),
        )
    assert held.axis == outer
    needs[act] = WHOLE
    gives = Layout(_F, held.share, width, "", origins)
    for place, each in enumerate(op.inputs):  # the bias of divided columns
        if place not in (act, weight) and context.role(each) is Role.WEIGHT:
            needs[place] = replace(gives, axis="out")
    return Decision(tuple(needs), (gives,) * len(op.outputs), dims=replace(dims, **{free: held.part(width)}))


def _assigned(op: Operator, context: Context, storage: int, given: Layout) -> Layout:
    """Divide a weight at its first use: its rows where the activation is divided, else its columns."""
    axis = "in" if given.split is _F else "out"
    if storage in context.undivided or op.phase not in (Phase.FORWARD, Phase.RECOMPUTE):
        return WHOLE
    share = given.share if axis == "in" else context.share(storage)
    return Layout(_F, share, 0, axis, frozenset({storage}))


def _activations(op: Operator, dims: MatmulDims, context: Context, pair: tuple[int, ...]) -> Decision:
    """The product of two activations: the gradient of a weight, which contracts over tokens, or a batch of heads."""
    layouts = [context.of(op.inputs[place]) for place in pair]
    divided = [each for each in layouts if each.split is _F]
    needs = [context.settled(each, whole=True) for each in op.inputs]
    if dims.batch > 1 and divided:
        found = replace(merged(divided), width=0)
        for place in pair:
            needs[place] = found
        return Decision(tuple(needs), (found,) * len(op.outputs), dims=replace(dims, batch=found.part(dims.batch)))
    if divided:
        first = layouts[0].split is _F
        found = layouts[0] if first else layouts[1]
        needs[pair[0 if first else 1]] = found
        side = "m" if first else "n"
        gives = replace(found, width=getattr(dims, side))
        local = replace(dims, **{side: found.part(getattr(dims, side))})
        return Decision(tuple(needs), (gives,) * len(op.outputs), dims=local)
    settled = [context.settled(op.inputs[place]) for place in pair]
    if dims.batch == 1 and any(each.split is _T for each in settled) and dims.k % context.ways == 0:
        for place in pair:
            needs[place] = context.tokens
        return Decision(tuple(needs), (PARTIAL,) * len(op.outputs), dims=replace(dims, k=dims.k // context.ways))
    return Decision(tuple(needs), (WHOLE,) * len(op.outputs))


def _attention(op: Operator, dims: AttentionDims, context: Context) -> Decision:
    """Heads are divided; key/value heads too, or, if there are fewer than ranks, each rank has one."""
    layouts = [context.of(each) for each in op.inputs]
    divided = [each for each in layouts if each.split is _F]
    if not divided:
        return Decision((WHOLE,) * len(op.inputs), (WHOLE,) * len(op.outputs))
    ways, keys = context.ways, dims.kv_heads
    origins = frozenset().union(*(each.origins for each in divided))
    query = Layout(_F, (1, ways), dims.heads * dims.value_dim, "", origins)
    held = max(1, keys // ways)
    key = Layout(_F, (held, keys), keys * dims.head_dim, "", origins)
    local = replace(dims, heads=query.part(dims.heads), kv_heads=held)
    needs = tuple(each if each.split is _F else WHOLE if each.split is not Split.FILLED else key for each in layouts)
    gives = (query, key, key) if dims.backward else (query,) * len(op.outputs)
    if len(gives) < len(op.outputs):
        gives += (query,) * (len(op.outputs) - len(gives))
    return Decision(needs, gives[: len(op.outputs)], dims=local)


def _linear(name: str, op: Operator, context: Context) -> bool:
    """Whether *op* may work on a partial sum as it stands."""
    partial = [each for each in op.inputs if context.of(each).split is _P]
    if not partial:
        return False
    others = [each for each in op.inputs if context.of(each).split is not _P and each.dtype.floating]
    if name == "_to_copy":
        return op.outputs[0].dtype.bits < partial[0].dtype.bits  # wider than it is it would send more
    if name in _SUMS | _PERMUTES:
        return all(context.of(each).split is Split.FILLED for each in others)
    return name in _SCALES and len(partial) == 1 and all(_scales(partial[0], each, op, context) for each in others)


def _scales(partial: Tensor, other: Tensor, op: Operator, context: Context) -> bool:
    """Whether *partial* may be multiplied before it is summed up: by one number a row, or as it was kept."""
    if context.of(other).split not in (_W, _T) or context.role(other) is Role.WEIGHT:
        return False
    kept = op.phase is Phase.BACKWARD and partial.storage in context.kept
    return kept or other.elements * partial.shape[-1] <= partial.elements


def _elementwise(op: Operator, name: str, context: Context) -> Decision:
    if _linear(name, op, context):
        return _on_partial(op, context)
    layouts = [context.of(each) for each in op.inputs]
    if any(each.split is _F for each in layouts):
        return _on_features(op, name, context, layouts)
    settled = [context.settled(each) for each in op.inputs]
    if any(each.split is _T for each in settled) and (op.kind is OpKind.POINTWISE or name in _MOVES):
        return _on_tokens(op, context, settled)
    return _whole(op, context)


def _on_partial(op: Operator, context: Context) -> Decision:
    layouts = [context.of(each) for each in op.inputs]
    origins = frozenset().union(*(each.origins for each in layouts))
    partial = Layout(_P, origins=origins)
    needs = tuple(WHOLE if each.split is _T else each for each in layouts)
    needs = tuple(partial if each.split is Split.FILLED else each for each in needs)
    return Decision(needs, (partial,) * len(op.outputs))


def _on_tokens(op: Operator, context: Context, settled: list[Layout]) -> Decision:
    """Every input is read where its tokens are; a gradient of a weight is a sum over them."""
    needs = tuple(
        WHOLE
        if context.role(each) is Role.WEIGHT and context.sizes.seq not in each.shape
        else context.tokens
        if _has_tokens(each, context)
        else layout
        for each, layout in zip(op.inputs, settled, strict=True)
    )
    gives = tuple(PARTIAL if context.role(each) is Role.GRADIENT else context.tokens for each in op.outputs)
    return Decision(needs, gives, work=(1, context.ways))


def _has_tokens(tensor: Tensor, context: Context) -> bool:
    sizes = context.sizes
    return sizes.seq in tensor.shape or sizes.tokens in tensor.shape


def _on_features(op: Operator, name: str, context: Context, layouts: list[Layout]) -> Decision:
    """Divided features meet what is divided alike, or what is the same for all of them."""
    cached = any(context.role(each) is Role.CACHE for each in op.outputs)
    if op.kind is not OpKind.POINTWISE and name not in _MOVES and not (cached and name in _INTO_CACHE):
        return _whole(op, context)
    own = merged([each for each in layouts if each.split is _F])
    size = max(each.elements for each, layout in zip(op.inputs, layouts, strict=True) if layout.split is _F)
    needs = []
    for each, layout in zip(op.inputs, layouts, strict=True):
        state = context.role(each) in (Role.WEIGHT, Role.BUFFER, Role.INPUT, Role.CACHE)
        foreign = layout.split in (_W, _T, _P) and not state and each.elements >= size and size > 1
        if foreign:
            return _whole(op, context)
        bias = context.role(each) is Role.WEIGHT and each.elements == own.width
        new = context.role(each) is Role.CACHE and each.storage not in context.layouts
        alike = own if bias or new or layout.split is Split.FILLED else layout
        needs.append(alike if alike.split is _F else context.settled(each, whole=True))
    found = _joined(op, context, layouts) if name == "cat" else own
    return Decision(tuple(needs), (found,) * len(op.outputs), work=found.share)


def _joined(op: Operator, context: Context, layouts: list[Layout]) -> Layout:
    """The layout of divided tensors put side by side, as Q, K and V of one matrix are."""
    found = merged([each for each in layouts if each.split is _F])
    size = op.outputs[0].elements
    width = size // context.sizes.tokens
    if len({each.share for each in layouts}) == 1:
        return replace(found, width=width)
    held = sum(layout.part(each.elements) for each, layout in zip(op.inputs, layouts, strict=True))
    return replace(found, share=(held, size), width=width)
