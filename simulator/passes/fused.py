"""What one fused operator is: what crosses its border is read and written, everything else adds up.

Its target lists the operators that it does, the hardest last: ``fused.mul+silu``.  A compute model that tells kernels
of a library apart by their name must not take a generated one for theirs, so that one that reduces along rows ends in
``.rows``: ``fused.add+rms_norm.rows`` keeps or rereads its row as any generated reduction does.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from simulator.dims import Dims
from simulator.graph import Operator, OpKind, Storage, Tensor

PREFIX = "fused."
_ROWS = ".rows"
_HARDNESS = (
    OpKind.MOVE, OpKind.POINTWISE, OpKind.OTHER, OpKind.REDUCTION, OpKind.CONVOLUTION, OpKind.MATMUL, OpKind.ATTENTION
)  # fmt: skip


def names(operators: Iterable[Operator]) -> list[str]:
    """Names of *operators* without their namespaces, those of fused ones taken apart, each once.

    ``aten.add`` and ``fused.mul+rms_norm.rows`` give add, mul, rms_norm.
    """
    found: dict[str, None] = {}
    for op in operators:
        found.update(dict.fromkeys(op.target.removesuffix(_ROWS).rsplit(".", 1)[-1].split("+")))
    return list(found)


def generated(op: Operator) -> Operator:
    """*op* as a kernel that the compiler writes, where it was a library's."""
    return replace(op, target=PREFIX + "+".join(names([op])) + (_ROWS if op.kind is OpKind.REDUCTION else ""))


def hardest(operators: Sequence[Operator]) -> Operator:
    """The operator that decides how all of them together are timed; among equals most FLOP, and then the last."""
    return max(reversed(operators), key=lambda op: (_HARDNESS.index(op.kind), op.flops))


def fuse(
    operators: Sequence[Operator],
    storages: Sequence[Storage],
    internal: frozenset[int],
    *,
    kind: OpKind | None = None,
    dims: Dims | None = None,
) -> Operator:
    """Return the one operator that does the work of *operators*, given in program order; id and deps are the first's.

    internal  storages that only they touch.
    kind      and *dims*, where they are not those of the hardest member.

    FLOPs add up.  Of an internal storage nothing is read or written; of one that several members read, no more bytes
    are read than it has, nor more than they read together.  Bytes never grow.
    """
    main = hardest(operators)
    read = _shares(operators, storages, internal, reads=True)
    written = _shares(operators, storages, internal, reads=False)
    others = [name for name in names(operators) if name not in names([main])]
    made = {tensor.storage for op in operators for tensor in op.outputs}
    inputs = _border(operators, storages, internal, read.by_storage, reads=True, skip=_written_first(operators))
    outputs = _border(operators, storages, internal, written.by_storage, reads=False, skip=frozenset())
    outside = {tensor.storage for tensor in inputs}
    return Operator(
        id=operators[0].id,
        module=main.module,
        target=PREFIX + "+".join([*others, *names([main])]) + (_ROWS if main.kind is OpKind.REDUCTION else ""),
        kind=main.kind if kind is None else kind,
        phase=main.phase,
        inputs=inputs,
        outputs=outputs,
        flops=sum(op.flops for op in operators),
        reads=sum(_capped(read.by_storage, storages, outside)) + read.beside,
        writes=sum(_capped(written.by_storage, storages, made)) + written.beside,
        deps=operators[0].deps,
        dtype=main.dtype,
        dims=main.dims if dims is None else dims,
    )


def _capped(shares: Mapping[int, int], storages: Sequence[Storage], counted: set[int]) -> Iterable[int]:
    return (min(size, storages[key].nbytes) for key, size in shares.items() if key in counted)


@dataclass(frozen=True, slots=True)
class _Shares:
    """Bytes by storage of all members together; *beside*: those that no operand accounts for (a second pass)."""

    by_storage: Mapping[int, int]
    beside: int


def _shares(
    operators: Sequence[Operator], storages: Sequence[Storage], internal: frozenset[int], *, reads: bool
) -> _Shares:
    by_storage: defaultdict[int, int] = defaultdict(int)
    beside = 0

    def size(tensor: Tensor) -> int:
        return min(tensor.nbytes, storages[tensor.storage].nbytes)  # a view that is broadcast touches no more

    for op in operators:
        left = op.reads if reads else op.writes
        # a large operand is the one that is read in part (a table that is looked up): the small ones come first
        for tensor in sorted(op.inputs if reads else op.outputs, key=size):
            share = min(size(tensor), left)
            left -= share
            if tensor.storage not in internal:
                by_storage[tensor.storage] += share
        beside += left
    return _Shares(by_storage, beside)


def _written_first(operators: Sequence[Operator]) -> frozenset[int]:
    """Storages that a member writes before any member reads them: their values never come from outside."""
    read: set[int] = set()
    first: set[int] = set()
    for op in operators:
        read.update(tensor.storage for tensor in op.inputs)
        first.update(tensor.storage for tensor in op.outputs if tensor.storage not in read)
    return frozenset(first)


def _border(
    operators: Sequence[Operator],
    storages: Sequence[Storage],
    internal: frozenset[int],
    shares: Mapping[int, int],
    *,
    reads: bool,
    skip: frozenset[int],
) -> tuple[Tensor, ...]:
    """One tensor for each storage that is read (written) across the border, of the size that is touched."""
    views: defaultdict[int, list[Tensor]] = defaultdict(list)
    for op in operators:
        for tensor in op.inputs if reads else op.outputs:
            if tensor.storage not in internal and tensor.storage not in skip:
                views[tensor.storage].append(tensor)
    return tuple(_one(found, min(shares[key], storages[key].nbytes)) for key, found in views.items())


def _one(views: Sequence[Tensor], size: int) -> Tensor:
    """The widest of *views*; flat and of *size* bytes where they are different pieces, or read in part (a table)."""
    widest = max(views, key=lambda tensor: tensor.nbytes)
    if size in (0, widest.nbytes):
        return widest
    return Tensor(widest.storage, (size * 8 // widest.dtype.bits,), widest.dtype)
