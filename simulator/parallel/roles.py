"""What a traced graph is made of, by data flow and module paths: layers, heads, experts, and what can be divided."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from simulator.dims import AttentionDims, MatmulDims
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role
from simulator.parallel.decisions import Context, Decision
from simulator.parallel.layouts import WHOLE, Layout, Sizes, Split
from simulator.parallel.plan import Plan, Shape
from simulator.parallel.rules import decide

_INDEX = re.compile(r"(?<![^.])\d+(?![^.])")
_PASSES = 8  # of finding out which weights have to stay whole; two are enough for what we know


def layer_prefix(graph: OperatorGraph) -> str:
    """Return the path of the repeated modules, such as ``blocks``; empty if nothing is repeated.

    It is the one whose numbered children have most of the products.
    """
    found: Counter[str] = Counter()
    for op in graph:
        index = _INDEX.search(op.module)
        if index is not None and op.kind is OpKind.MATMUL:
            found[op.module[: index.start()]] += 1
    return found.most_common(1)[0][0] if found else ""


def layers_of(graph: OperatorGraph) -> list[int]:
    """Return the layer of each operator: -1 before the first (embedding), the count of layers after the last (head).

    An operator outside of the numbered modules belongs with those around it.
    """
    numbers, count = _numbers(graph)
    forward = [op.phase in (Phase.FORWARD, Phase.RECOMPUTE) for op in graph]
    last = max((place for place, each in enumerate(numbers) if forward[place] and each is not None), default=-1)
    end = max((place for place, each in enumerate(numbers) if not forward[place] and each is not None), default=-1)
    found, here = [], -1
    for place, number in enumerate(numbers):
        if number is not None:
            here = number
        elif forward[place] and place > last:
            here = count
        elif not forward[place] and place > end:
            here = -1
        found.append(here if count else -1)
    return found


def depth_of(graph: OperatorGraph) -> int:
    """Return how many layers there are; 0 if no module is repeated."""
    return _numbers(graph)[1]


def _numbers(graph: OperatorGraph) -> tuple[list[int | None], int]:
    """The layer that each operator's module is in, if any, and the count of layers."""
    prefix = layer_prefix(graph)
    numbers = [_number(op.module, prefix) for op in graph]
    return numbers, max((each for each in numbers if each is not None), default=-1) + 1


def _number(module: str, prefix: str) -> int | None:
    if not module.startswith(prefix):
        return None
    index = module[len(prefix) :].split(".", 1)[0]
    return int(index) if index.isdecimal() else None


def shape_of(graph: OperatorGraph) -> Shape:
    """Return what of the program decides whether a plan divides it."""
    attention = [op.dims for op in graph if isinstance(op.dims, AttentionDims)]
    grouped = [op.dims for op in graph if isinstance(op.dims, MatmulDims) and op.dims.groups > 1]
    batch = max(1, graph.workload.batch)
    unfused = [op.dims.batch // batch for op in graph if isinstance(op.dims, MatmulDims) and op.dims.batch > batch]
    return Shape(
        layers=depth_of(graph),
        heads=attention[0].heads if attention else max(unfused, default=0),
        kv_heads=attention[0].kv_heads if attention else 0,
        experts=max((dims.groups for dims in grouped), default=0),
        seq=graph.workload.tokens // batch,
    )


def sizes_of(graph: OperatorGraph) -> Sizes:
    """Return the sizes by which the axes of tensors are told apart."""
    shape = shape_of(graph)
    heads = frozenset(each for each in (shape.heads, shape.kv_heads) if each > 1)
    return Sizes(max(1, shape.seq), max(1, graph.workload.tokens), heads)


@dataclass(frozen=True, slots=True)
class Roles:
    """How each operator of *graph* is run by one of the tensor-parallel ranks, and how each weight is divided.

    homes     layout in which each storage comes into being.
    layers    of each operator, as `layers_of` says; *depth* how many there are.
    repeated  weights of key/value heads that several ranks hold, and how many do.
    notes     what stays whole, and why.
    """

    graph: OperatorGraph
    sizes: Sizes
    decisions: Sequence[Decision]
    homes: dict[int, Layout]
    layers: Sequence[int]
    depth: int
    repeated: tuple[frozenset[int], int]
    notes: tuple[str, ...]


def find_roles(graph: OperatorGraph, plan: Plan) -> Roles:
    """Divide *graph* over ``plan.tp`` ranks: every weight that data flow allows to divide, all else on every rank.

    Optimistic at first: each product of a whole activation takes part of the columns.  What turns out to need them all
    keeps its weight whole in the next pass.
    """
    context = Context(graph, plan.tp, plan.sp, sizes_of(graph))
    context.shares = _shares_of_keys(graph, plan.tp)
    for _ in range(_PASSES):
        known = len(context.undivided)
        decisions, homes = _pass(graph, context)
        if len(context.undivided) == known:
            break
        context = replace(context, layouts={}, summed=set(), kept=set())
    repeated = _repeated(context)
    layers, depth = layers_of(graph), depth_of(graph)
    notes = _notes(graph, context) + _not_divided(graph, context, decisions)
    return Roles(graph, context.sizes, decisions, homes, layers, depth, repeated, notes)


def _pass(graph: OperatorGraph, context: Context) -> tuple[list[Decision], dict[int, Layout]]:
    decisions: list[Decision] = []
    homes: dict[int, Layout] = {}
    single = context.ways == 1
    for op in graph:
        if single or op.phase is Phase.OPTIMIZER:
            decision = Decision((WHOLE,) * len(op.inputs), (WHOLE,) * len(op.outputs))
        else:
            decision = decide(op, context)
            _apply(op, decision, context, homes)
        decisions.append(decision)
    return decisions, homes


def _apply(op: Operator, decision: Decision, context: Context, homes: dict[int, Layout]) -> None:
    layouts = context.layouts
    for tensor, need in zip(op.inputs, decision.needs, strict=True):
        have = layouts.get(tensor.storage)
        if have is None:
            resident = context.role(tensor) in (Role.WEIGHT, Role.CACHE)
            homes[tensor.storage] = layouts[tensor.storage] = (
                need if resident and need.split is Split.FEATURES else WHOLE
            )
        elif have.split is Split.PARTIAL and need.split is not Split.PARTIAL:
            layouts[tensor.storage] = replace(need, origins=frozenset())
        elif have.split is Split.FILLED and need.split is not Split.FILLED:
            homes[tensor.storage] = layouts[tensor.storage] = need
    for tensor, gives in zip(op.outputs, decision.gives, strict=True):
        old = layouts.get(tensor.storage)
        layouts[tensor.storage] = gives
        if gives.split is Split.PARTIAL and op.phase is Phase.FORWARD:
            context.kept.add(tensor.storage)
        if old is None or old.split is Split.FILLED:
            homes[tensor.storage] = gives


def _shares_of_keys(graph: OperatorGraph, ways: int) -> dict[int, tuple[int, int]]:
    """Shares of the weights that make keys and values, where there are fewer key/value heads than ranks."""
    made: dict[int, Operator] = {}
    shares: dict[int, tuple[int, int]] = {}
    for op in graph:
        if op.phase is not Phase.FORWARD:
            break
        dims = op.dims
        if isinstance(dims, AttentionDims) and dims.kv_heads % ways:
            keys = {weight for each in op.inputs[1:3] for weight in _weights_behind(each.storage, made)}
            query = _weights_behind(op.inputs[0].storage, made)
            for weight in keys:
                shares[weight] = (1, dims.kv_heads)
                if weight in query:  # one matrix for all three: heads / ways + 2 of heads + 2 kv_heads
                    shares[weight] = (dims.heads // ways + 2, dims.heads + 2 * dims.kv_heads)
        for tensor in op.outputs:
            made[tensor.storage] = op
    return shares


def _repeated(context: Context) -> tuple[frozenset[int], int]:
    """Weights that make keys and values alone, where several ranks hold each head, and how many ranks do."""
    alone = {weight: parts for weight, (part, parts) in context.shares.items() if part == 1}
    return frozenset(alone), context.ways // next(iter(alone.values()), context.ways)


def _weights_behind(storage: int, made: dict[int, Operator]) -> set[int]:
    """The weight of the product that *storage* comes from, through anything that is no product."""
    open_, seen, found = [storage], {storage}, set()
    while open_:
        op = made.get(open_.pop())
        if op is None:
            continue
        if op.kind is OpKind.MATMUL:
            found |= {each.storage for each in op.inputs if len(each.shape) > 1} - set(made)
            continue
        for each in op.inputs:
            if each.storage not in seen:
                seen.add(each.storage)
                open_.append(each.storage)
    return found


def _notes(graph: OperatorGraph, context: Context) -> tuple[str, ...]:
    """One line for each weight (layers together) that stays whole, and for heads that are held more than once."""
    found: dict[str, int] = {}
    for weight, reason in context.undivided.items():
        line = f"{_INDEX.sub('*', graph.storages[weight].name)} stays whole: {_INDEX.sub('*', reason)}"
        found[line] = found.get(line, 0) + 1
    notes = [f"{line} ({count}x)" if count > 1 else line for line, count in found.items()]
    if context.shares:
        heads = next(iter(op.dims.kv_heads for op in graph if isinstance(op.dims, AttentionDims)))
        notes.append(f"{heads} key/value heads for tp={context.ways}: {context.ways // heads} ranks hold each")
        fused = [weight for weight, (part, _) in context.shares.items() if part > 1]
        if fused:
            notes.append(f"{_INDEX.sub('*', graph.storages[fused[0]].name)}: gradients of shared heads are not summed")
    return tuple(notes)


def _not_divided(graph: OperatorGraph, context: Context, decisions: Sequence[Decision]) -> tuple[str, ...]:
    """One line for each attention or convolution that every rank does in full."""
    if context.ways == 1:
        return ()
    found = [
        f"{_INDEX.sub('*', op.module) or 'the program'}/{op.target} is done on every rank"
        for op, decision in zip(graph, decisions, strict=True)
        if op.kind in (OpKind.ATTENTION, OpKind.CONVOLUTION)
        and op.phase is Phase.FORWARD
        and all(each.split is Split.WHOLE for each in decision.gives)
    ]
    return tuple(f"{line} ({count}x)" if count > 1 else line for line, count in Counter(found).items())
