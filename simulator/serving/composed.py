"""The graph of one step of an engine: decodes of many contexts and chunks of prompts in one forward pass.

Everything but attention works on all tokens of the step at once, the head on the sampled rows only.  Attention is one
kernel for all decodes and one for all chunks, as kernels for sequences of different lengths run it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

from simulator.dims import AttentionDims
from simulator.dtypes import DType
from simulator.graph import Operator, OperatorGraph, Storage, Tensor, Workload
from simulator.serving.family import Family
from simulator.serving.sequence import Step


class Rows(NamedTuple):
    """Attention of *batch* sequences with *q* new positions each, that look back on *keys*, the new ones included."""

    batch: int
    q: int
    keys: int


@dataclass(frozen=True, slots=True)
class StepShape:
    """What decides how long a step takes: tokens, sampled rows, attention of the decodes and of the chunks."""

    tokens: int
    samples: int
    decodes: Rows | None
    chunks: Rows | None

    @property
    def attention(self) -> list[Rows]:
        return [each for each in (self.decodes, self.chunks) if each is not None]

    @property
    def fresh(self) -> bool:
        """Whether the step is one prompt from its start: nothing has to be looked up in the cache."""
        rows = self.chunks
        return self.decodes is None and rows is not None and rows.batch == 1 and rows.q == rows.keys


def shape_of(step: Step) -> StepShape:
    """The shape of *step*, before it is finished."""
    decodes = None
    if step.decodes:
        keys = sum([each.computed for each in step.decodes])
        decodes = decode_rows(len(step.decodes), keys, step.width)
    chunks = chunk_rows((chunk.count, chunk.start + chunk.count) for chunk in step.chunks) if step.chunks else None
    return StepShape(step.tokens, max(1, step.samples), decodes, chunks)


def decode_rows(count: int, computed: int, width: int = 1) -> Rows:
    """*count* decodes of *width* positions after *computed* positions in all: they share the bytes of the mean.

    >>> decode_rows(2, 100 + 201)
    Rows(batch=2, q=1, keys=152)
    """
    return Rows(count, width, -(-computed // count) + width)


def chunk_rows(pieces: Iterable[tuple[int, int]]) -> Rows:
    """Pieces of (new positions, positions in all) as equal ones with the same rows and the same query-key pairs.

    A causal piece has q x keys - q (q - 1) / 2 pairs.

    >>> chunk_rows([(100, 100)]), chunk_rows([(100, 100), (100, 100)])
    (Rows(batch=1, q=100, keys=100), Rows(batch=2, q=100, keys=100))
    >>> chunk_rows([(1, 11), (3, 13)])  # 11 + 36 = 47 pairs = 2 x (2 x 12.25 - 1)
    Rows(batch=2, q=2, keys=13)
    """
    found = list(pieces)
    count = len(found)
    pairs = sum(q * keys - q * (q - 1) // 2 for q, keys in found)
    q = -(-sum(q for q, _ in found) // count)
    return Rows(count, q, max(q, ceil((pairs / count + q * (q - 1) / 2) / q)))


def compose(family: Family, shape: StepShape, cache: DType | None = None, sized: bool = False) -> OperatorGraph:
    """The graph of a step of that *shape*.

    cache  type of keys and values in memory, if it is not the model's.
    sized  give storages the step's sizes too, which peak memory needs and times do not.
    """
    storages = family.storages(shape.tokens, shape.samples) if sized else list(family.first.storages)
    graph = OperatorGraph(_workload(family, shape), storages)
    last: list[tuple[int, ...]] = []
    for old in family.first:
        deps = tuple(sorted({new for dep in old.deps for new in last[dep]}))
        first = len(graph)
        if old.id in family.attention:
            target = family.fresh if shape.fresh else ""
            made = [attention(old, rows, cache, target) for rows in shape.attention]
            graph.operators += [replace(op, id=first + index, deps=deps) for index, op in enumerate(made)]
        else:
            size = shape.samples if old.id in family.head else shape.tokens
            graph.operators.append(family.operator(old.id, size, first, deps))
        last.append(tuple(range(first, len(graph))))
    graph.outputs = family.first.outputs
    return graph


def _workload(family: Family, shape: StepShape) -> Workload:
    old = family.first.workload
    phase = "decode" if shape.chunks is None else "prefill"
    batch = sum(rows.batch for rows in shape.attention)
    return replace(old, phase=phase, batch=batch, tokens=shape.tokens, context=max(r.keys for r in shape.attention))


def attention(old: Operator, rows: Rows, cache: DType | None = None, target: str = "") -> Operator:
    """The attention operator *old* of a decode step, for *rows*; by another kernel, if *target* names one."""
    dims = old.dims
    assert isinstance(dims, AttentionDims)
    made = replace(dims, batch=rows.batch, q_len=rows.q, kv_len=rows.keys, causal=rows.q > 1)
    keys = min(rows.keys, dims.window + rows.q - 1) if dims.window else rows.keys
    query, key, value = old.inputs[:3]
    inputs = (
        replace(query, shape=(rows.batch, dims.heads, rows.q, dims.head_dim)),
        _cached(key, (rows.batch, dims.kv_heads, keys, dims.head_dim), cache),
        _cached(value, (rows.batch, dims.kv_heads, keys, dims.value_dim), cache),
    )
    outputs = tuple(_rescaled(each, dims, rows) for each in old.outputs)
    return replace(
        old,
        target=target or old.target,
        inputs=inputs,
        outputs=outputs,
        dims=made,
        flops=made.flops,
        reads=sum(each.nbytes for each in inputs),
        writes=sum(each.nbytes for each in outputs),
    )


def _cached(old: Tensor, shape: tuple[int, ...], dtype: DType | None) -> Tensor:
    return replace(old, shape=shape, dtype=dtype or old.dtype)


def _rescaled(old: Tensor, dims: AttentionDims, rows: Rows) -> Tensor:
    """An output of as many query rows: the result, or a statistic for each of them."""
    per_row = old.elements // (dims.batch * dims.heads * dims.q_len)
    tail = (per_row,) if per_row > 1 else ()
    return replace(old, shape=(rows.batch, dims.heads, rows.q, *tail))


def writers(family: Family, old: Operator) -> list[Operator]:
    """Operators that write what the attention operator *old* reads, in order: what is then still on the chip."""
    wanted = {tensor.storage for tensor in old.inputs}
    found = (op for op in family.first.operators[: old.id] if op.id not in family.attention)
    return [op for op in found if wanted.intersection(tensor.storage for tensor in op.outputs)]


def renumbered(operators: Iterable[Operator], storages: list[Storage], workload: Workload) -> OperatorGraph:
    """A small graph of *operators* that hang on nothing, over those of the *storages* that they use."""
    found = list(operators)
    used = sorted({tensor.storage for op in found for tensor in (*op.inputs, *op.outputs)})
    new = {old: index for index, old in enumerate(used)}

    def moved(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(Tensor(new[each.storage], each.shape, each.dtype) for each in tensors)

    made = [
        replace(op, id=index, deps=(), inputs=moved(op.inputs), outputs=moved(op.outputs))
        for index, op in enumerate(found)
    ]
    return OperatorGraph(workload, [replace(storages[old], id=new[old]) for old in used], made)
