"""Backward kernels of libraries that Inductor takes apart: norms, sums down columns, embeddings.

It decomposes them into loops that it can fuse and then cuts these to fill a GPU.  What comes out moves more bytes and
has more kernels, and Inductor does not ask whether that pays: neither does this pass.  The rules are those of torch
2.11 to 2.13, by the functions named below, and of a chip they need to know the number of its cores.

* Norms: a kernel along the rows makes the gradient of the data, and the parameters' gradients are sums down the
  columns.  Large ones (`mixed`) are summed in the first kernel over blocks of rows; the framework's library adds the
  blocks up, and a loop each converts the result.
* Sums down columns: two kernels, the second over partial sums, where one would leave cores idle (`parts`).
* Embeddings: a gradient of zeros, a scatter that adds to it, and a conversion; fp32 where the table is narrower.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, prod

from simulator.dims import RowDims
from simulator.dtypes import DType
from simulator.graph import Operator, OperatorGraph, OpKind, Role, Storage, Tensor
from simulator.passes.draft import rebuilt
from simulator.passes.prices import Prices
from simulator.passes.spaces import LIBRARY, SCATTER
from simulator.scope import outside

_NORMS = frozenset(("native_layer_norm_backward", "rms_norm_backward", "_fused_rms_norm_backward"))
_SUMS = frozenset(("sum", "mean"))
_GAIN_FLOPS, _BIAS_FLOPS = 2, 1  # an element: multiply by the normalised datum and add; add
_WARP, _THREADS, _LONGEST = 32, 2048, 512  # threads of a warp and of a core; most elements of one thread
_COLUMNS, _BLOCK_THREADS, _ROWS_AT_ONCE = 128, 256, 4  # of a block that sums down columns


def decompose(graph: OperatorGraph, prices: Prices) -> OperatorGraph:
    """Norms' and embeddings' gradients and sums down columns become the kernels that Inductor makes of them."""
    return _Decomposition(graph, prices.cores).run()


def mixed(dims: RowDims) -> bool:
    """Whether sums along rows and down columns of the same data share a kernel: ``MixOrderReduction.can_fuse``.

    Where they do not fill the cache, have many rows, and a row fits a block.

    >>> mixed(RowDims(16384, 768)), mixed(RowDims(4096, 768)), mixed(RowDims(4096, 4096))
    (True, False, False)
    """
    large = dims.rows * dims.columns >= 5 * 2**20
    return large and dims.rows >= max(4096, 2 * dims.columns) and dims.columns <= 16 * 1024


def parts(outputs: int, length: int, cores: int) -> int:
    """Partial sums for each of *outputs* sums of *length* elements: ``Reduction.num_splits``, of outer reductions.

    >>> parts(768, 16384, cores=132), parts(8448, 16384, cores=132), parts(768, 32, cores=132)
    (128, 1, 1)
    """
    if length <= _WARP or outputs >= 64 * cores:
        return 1
    each = _WARP
    if outputs * length >= _WARP * _THREADS * cores:
        blocks = ceil(_THREADS * cores // _BLOCK_THREADS / ceil(outputs / _COLUMNS))
        each = min(_LONGEST, max(_WARP, ceil(length / (_ROWS_AT_ONCE * blocks))))
    return ceil(length / (_ROWS_AT_ONCE * each))


def _blocks(rows: int, cores: int) -> int:
    """Blocks of rows of a mixed kernel: 16 to 128 rows each, so many that each core has eight."""
    wanted = max(1, rows // (8 * cores))
    return ceil(rows / min(128, max(16, 1 << (wanted.bit_length() - 1))))


class _Decomposition:
    def __init__(self, graph: OperatorGraph, cores: int) -> None:
        self._graph = graph
        self._cores = cores
        self._storages = list(graph.storages)

    def run(self) -> OperatorGraph:
        eager = outside(self._graph)
        pieces = [[op] if op.id in eager or op.group else self._pieces(op) for op in self._graph]
        return rebuilt(self._graph, self._storages, pieces)

    def _pieces(self, op: Operator) -> list[Operator]:
        name = op.target.rsplit(".", 1)[-1]
        if name in _NORMS:
            return self._norm(op, name)
        if name in _SUMS and op.kind is OpKind.REDUCTION:
            return self._sum(op)
        return self._embedding(op) if name == "embedding_dense_backward" else [op]

    def _norm(self, op: Operator, name: str) -> list[Operator]:
        """The kernel along the rows and what sums the gradients of the parameters; *op* itself if it has none."""
        dims = op.dims
        if not isinstance(dims, RowDims):
            return [op]
        data = [tensor for tensor in op.outputs if tensor.elements == dims.rows * dims.columns]
        gains = [tensor for tensor in op.outputs if tensor.elements == dims.columns]
        if len(data) != 1 or not gains or len(op.outputs) != 1 + len(gains) or dims.rows < 2:
            return [op]
        each = [(_BIAS_FLOPS if index else _GAIN_FLOPS) * dims.rows * dims.columns for index in range(len(gains))]
        target = f"{op.target.removesuffix(name)}{name}_rows"
        rows = replace(op, target=target, outputs=(data[0],), writes=data[0].nbytes, flops=op.flops - sum(each))
        if mixed(dims):
            return self._mixed(rows, gains, sum(each))
        summed = tuple(tensor for tensor in op.inputs if tensor.elements != dims.columns)
        down = RowDims(dims.columns, dims.rows, dims.columns)
        return [rows, *self._down(_column_sum(op, summed, gains, down, sum(each)))]

    def _mixed(self, rows: Operator, gains: Sequence[Tensor], flops: int) -> list[Operator]:
        assert isinstance(rows.dims, RowDims)
        columns, blocks = rows.dims.columns, _blocks(rows.dims.rows, self._cores)
        sums = [self._tensor("partial sums", (blocks, columns)) for _ in gains]
        writes = rows.writes + sum(tensor.nbytes for tensor in sums)
        first = replace(rows, outputs=(*rows.outputs, *sums), writes=writes, flops=rows.flops + flops)
        found = [first]
        for partial, gain in zip(sums, gains, strict=True):
            narrow = gain.dtype is not DType.FP32
            whole = self._tensor("sums", gain.shape) if narrow else gain
            added = _column_sum(rows, (partial,), (whole,), RowDims(columns, blocks, columns), 0)
            found.append(replace(added, target=f"{LIBRARY}sum"))
            if narrow:
                found.append(_move(rows, "aten._to_copy", (whole,), (gain,)))
        return found

    def _sum(self, op: Operator) -> list[Operator]:
        dims = op.dims
        if not isinstance(dims, RowDims) or dims.inner < 2 or dims.inner != dims.rows or len(op.outputs) != 1:
            return [op]
        return self._down(op)

    def _down(self, op: Operator) -> list[Operator]:
        """*op*, which sums down columns, in two kernels where one would leave cores idle."""
        dims = op.dims
        assert isinstance(dims, RowDims)
        count = parts(dims.rows, dims.columns, self._cores)
        if count < 2:
            return [op]
        partial = [self._tensor("partial sums", (count, dims.rows)) for _ in op.outputs]
        first = RowDims(count * dims.rows, ceil(dims.columns / count), dims.rows)
        writes = sum(tensor.nbytes for tensor in partial)
        found = [replace(op, outputs=tuple(partial), writes=writes, dims=first)]
        for each, whole in zip(partial, op.outputs, strict=True):
            found.append(_column_sum(op, (each,), (whole,), RowDims(dims.rows, count, dims.rows), 0))
        return found

    def _embedding(self, op: Operator) -> list[Operator]:
        """Zeros, a scatter and a conversion; *op* itself if it is not of two operands."""
        if len(op.inputs) != 2 or len(op.outputs) != 1:
            return [op]
        gradient, indices = op.inputs
        result = op.outputs[0]
        narrow = result.dtype is not DType.FP32
        table = self._tensor("gradient in fp32", result.shape) if narrow else result
        added = gradient.elements * table.dtype.bits // 8
        reads = gradient.nbytes + indices.nbytes + added
        operands = (gradient, indices, table)
        scatter = replace(
            op, target=f"aten.{SCATTER}", inputs=operands, outputs=(table,), reads=reads, writes=added
        )  # fmt: skip
        found = [_move(op, "aten.new_zeros", (), (table,)), scatter]
        return [*found, _move(op, "aten._to_copy", (table,), (result,))] if narrow else found

    def _tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """A new tensor in fp32."""
        storage = Storage(len(self._storages), name, Role.ACTIVATION, prod(shape) * DType.FP32.bits // 8)
        self._storages.append(storage)
        return Tensor(storage.id, shape, DType.FP32)


def _column_sum(
    op: Operator, inputs: Sequence[Tensor], outputs: Sequence[Tensor], dims: RowDims, flops: int
) -> Operator:
    return replace(
        op,
        target="aten.sum",
        kind=OpKind.REDUCTION,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        flops=flops,
        reads=sum(tensor.nbytes for tensor in inputs),
        writes=sum(tensor.nbytes for tensor in outputs),
        dims=dims,
        dispatches=1,
    )


def _move(op: Operator, target: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Operator:
    return replace(_column_sum(op, inputs, outputs, RowDims(1, 1), 0), target=target, kind=OpKind.MOVE, dims=None)
