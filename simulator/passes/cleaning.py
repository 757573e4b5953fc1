"""Work that need not be done: results that nobody reads, and the same result twice."""

from collections.abc import Hashable
from dataclasses import replace

from simulator.graph import Operator, OperatorGraph, Tensor
from simulator.passes.draft import copied, hazards, needed
from simulator.passes.prices import Prices

_DETERMINED = frozenset(
    f"aten.{name}"
    for name in (
        "neg", "exp", "log", "abs", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh", "sigmoid", "silu", "relu",
        "_to_copy", "erf", "square", "logical_not", "isnan",
    )
)  # fmt: skip


def dead(graph: OperatorGraph, prices: Prices) -> OperatorGraph:
    """Operators whose results nobody reads go, and then those that only they needed.

    State, gradients, what the program returns, and collectives (the other ranks wait for them) are needed.
    """
    read: set[int] = set()
    kept: list[Operator] = []
    for op in reversed(graph.operators):
        made = {tensor.storage for tensor in op.outputs}
        if op.group or not made or any(each in read or needed(graph, each) for each in made):
            kept.append(op)
            read.update(tensor.storage for tensor in op.inputs)
    return without(graph, kept[::-1])


def common(graph: OperatorGraph, prices: Prices) -> OperatorGraph:
    """An operator that does what an earlier one has done goes, and its readers read the earlier result.

    The graph holds shapes, not arguments: two additions may add different constants, and two views of the same shape
    may be different pieces of one storage.  So only operators that their operand determines count, on whole storages
    that are written once, of shapes that no transposition leaves as they are.
    """
    writers: dict[int, int] = {}
    for op in graph:
        for tensor in op.outputs:
            writers[tensor.storage] = writers.get(tensor.storage, 0) + 1
    known: dict[Hashable, Operator] = {}
    twins: dict[int, int] = {}
    kept = []
    for old in graph:
        op = replace(old, inputs=tuple(replace(t, storage=twins.get(t.storage, t.storage)) for t in old.inputs))
        if not _comparable(graph, op, writers):
            kept.append(op)
            continue
        result = op.outputs[0]
        key = (op.target, op.phase, op.dtype, op.inputs, result.shape, result.dtype)
        if key in known:
            twins[result.storage] = known[key].outputs[0].storage
        else:
            known[key] = op
            kept.append(op)
    return without(graph, kept) if twins else without(graph, list(graph))


def _comparable(graph: OperatorGraph, op: Operator, writers: dict[int, int]) -> bool:
    if op.target not in _DETERMINED or len(op.outputs) != 1 or len(op.inputs) != 1:
        return False
    result = op.outputs[0].storage
    fresh = writers[result] == 1 and not needed(graph, result) and result != op.inputs[0].storage
    return fresh and all(_whole(graph, tensor) and writers.get(tensor.storage, 0) <= 1 for tensor in op.inputs)


def _whole(graph: OperatorGraph, tensor: Tensor) -> bool:
    """Whether *tensor* can only be its storage, in order: no piece of it and not transposed."""
    long = [size for size in tensor.shape if size > 1]
    return tensor.nbytes == graph.storages[tensor.storage].nbytes and len(set(long)) == len(long) <= 2


def without(graph: OperatorGraph, kept: list[Operator]) -> OperatorGraph:
    """The graph of *kept*, in order; what waited for one that is gone waits for what that one waited for."""
    found = copied(graph)
    place = {op.id: index for index, op in enumerate(kept)}
    behind: dict[int, frozenset[int]] = {}  # ids that remain, for each that may be gone
    for op in graph:
        waits = frozenset[int]().union(*(behind[dep] for dep in op.deps)) if op.deps else frozenset[int]()
        behind[op.id] = frozenset((place[op.id],)) if op.id in place else waits
    for op in kept:
        waits = frozenset[int]().union(*(behind[dep] for dep in op.deps)) if op.deps else frozenset[int]()
        found.add(replace(op, id=len(found), deps=tuple(sorted(waits))))
    for index, waits in enumerate(hazards(found)):
        found.operators[index] = replace(found.operators[index], deps=tuple(sorted(waits)))
    _release(graph, found, place)
    return found


def _release(graph: OperatorGraph, found: OperatorGraph, place: dict[int, int]) -> None:
    """Carry over when storages are let go of: with the last operator that remains at or before that moment."""
    used = {tensor.storage for op in found for tensors in (op.inputs, op.outputs) for tensor in tensors}
    latest, last = [], 0
    for op in graph:
        last = place.get(op.id, last)
        latest.append(last)
    found.released = {key: latest[moment] for key, moment in graph.released.items() if key in used}
