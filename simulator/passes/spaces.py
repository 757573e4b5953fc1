"""What a kernel loops over, and whether two kernels can share one loop."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from simulator.dims import RowDims
from simulator.graph import Operator, OpKind, Tensor
from simulator.passes.fused import names

GATHERS = frozenset(("embedding", "index", "gather", "index_select", "_unsafe_index", "take_along_dim"))
LIBRARY = "library."  # namespace of calls of the framework that a compiled program makes beside its own kernels
SCATTER = "_unsafe_masked_index_put_accumulate"  # adds rows of one operand to those of another that an index names
_ASSEMBLES = frozenset(("cat", "stack", "constant_pad_nd"))  # each part of the output comes from one input
_MOST_PARTS = 8  # inputs of a concatenation that is computed in place of being copied (Inductor's limit too)
MOVES = _ASSEMBLES | GATHERS | frozenset((
    "clone", "copy", "copy_", "_to_copy", "arange", "full", "zeros", "ones", "full_like", "zeros_like", "ones_like",
    "new_zeros", "new_ones", "new_full", "fill", "fill_", "zero_", "repeat", "flip", "contiguous", "scalar_tensor",
    "select_backward", "slice_backward", "nll_loss_backward", SCATTER,
))  # fmt: skip
_UNFUSED = frozenset(
    ("nll_loss_forward", "sort", "topk", "argsort", "msort", "nonzero", "masked_select", "multinomial")
)


@dataclass(frozen=True, slots=True)
class Space:
    """The loop of a kernel.

    elements  that it visits; *rows* how it groups them, if it reduces.  Where these rows are columns in memory
              (*inner* above 1) only what takes the sums can join.
    parts     sizes of pieces that it visits separately (the inputs of a concatenation).
    """

    elements: int
    rows: RowDims | None = None
    parts: frozenset[int] = frozenset()


def space(op: Operator) -> Space | None:
    """The loop of *op*; None if its kernel cannot be generated, such as a library's matrix product or a scatter."""
    called = set(names([op]))
    widest = max((tensor.elements for tensor in op.outputs), default=0)
    if not widest or op.group or called & _UNFUSED or op.target.startswith(LIBRARY):
        return None
    if op.kind is OpKind.REDUCTION:
        return _reduction(op)
    if op.kind is OpKind.MOVE and not called <= MOVES:
        return None
    if op.kind not in (OpKind.POINTWISE, OpKind.MOVE) or called & {"adamw", "sgd"} or "_foreach_" in op.target:
        return None
    if SCATTER in called:
        return Space(op.inputs[0].elements)
    inputs = {tensor.elements for tensor in op.inputs}
    assembled = called & _ASSEMBLES and len(op.inputs) <= _MOST_PARTS
    return Space(widest, parts=frozenset(inputs - {widest}) if assembled else frozenset())


def _reduction(op: Operator) -> Space | None:
    dims = op.dims
    if not isinstance(dims, RowDims) or not dims.columns or (len(op.outputs) > 1 and op.target.endswith("_backward")):
        return None  # a library's norm, whose second kernel sums the gradients of its parameters
    elements = dims.rows * dims.columns
    if dims.inner > 1:
        return Space(elements, dims) if dims.inner == dims.rows == op.outputs[0].elements else None
    if not any(tensor.elements == elements and _has_rows(tensor, dims.columns) for tensor in op.inputs):
        return None  # it gathers, or its rows are not what lies together in memory
    return Space(elements, dims)


def _has_rows(tensor: Tensor, columns: int) -> bool:
    """Whether rows of *columns* elements are whole trailing axes of *tensor*.

    >>> from simulator.dtypes import DType
    >>> _has_rows(Tensor(0, (2, 3, 8), DType.BF16), 24), _has_rows(Tensor(0, (2, 3, 8), DType.BF16), 16)
    (True, False)
    """
    length = 1
    for size in reversed(tensor.shape):
        if length >= columns:
            break
        length *= size
    return length == columns


def connected(producer: Sequence[Operator], consumer: Sequence[Operator]) -> bool | None:
    """Whether every tensor handed from *producer* to *consumer* is taken element by element; None if there is none.

    A consumer that reads a piece of it, or picks elements by index, needs elements that another block makes; one that
    reads what is scattered needs all blocks.
    """
    made = {tensor.storage: tensor for op in producer for tensor in op.outputs}
    scattered = {tensor.storage for op in producer if SCATTER in names([op]) for tensor in op.outputs}
    found = None
    for op in consumer:
        gathers = bool(GATHERS & set(names([op])))
        for tensor in op.inputs:
            source = made.get(tensor.storage)
            if source is None:
                continue
            partly = tensor.elements < source.elements or tensor.storage in scattered
            if partly or (gathers and tensor.dtype.floating):
                return False
            found = True
    return found


def joined(first: Space, second: Space, shared: Sequence[Tensor], *, inner: bool) -> Space | None:
    """The loop of two kernels in one; None if there is none.

    first    comes before *second* in program order.
    shared   tensors that both touch: where one reduces along rows, they must consist of such rows.
    inner    whether nothing but *second* reads what *first* makes: only then can it be computed in pieces, or several
             times for an operand that is broadcast.
    """
    rows = first.rows or second.rows
    parts = first.parts | second.parts
    if rows and rows.inner > 1:
        taken = first.rows and second.rows is None and second.elements == rows.rows
        return replace(first, parts=parts) if taken else None
    if first.rows and second.rows:
        return replace(second, parts=parts) if first.rows == second.rows and _rowwise(first.rows, shared) else None
    if rows is None or first.elements == second.elements:
        whole = first.elements == second.elements and (rows is None or _rowwise(rows, shared))
        inlined = inner and _inlines(first, second)
        return Space(second.elements, rows, parts) if whole or (inlined and rows is None) else None
    if second.rows is None and first.elements in second.parts and inner and _rowwise(rows, shared):
        return Space(first.elements, rows, parts)
    per_row = (second if first.rows else first).elements == rows.rows
    if per_row or (second.rows and inner and _inlines(first, second)):
        return Space(rows.rows * rows.columns, rows, parts)
    return None


def _rowwise(rows: RowDims, shared: Sequence[Tensor]) -> bool:
    return all(tensor.elements != rows.rows * rows.columns or _has_rows(tensor, rows.columns) for tensor in shared)


def _inlines(first: Space, second: Space) -> bool:
    """Whether *first* makes pieces of what *second* visits, or an operand that is broadcast over it."""
    return first.elements in second.parts or (
        first.elements < second.elements and second.elements % first.elements == 0
    )
