"""One traced decode step of a model, for any number of tokens: sizes of its operators are affine in the batch.

Two traces at different batches give the two coefficients of every size, a third one checks them, and a prefill tells
which operators work on the last position of a sequence only (the head).  A graph at any size then costs no trace.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from simulator.dims import AttentionDims
from simulator.errors import UsageError
from simulator.graph import Operator, OperatorGraph, Storage, Tensor

Trace = Callable[[str, int, int], OperatorGraph]  # phase, batch, length: of the context in decode, of seq in prefill
_BATCHES = (2, 5, 3)  # two that give the coefficients, one that checks them; 1 has kernels of its own
_CONTEXT, _SEQ = 512, 16


@dataclass(frozen=True, slots=True)
class Family:
    """Operators and storages as they are at the first two of ``_BATCHES``, for a context of one position.

    head       ids of operators that work on the sampled rows only; all others work on every token of a step.
    attention  ids of the attention operators, whose sizes depend on each sequence's context.
    fresh      target of attention over a prompt that is a step by itself: another kernel may do that.
    """

    first: OperatorGraph
    second: OperatorGraph
    head: frozenset[int]
    attention: frozenset[int]
    fresh: str = ""
    _lines: dict[int, "_Line"] = field(default_factory=dict)

    def operator(self, id: int, size: int, place: int | None = None, deps: tuple[int, ...] | None = None) -> Operator:
        """Operator *id* for *size* tokens, or sampled rows if it is of the head; *place* and *deps* renumber it."""
        line = self._lines.get(id)
        if line is None:
            line = self._lines[id] = _line(self.first.operators[id], self.second.operators[id])
        return line.at(size, place, deps)

    def storages(self, tokens: int, rows: int) -> list[Storage]:
        """All storages of a step of that many tokens and sampled rows; keys and values have one position each."""
        made = {tensor.storage for id in self.head for tensor in self.first.operators[id].outputs}
        pairs = zip(self.first.storages, self.second.storages, strict=True)
        return [_affine(one, two, rows if one.id in made else tokens) for one, two in pairs]


Sized = tuple[Tensor, tuple[int, ...] | None]  # a tensor at the first batch, and what each extent grows by


@dataclass(frozen=True, slots=True)
class _Line:
    """One operator at the first batch, and what its sizes grow by from there to the second one."""

    op: Operator
    inputs: tuple[Sized, ...]
    outputs: tuple[Sized, ...]
    growth: tuple[int, int, int]
    second: Any

    def at(self, size: int, place: int | None, deps: tuple[int, ...] | None) -> Operator:
        """The operator at *size*; built field by field, since a step has a thousand of them."""
        op, (flops, reads, writes) = self.op, self.growth
        more, span = size - _BATCHES[0], _BATCHES[1] - _BATCHES[0]
        return Operator(
            op.id if place is None else place,
            op.module,
            op.target,
            op.kind,
            op.phase,
            tuple(_resized(each, more, span) for each in self.inputs),
            tuple(_resized(each, more, span) for each in self.outputs),
            op.flops + flops * more // span,
            op.reads + reads * more // span,
            op.writes + writes * more // span,
            op.deps if deps is None else deps,
            op.dtype,
            op.dims if op.dims is self.second else _affine(op.dims, self.second, size),
            op.dispatches,
            op.group,
        )


def _line(first: Operator, second: Operator) -> _Line:
    growth = (second.flops - first.flops, second.reads - first.reads, second.writes - first.writes)
    same = first.dims == second.dims
    inputs, outputs = (
        tuple(_sized(one, two) for one, two in zip(*pair, strict=True))
        for pair in ((first.inputs, second.inputs), (first.outputs, second.outputs))
    )
    return _Line(first, inputs, outputs, growth, first.dims if same else second.dims)


def _sized(first: Tensor, second: Tensor) -> Sized:
    grown = tuple(two - one for one, two in zip(first.shape, second.shape, strict=True))
    return first, grown if any(grown) else None


def _resized(sized: Sized, more: int, span: int) -> Tensor:
    old, grown = sized
    if grown is None:
        return old
    shape = tuple([one + each * more // span for one, each in zip(old.shape, grown, strict=True)])
    return Tensor(old.storage, shape, old.dtype)


def _affine(first: Any, second: Any, size: int) -> Any:
    """The value at *size* of what is *first* at the first batch and *second* at the second one."""
    if first == second:
        return first
    if isinstance(first, int):
        low, high = _BATCHES[:2]
        return first + (second - first) * (size - low) // (high - low)
    if isinstance(first, tuple):
        return tuple(_affine(one, two, size) for one, two in zip(first, second, strict=True))
    changed = {
        field.name: _affine(getattr(first, field.name), getattr(second, field.name), size)
        for field in fields(first)
        if getattr(first, field.name) != getattr(second, field.name)
    }
    return replace(first, **changed)


def family(trace: Trace) -> Family:
    """Trace a model at a few sizes; UsageError if its decode step is no affine family.

    What a traced cache copies of itself grows with the context; a paged cache is written in place, so all operators
    but attention are taken at a context of one position.
    """
    first, second = (trace("decode", batch, _CONTEXT) for batch in _BATCHES[:2])
    _check_same(first, second)
    _check_same(first, other := trace("decode", _BATCHES[2], 2 * _CONTEXT))
    attention = frozenset(op.id for op in first if isinstance(op.dims, AttentionDims))
    _check_decode(first, attention)
    found = Family(first, second, frozenset(), attention)
    if _differs(found, other) is not None:
        longer = [trace("decode", batch, 2 * _CONTEXT) for batch in _BATCHES[:2]]
        _check_affine(Family(longer[0], longer[1], frozenset(), attention), other)
        first, second = (_at_one(short, long) for short, long in zip((first, second), longer, strict=True))
    prefill = trace("prefill", 1, _SEQ)
    fresh = next((op.target for op in prefill if isinstance(op.dims, AttentionDims)), "")
    return Family(first, second, _head(prefill, first, second, attention), attention, fresh)


def _check_decode(graph: OperatorGraph, attention: frozenset[int]) -> None:
    """Raise UsageError unless *graph* decodes one position for each sequence of the first batch."""
    name = graph.workload.name
    if not attention:
        raise UsageError(
            f"{name}: no fused attention in its decode step (scaled_dot_product_attention); serving needs it to know "
            "what reads the KV cache"
        )
    for id in sorted(attention):
        dims = graph.operators[id].dims
        assert isinstance(dims, AttentionDims)
        if (dims.batch, dims.q_len) != (_BATCHES[0], 1):
            raise UsageError(
                f"{name}: {graph.operators[id].name} works on {dims.batch} x {dims.q_len} positions where a decode "
                f"step of {_BATCHES[0]} sequences was asked for; a factory must take phase, batch, seq and context"
            )


def _differs(found: Family, other: OperatorGraph) -> Operator | None:
    """The first operator, attention left out, that does other work in a trace than the family says."""
    for op in other:
        made = found.operator(op.id, _BATCHES[2])
        if op.id not in found.attention and (made.reads, made.writes, made.flops) != (op.reads, op.writes, op.flops):
            return op
    return None


def _at_one(short: OperatorGraph, long: OperatorGraph) -> OperatorGraph:
    """The graph at a context of one position, by going back from _CONTEXT and twice that."""
    operators = [_back(one, two) for one, two in zip(short, long, strict=True)]
    storages = [_back(one, two) for one, two in zip(short.storages, long.storages, strict=True)]
    return replace(short, operators=operators, storages=storages)


def _back(short: Any, long: Any) -> Any:
    if short == long:
        return short
    if isinstance(short, int):
        return max(0, short - (long - short) * (_CONTEXT - 1) // _CONTEXT)
    if isinstance(short, tuple):
        return tuple(_back(one, two) for one, two in zip(short, long, strict=True))
    assert is_dataclass(short)
    assert not isinstance(short, type)
    names = [field.name for field in fields(short)]
    changed = {name: _back(getattr(short, name), getattr(long, name)) for name in names}
    return replace(short, **changed)


def _check_same(first: OperatorGraph, second: OperatorGraph) -> None:
    """Raise UsageError unless both have the same operators on the same storages."""
    name = first.workload.name
    if len(first) != len(second):
        raise UsageError(f"{name}: {len(first)} operators at one size and {len(second)} at another; cannot be batched")
    for one, two in zip(first, second, strict=True):
        if _skeleton(one) != _skeleton(two):
            raise UsageError(f"{name}: {one.name} at one size is {two.name} at another; it cannot be batched")


def _skeleton(op: Operator) -> tuple[Any, ...]:
    uses = tuple((tensor.storage, len(tensor.shape)) for tensor in (*op.inputs, *op.outputs))
    return op.name, op.kind, op.dtype, op.deps, uses, type(op.dims)


def _check_affine(found: Family, other: OperatorGraph) -> None:
    op = _differs(found, other)
    if op is not None:
        raise UsageError(f"{op.name}: its work is not proportional to the number of sequences; it cannot be batched")


def _head(
    prompt: OperatorGraph, first: OperatorGraph, second: OperatorGraph, attention: frozenset[int]
) -> frozenset[int]:
    """Operators that a *prompt* of one sequence does for one row and not for _SEQ."""
    prefill = dict(_numbered(prompt))
    trial = Family(first, second, frozenset(), attention)
    found = set()
    for key, op in _numbered(first):
        same = prefill.get(key)
        if same is None or op.id in attention:
            continue
        one, all_ = trial.operator(op.id, 1), trial.operator(op.id, _SEQ)
        if one.writes != all_.writes and same.writes == one.writes:
            found.add(op.id)
    return frozenset(found)


def _numbered(graph: OperatorGraph) -> Iterator[tuple[tuple[str, str, int], Operator]]:
    """Each operator with its module, target, and how many like it came before."""
    seen: Counter[tuple[str, str]] = Counter()
    for op in graph:
        name = (op.module, op.target)
        yield (*name, seen[name]), op
        seen[name] += 1
