"""Graphs of one operator, built from its sizes: what ``xpusim op`` asks about, and handy in tests.

Bytes are those of the operator alone: every input is read once and every output written once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature

from simulator.dims import AttentionDims, Dims, MatmulDims, RowDims
from simulator.dtypes import DType
from simulator.errors import UsageError, nearest
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role, Tensor, Workload

Shape = tuple[int, ...]
_MOST_INPUTS = 64  # of a pointwise operator


@dataclass(frozen=True, slots=True)
class Sketch:
    """What an operator is, before it has tensors: *inputs* and *outputs* are shapes.

    gathered  elements read, where they are fewer than all of the inputs (a gather); None otherwise.
    """

    target: str
    kind: OpKind
    flops: int
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    dims: Dims | None = None
    gathered: int | None = None


def gemm(M: int, N: int, K: int) -> Sketch:  # noqa: N803 - the names that the command line uses
    """y[M,N] = x[M,K] w[K,N]"""
    dims = MatmulDims(M, N, K)
    return Sketch("aten.mm", OpKind.MATMUL, dims.flops, ((M, K), (K, N)), ((M, N),), dims)


def bmm(B: int, M: int, N: int, K: int) -> Sketch:  # noqa: N803
    """B independent products [M,K] x [K,N]"""
    dims = MatmulDims(M, N, K, B)
    return Sketch("aten.bmm", OpKind.MATMUL, dims.flops, ((B, M, K), (B, K, N)), ((B, M, N),), dims)


def attention(
    B: int, H: int, Sq: int, D: int, Hkv: int = 0, Skv: int = 0, causal: int = 0, window: int = 0  # noqa: N803
) -> Sketch:  # fmt: skip
    """fused attention; Hkv (default H) key/value heads, Skv (default Sq) keys, causal=true masks"""
    kv_heads, kv_len = Hkv or H, Skv or Sq
    if H % kv_heads:
        raise UsageError(f"attention: H={H} query heads cannot share Hkv={kv_heads} key/value heads evenly")
    dims = AttentionDims(B, H, kv_heads, Sq, kv_len, D, D, causal=bool(causal), window=window)
    query, key = (B, H, Sq, D), (B, kv_heads, kv_len, D)
    return Sketch("xpusim.attention", OpKind.ATTENTION, dims.flops, (query, key, key), (query,), dims)


def pointwise(R: int, C: int, inputs: int = 1, flops: int = 1) -> Sketch:  # noqa: N803
    """each element on its own: `inputs` tensors [R,C] read, one written, `flops` an element"""
    if inputs > _MOST_INPUTS:
        raise UsageError(f"pointwise: inputs={inputs}: at most {_MOST_INPUTS}")
    return Sketch("aten.add", OpKind.POINTWISE, flops * R * C, ((R, C),) * inputs, ((R, C),))


def norm(R: int, C: int) -> Sketch:  # noqa: N803
    """layer norm of R rows of C elements, 8 FLOP an element"""
    return Sketch("aten.native_layer_norm", OpKind.REDUCTION, 8 * R * C, ((R, C), (C,), (C,)), ((R, C),), RowDims(R, C))


def rmsnorm(R: int, C: int) -> Sketch:  # noqa: N803
    """RMS norm of R rows of C elements, 4 FLOP an element"""
    return Sketch("xpusim.rms_norm", OpKind.REDUCTION, 4 * R * C, ((R, C), (C,)), ((R, C),), RowDims(R, C))


def softmax(R: int, C: int) -> Sketch:  # noqa: N803
    """softmax of R rows of C elements, 5 FLOP an element"""
    return Sketch("aten._softmax", OpKind.REDUCTION, 5 * R * C, ((R, C),), ((R, C),), RowDims(R, C))


def reduce(R: int, C: int) -> Sketch:  # noqa: N803
    """sum of each of R rows of C elements"""
    return Sketch("aten.sum", OpKind.REDUCTION, R * C, ((R, C),), ((R,),), RowDims(R, C))


def copy(R: int, C: int) -> Sketch:  # noqa: N803
    """[R,C] read and written"""
    return Sketch("aten.copy", OpKind.MOVE, 0, ((R, C),), ((R, C),))


def embedding(T: int, V: int, C: int) -> Sketch:  # noqa: N803
    """T rows of a table [V,C], looked up"""
    return Sketch("aten.embedding", OpKind.MOVE, 0, ((V, C),), ((T, C),), RowDims(T, C), gathered=T * C)


OPERATORS: Mapping[str, Callable[..., Sketch]] = {
    build.__name__: build
    for build in (gemm, bmm, attention, pointwise, norm, rmsnorm, softmax, reduce, copy, embedding)
}


def single(name: str, sizes: Mapping[str, int], dtype: DType = DType.BF16) -> OperatorGraph:
    """Return a graph of the one operator *name* with those *sizes*, all its elements of *dtype*.

    Raises UsageError for an operator or size that does not exist, is missing or makes no sense.

    >>> (op,) = single("gemm", {"M": 4, "N": 8, "K": 16})
    >>> op.flops, op.reads, op.writes
    (1024, 384, 64)
    """
    if name not in OPERATORS:
        raise UsageError(f"unknown operator {name!r}{nearest(name, OPERATORS)} (known: {', '.join(OPERATORS)})")
    _check(name, sizes)
    sketch = OPERATORS[name](**sizes)
    graph = OperatorGraph(Workload(f"{name} {' '.join(f'{key}={value}' for key, value in sizes.items())}", dtype=dtype))
    inputs = tuple(_tensor(graph, f"input{i}", shape, dtype) for i, shape in enumerate(sketch.inputs))
    outputs = tuple(_tensor(graph, f"output{i}", shape, dtype) for i, shape in enumerate(sketch.outputs))
    everything = sum(tensor.nbytes for tensor in inputs)
    reads = everything if sketch.gathered is None else sketch.gathered * dtype.bits // 8
    writes = sum(tensor.nbytes for tensor in outputs)
    graph.add(
        Operator(
            id=0, module="", target=sketch.target, kind=sketch.kind, phase=Phase.FORWARD, inputs=inputs,
            outputs=outputs, flops=sketch.flops, reads=reads, writes=writes, deps=(), dtype=dtype, dims=sketch.dims,
        )
    )  # fmt: skip
    return graph


def parameters(name: str) -> dict[str, bool]:
    """Sizes that the operator *name* takes, in order, and whether each must be given."""
    return {key: item.default is item.empty for key, item in signature(OPERATORS[name]).parameters.items()}


def _check(name: str, sizes: Mapping[str, int]) -> None:
    known = parameters(name)
    for key, value in sizes.items():
        if key not in known:
            raise UsageError(f"{name}: unknown size {key!r}{nearest(key, known)} (it takes {', '.join(known)})")
        if value < (1 if known[key] else 0):
            raise UsageError(f"{name}: {key}={value}: must be at least {1 if known[key] else 0}")
    missing = [key for key, needed in known.items() if needed and key not in sizes]
    if missing:
        raise UsageError(f"{name}: needs {', '.join(f'{key}=..' for key in missing)} (it takes {', '.join(known)})")


def _tensor(graph: OperatorGraph, name: str, shape: Shape, dtype: DType) -> Tensor:
    size = Tensor(0, shape, dtype).nbytes
    return Tensor(graph.add_storage(name, Role.INPUT, size).id, shape, dtype)
