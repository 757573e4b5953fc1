"""Operators that move data and compute nothing: copies, gathers, scatters, fills, random numbers."""
# mypy: disallow-untyped-calls=False

from math import prod

import torch

from frontends.rules import Call, Work, bytes_of, rule, touched
from simulator.dims import RowDims
from simulator.graph import OpKind


@rule(
    "aten.clone", "aten.copy", "aten._to_copy", "aten.cat", "aten.stack", "aten.repeat", "aten.roll", "aten.flip",
    "aten.constant_pad_nd", "aten.contiguous", "aten.tril_indices", "aten.triu_indices", "aten.rot90",
    "aten.reflection_pad1d", "aten.reflection_pad2d", "aten.replication_pad2d", "aten.pixel_shuffle",
    "aten.pixel_unshuffle", "aten.im2col", "aten.col2im", "aten.channel_shuffle", "aten._chunk_cat",
    "aten.split_with_sizes_copy", "aten.upsample_nearest2d", "aten._resize_output", "aten.diag_embed",
    "aten.block_diag", "aten.repeat_interleave", "aten.upsample_nearest1d", "aten._pad_circular",
    "aten.select_backward", "aten.slice_backward", "aten.diagonal_backward", "aten.unfold_backward",
    "aten.index_select", "aten.upsample_bilinear2d",
)  # fmt: skip
def copy(call: Call) -> Work:
    """Reads its inputs and writes its outputs, each element once."""
    if call.target == "aten.index_select":
        return _gathered(call, call.args[2])
    return Work(OpKind.MOVE)


@rule(
    "aten.arange", "aten.full", "aten.zeros", "aten.ones", "aten.full_like", "aten.zeros_like", "aten.ones_like",
    "aten.new_zeros", "aten.new_ones", "aten.new_full", "aten.fill", "aten.zero", "aten.eye", "aten.linspace",
    "aten.logspace", "aten.scalar_tensor", "aten.normal", "aten.uniform", "aten.bernoulli", "aten.random",
    "aten.exponential", "aten.rand", "aten.randn", "aten.randint", "aten.randperm", "aten.rand_like", "aten.randn_like",
    "aten.randint_like", "aten.cauchy", "aten.geometric", "aten.log_normal", "aten._efficientzerotensor",
    "aten.hann_window", "aten.one_hot",
)  # fmt: skip
def fill(call: Call) -> Work:
    """Writes its output and reads nothing that is worth counting."""
    return Work(OpKind.MOVE)


def _gathered(call: Call, indices: torch.Tensor) -> Work:
    """As many bytes out of the table as come out, and the indices."""
    return Work(OpKind.MOVE, reads=bytes_of(call.outputs) + touched(indices))


@rule("aten.embedding")
def embedding(call: Call) -> Work:
    """Reads the rows that are looked up, not the table."""
    table, indices = call.args[:2]
    work = _gathered(call, indices)
    return Work(OpKind.MOVE, reads=work.reads, dims=RowDims(indices.numel(), table.shape[-1]), dtype=table.dtype)


@rule("aten._embedding_bag", "aten._embedding_bag_forward_only")
def embedding_bag(call: Call) -> Work:
    """Reads the rows that are looked up and adds those of a bag."""
    table, indices, offsets = call.args[:3]
    size = indices.numel() * table.shape[-1]
    reads = size * table.element_size() + touched(indices) + touched(offsets)
    dims = RowDims(indices.numel(), table.shape[-1])
    return Work(OpKind.MOVE, size, reads, dims=dims, dtype=table.dtype)


@rule("aten.embedding_dense_backward", "aten._embedding_bag_backward", "aten._embedding_bag_dense_backward")
def embedding_backward(call: Call) -> Work:
    """Fills a gradient as large as the table and adds every row of the incoming gradient to one of its rows."""
    gradient, indices = call.args[:2]
    rows = touched(gradient)
    reads = 2 * rows + touched(indices)
    dims = RowDims(indices.numel(), gradient.shape[-1])
    writes = bytes_of(call.outputs) + rows
    return Work(OpKind.MOVE, gradient.numel(), reads, writes, dims, gradient.dtype)


@rule(
    "aten.gather", "aten.take", "aten.take_along_dim", "aten._unsafe_index", "aten.index", "aten._unsafe_masked_index"
)
def gather(call: Call) -> Work:
    """As many elements out of the source as come out, and the indices."""
    return Work(OpKind.MOVE, reads=bytes_of(call.outputs) + bytes_of(call.inputs[1:]))


_WRITES_ITS_SOURCE = (
    "scatter", "scatter_add", "index_put", "_index_put_impl", "index_add", "index_copy", "scatter_reduce", "put",
    "_unsafe_index_put", "index_reduce", "index_fill", "slice_scatter", "select_scatter", "diagonal_scatter",
    "as_strided_scatter",
)  # fmt: skip


@rule(*(f"aten.{name}{form}" for name in _WRITES_ITS_SOURCE for form in ("", "_")))
def scatter(call: Call) -> Work:
    """Writes as many elements as the source has; the form that is not in place copies the whole target first.

    Sums read what they add to.
    """
    target, sources = call.args[0], [each for each in call.inputs if each is not call.args[0]]
    name = call.target.removeprefix("aten.").removesuffix("_")
    floats = [each for each in sources if each.dtype == target.dtype]
    indices = [each for each in sources if each.dtype != target.dtype]
    count = floats[-1].numel() if floats else max((each.numel() for each in indices), default=0)
    if "index_put" in name:
        count = max(count, _rows_put(call))
    moved = min(count, prod(target.shape)) * target.element_size()
    sums = (
        "add" in name
        or "reduce" in name
        or (name.startswith(("index_put", "_index_put")) and bool(call.arg(3, "accumulate", False)))
    )
    whole = 0 if call.target.endswith("_") else touched(target)
    reads = bytes_of(sources) + whole + (moved if sums else 0)
    return Work(OpKind.MOVE, count if sums else 0, reads, whole + moved)


def _rows_put(call: Call) -> int:
    """Elements that index_put writes when its value is one that is spread over them."""
    target, indices = call.args[0], call.args[1]
    shapes = [each.shape for each in indices if isinstance(each, torch.Tensor) and each.dtype != torch.bool]
    if not shapes:
        return 0
    picked = prod(torch.broadcast_shapes(*shapes))
    rest = prod(
        size for size, index in zip(target.shape, [*indices, *[None] * target.dim()], strict=False) if index is None
    )
    return int(picked * rest)
