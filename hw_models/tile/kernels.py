"""Single measured kernels as operator graphs: what a row of a benchmark table asks of a chip.

Names and shapes are those of ``data/h200/ops.csv``.  A row whose name is not known gives None; a shape without the
sizes that its name needs raises KeyError with the missing one.
"""

from collections.abc import Callable, Mapping

from simulator.dims import AttentionDims, MatmulDims, RowDims
from simulator.dtypes import DType
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role, Tensor, Workload

Shape = Mapping[str, int]
Builder = Callable[["Bench", Shape], None]
_BUILDERS: dict[str, Builder] = {}


class Bench:
    """A graph under construction in which every tensor has a storage of its own."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.graph = OperatorGraph(Workload("kernel", dtype=dtype))

    def tensor(self, *shape: int, dtype: DType | None = None) -> Tensor:
        kind = dtype or self.dtype
        size = Tensor(0, shape, kind).nbytes
        return Tensor(self.graph.add_storage("operand", Role.INPUT, size).id, shape, kind)

    def add(
        self,
        kind: OpKind,
        target: str,
        inputs: tuple[Tensor, ...],
        output: Tensor,
        flops: int = 0,
        dims: MatmulDims | AttentionDims | RowDims | None = None,
        reads: int | None = None,
    ) -> Tensor:
        """Append one operator that reads *inputs* and writes *output*, and return the output."""
        total = sum(tensor.nbytes for tensor in inputs) if reads is None else reads
        count = len(self.graph)
        deps = (count - 1,) if count else ()
        made, moved = (output,), output.nbytes
        phase = Phase.FORWARD
        self.graph.add(
            Operator(count, "", target, kind, phase, inputs, made, flops, total, moved, deps, self.dtype, dims)
        )
        return output


def kernel_graph(op: str, dtype: DType, shape: Shape) -> OperatorGraph | None:
    """The operators that one call of benchmark *op* launches; None if *op* is not known."""
    build = _BUILDERS.get(op)
    if build is None:
        return None
    bench = Bench(dtype)
    build(bench, shape)
    return bench.graph


def known_kernels() -> tuple[str, ...]:
    """Names of the benchmarks that can be predicted."""
    return tuple(_BUILDERS)


def _kernel(*names: str) -> Callable[[Builder], Builder]:
    def enter(build: Builder) -> Builder:
        _BUILDERS.update(dict.fromkeys(names, build))
        return build

    return enter


@_kernel("gemm")
def _gemm(bench: Bench, shape: Shape) -> None:
    """y[M,N] = x[M,K] w[N,K]^T; an fp8 product gives bf16."""
    _product(bench, MatmulDims(shape["M"], shape["N"], shape["K"]))


@_kernel("bmm")
def _bmm(bench: Bench, shape: Shape) -> None:
    _product(bench, MatmulDims(shape["M"], shape["N"], shape["K"], shape["B"]))


def _product(bench: Bench, dims: MatmulDims) -> None:
    out = DType.BF16 if bench.dtype is DType.FP8 else DType.INT32 if bench.dtype is DType.INT8 else bench.dtype
    left = bench.tensor(dims.batch, dims.m, dims.k)
    right = bench.tensor(dims.batch, dims.k, dims.n)
    result = bench.tensor(dims.batch, dims.m, dims.n, dtype=out)
    bench.add(OpKind.MATMUL, "aten.bmm" if dims.batch > 1 else "aten.mm", (left, right), result, dims.flops, dims)


@_kernel("sdpa")
def _sdpa(bench: Bench, shape: Shape) -> None:
    """The flash kernel, asked for by its name."""
    _attention(bench, shape, "aten._scaled_dot_product_flash_attention")


@_kernel("attention")
def _default_attention(bench: Bench, shape: Shape) -> None:
    """The kernel that the framework takes by itself."""
    _attention(bench, shape, "xpusim.attention")


def _attention(bench: Bench, shape: Shape, target: str) -> None:
    batch, heads, kv_heads, dim = shape["B"], shape["H"], shape["Hkv"], shape["D"]
    q_len, kv_len = shape["Sq"], shape["Skv"]
    causal = bool(shape["causal"]) and q_len > 1
    dims = AttentionDims(batch, heads, kv_heads, q_len, kv_len, dim, dim, causal)
    query = bench.tensor(batch, heads, q_len, dim)
    key, value = (bench.tensor(batch, kv_heads, kv_len, dim) for _ in range(2))
    output = bench.tensor(batch, heads, q_len, dim)
    bench.add(OpKind.ATTENTION, target, (query, key, value), output, dims.flops, dims)


_POINTWISE = {"copy": (1, 0), "add": (2, 1), "gelu": (1, 9), "silu": (1, 4), "mul_scalar": (1, 1)}  # inputs, FLOP


def _pointwise(name: str) -> Builder:
    inputs, flops = _POINTWISE[name]
    kind = OpKind.MOVE if name == "copy" else OpKind.POINTWISE

    def build(bench: Bench, shape: Shape) -> None:
        rows, columns = shape["R"], shape["C"]
        read = tuple(bench.tensor(rows, columns) for _ in range(inputs))
        bench.add(kind, f"aten.{name}", read, bench.tensor(rows, columns), flops * rows * columns)

    return build


_BUILDERS.update({name: _pointwise(name) for name in _POINTWISE})
_ROWS = {
    "softmax": ("aten._softmax", 5),
    "layernorm": ("aten.native_layer_norm", 8),
    "rmsnorm": ("xpusim.rms_norm", 4),
    "sum": ("aten.sum", 1),
}


def _along_rows(name: str) -> Builder:
    target, flops = _ROWS[name]

    def build(bench: Bench, shape: Shape) -> None:
        rows, columns = shape["R"], shape["C"]
        output = bench.tensor(rows, 1 if name == "sum" else columns)
        dims = RowDims(rows, columns)
        bench.add(OpKind.REDUCTION, target, (bench.tensor(rows, columns),), output, flops * rows * columns, dims)

    return build


_BUILDERS.update({name: _along_rows(name) for name in _ROWS})


@_kernel("cast_fp32")
def _cast(bench: Bench, shape: Shape) -> None:
    """To fp32."""
    rows, columns = shape["R"], shape["C"]
    wide = bench.tensor(rows, columns, dtype=DType.FP32)
    bench.add(OpKind.MOVE, "aten._to_copy", (bench.tensor(rows, columns),), wide)


@_kernel("transpose")
def _transpose(bench: Bench, shape: Shape) -> None:
    """x.t().contiguous(); with one row or one column that is a view."""
    rows, columns = shape["R"], shape["C"]
    if min(rows, columns) > 1:
        dims = RowDims(rows, columns, rows)
        bench.add(OpKind.MOVE, "aten.clone", (bench.tensor(rows, columns),), bench.tensor(columns, rows), dims=dims)


@_kernel("noop_fill")
def _fill(bench: Bench, shape: Shape) -> None:
    bench.add(OpKind.MOVE, "aten.fill", (), bench.tensor(shape["n"]))


@_kernel("embedding")
def _embedding(bench: Bench, shape: Shape) -> None:
    columns, count = shape["C"], shape["T"]
    table, indices = bench.tensor(shape["V"], columns), bench.tensor(count, dtype=DType.INT64)
    output = bench.tensor(count, columns)
    reads = output.nbytes + indices.nbytes
    bench.add(OpKind.MOVE, "aten.embedding", (table, indices), output, dims=RowDims(count, columns), reads=reads)


@_kernel("cross_entropy")
def _cross_entropy(bench: Bench, shape: Shape) -> None:
    """Log-softmax over the vocabulary, then one number a row."""
    rows, columns = shape["T"], shape["V"]
    scores = bench.tensor(rows, columns)
    logs = bench.add(
        OpKind.REDUCTION,
        "aten._log_softmax",
        (scores,),
        bench.tensor(rows, columns),
        5 * rows * columns,
        RowDims(rows, columns),
    )
    targets = bench.tensor(rows, dtype=DType.INT64)
    reads = rows * (bench.dtype.bits // 8 + 8)
    inputs, dims = (logs, targets), RowDims(1, rows)
    bench.add(OpKind.REDUCTION, "aten.nll_loss_forward", inputs, bench.tensor(1), rows, dims, reads)
