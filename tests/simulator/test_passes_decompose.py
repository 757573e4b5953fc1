"""What Inductor takes apart, inlines and recomputes, on graphs worked out by hand."""

from dataclasses import replace

import pytest

from simulator.costs import compute_model
from simulator.dims import MatmulDims, RowDims
from simulator.dtypes import DType
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role
from simulator.passes.decompose import decompose, parts
from simulator.passes.fusion import pointwise, reductions
from simulator.passes.inlining import inline, recompute
from simulator.passes.prices import Prices
from tests.simulator.test_passes_fusion import MATMUL, MOVE, REDUCE, Maker, prices, targets
from tests.simulator.toys import toy_chip


def gpu() -> Prices:
    """132 cores, every kernel 6 ns."""
    return Prices(compute_model("fixed", toy_chip()), cores=132)


def norm_backward(rows: int, columns: int, dtype: DType = DType.BF16) -> OperatorGraph:
    """The gradient of a layer norm: data, gain and bias."""
    make = Maker()
    dy, x, dx = make.input(rows, columns), make.input(rows, columns), make.tensor(rows, columns)
    gain, bias = (replace(make.tensor(columns, columns, role=Role.GRADIENT), shape=(columns,), dtype=dtype)
                  for _ in range(2))  # fmt: skip
    weight = make.tensor(columns, role=Role.WEIGHT)
    work = 16 * rows * columns
    make.op("native_layer_norm_backward", (dy, x, weight), (dx, gain, bias), REDUCE, RowDims(rows, columns), work)
    return make.returns(dx)


def test_a_large_norm_sums_its_gradients_in_the_kernel_along_the_rows() -> None:
    """16,384 rows over 132 cores with eight blocks each: 15 rows a block, so 16, and 1,024 blocks."""
    graph = norm_backward(16384, 768)
    found = decompose(graph, gpu())
    assert [op.target for op in found] == [
        "aten.native_layer_norm_backward_rows",
        "library.sum", "aten._to_copy",
        "library.sum", "aten._to_copy",
    ]  # fmt: skip
    rows, added, converted, *_ = found
    assert [tensor.shape for tensor in rows.outputs] == [(16384, 768), (1024, 768), (1024, 768)]
    assert rows.writes == 16384 * 768 * 2 + 2 * 1024 * 768 * 4
    assert (rows.flops, added.flops) == (16 * 16384 * 768, 0)
    assert (added.reads, added.writes, converted.reads, converted.writes) == (1024 * 768 * 4, 3072, 3072, 1536)
    assert found.flops == graph.flops


def test_a_small_norm_has_two_kernels_for_its_sums() -> None:
    """4,096 x 768 elements stay in the cache.  32 elements a thread, four rows at once: 32 partial sums a column."""
    found = decompose(norm_backward(4096, 768), gpu())
    assert targets(found) == ["aten.native_layer_norm_backward_rows", "aten.sum", "aten.sum", "aten.sum"]
    rows, partial, gain, bias = found
    assert rows.flops == 13 * 4096 * 768  # of 16 an element, multiply and add for the gain and an addition for the bias
    assert partial.flops == 3 * 4096 * 768
    assert [tensor.shape for tensor in partial.outputs] == [(32, 768), (32, 768)]
    assert gain.dims == bias.dims == RowDims(768, 32, inner=768)
    assert (gain.deps, bias.deps) == ((1,), (1,))


def test_gradients_in_fp32_need_no_conversion() -> None:
    found = decompose(norm_backward(16384, 768, DType.FP32), gpu())
    assert targets(found)[1:] == ["library.sum", "library.sum"]


def test_a_norm_without_parameters_or_of_one_row_stays() -> None:
    make = Maker()
    dy, x, dx = make.input(8, 4), make.input(8, 4), make.tensor(8, 4)
    make.op("native_layer_norm_backward", (dy, x), (dx,), REDUCE, RowDims(8, 4), 512)
    graph = make.returns(dx)
    assert decompose(graph, gpu()).operators == graph.operators
    graph = norm_backward(1, 8)
    assert decompose(graph, gpu()).operators == graph.operators


@pytest.mark.parametrize(
    ("outputs", "length", "count"),
    [(768, 4096, 32), (768, 16384, 128), (8447, 16384, 16), (8448, 16384, 1), (768, 33, 1), (768, 32, 1)],
)
def test_partial_sums_are_as_many_as_the_cores_need(outputs: int, length: int, count: int) -> None:
    """A part is four rows at once of 32 elements a thread; more where every thread of the chip then has work.

    8447 x 16384: 1056 blocks of threads over 66 times 128 columns leave 16 parts, of 256 elements a thread.
    """
    assert parts(outputs, length, cores=132) == count


def test_a_sum_along_rows_stays_whole() -> None:
    make = Maker()
    x, out = make.input(4096, 768), make.tensor(4096)
    make.op("sum", (x,), (out,), REDUCE, RowDims(4096, 768), 4096 * 768)
    graph = make.returns(out)
    assert decompose(graph, gpu()).operators == graph.operators


def embedding_backward() -> OperatorGraph:
    make = Maker()
    a, b, gradient = make.input(4, 8), make.input(4, 8), make.tensor(4, 8)
    indices = replace(make.input(16), shape=(4,), dtype=DType.INT64)
    make.op("add", (a, b), (gradient,), flops=32)
    make.op("embedding_dense_backward", (gradient, indices), (make.tensor(100, 8),), MOVE, RowDims(4, 8), 32)
    return make.returns(make.graph.operators[1].outputs[0])


def test_the_gradient_of_an_embedding_is_filled_scattered_to_and_converted() -> None:
    found = decompose(embedding_backward(), gpu())
    assert targets(found)[1:] == ["aten.new_zeros", "aten._unsafe_masked_index_put_accumulate", "aten._to_copy"]
    _, zeros, scatter, converted = found
    assert (zeros.reads, zeros.writes) == (0, 3200)  # 100 x 8 in fp32
    assert (scatter.reads, scatter.writes) == (64 + 32 + 128, 128)  # gradient, indices, and rows of the table both ways
    assert (converted.reads, converted.writes) == (3200, 1600)


def test_a_scatter_joins_what_makes_its_rows_and_nothing_that_reads_its_table() -> None:
    """The zeros come first, although the program has them after the sum."""
    found = pointwise(decompose(embedding_backward(), gpu()), gpu())
    assert targets(found) == [
        "fused.new_zeros", "fused._unsafe_masked_index_put_accumulate+add", "fused._to_copy"
    ]  # fmt: skip


def test_a_residual_joins_the_kernel_along_the_rows_and_not_the_sums() -> None:
    graph = norm_backward(16384, 768)
    make = Maker()
    make.graph = graph
    residual, out = make.input(16384, 768), make.tensor(16384, 768)
    make.op("add", (graph.operators[0].outputs[0], residual), (out,), flops=16384 * 768)
    found = reductions(decompose(make.returns(out), gpu()), gpu())
    assert targets(found) == [
        "fused.add+native_layer_norm_backward_rows.rows",
        "library.sum", "aten._to_copy",
        "library.sum", "aten._to_copy",
    ]  # fmt: skip


def test_a_sum_down_columns_takes_what_reads_its_sums_and_nothing_before_it() -> None:
    make = Maker()
    x, wide, sums, out = make.input(4, 8), make.tensor(4, 8), make.tensor(8), make.tensor(8)
    make.op("exp", (x,), (wide,))
    make.op("sum", (wide,), (sums,), REDUCE, RowDims(8, 4, inner=8))
    make.op("neg", (sums,), (out,))
    assert targets(reductions(make.returns(out), prices())) == ["aten.exp", "fused.neg+sum.rows"]


def stream(addends: int, head: int) -> OperatorGraph:
    """A residual stream: each sum is read by a norm, whose product is added next; at its end *head* results."""
    make = Maker()
    total = normed = make.input(2, 8)
    for _ in range(addends):
        product, added = make.tensor(2, 8), make.tensor(2, 8)
        make.op("mm", (normed,), (product,), MATMUL, MatmulDims(2, 8, 8))
        make.op("add", (total, product), (added,), flops=16)
        total, normed = added, make.tensor(2, 8)
        make.op("native_layer_norm", (total,), (normed,), REDUCE, RowDims(2, 8), flops=128)
    out = make.tensor(head)
    make.op("mm", (normed,), (out,), MATMUL, MatmulDims(1, head, 16))
    return make.returns(out)


def test_a_residual_stream_is_written_when_it_has_five_addends() -> None:
    """Input and four products: the fifth load makes the fourth sum one that is written, and the next starts from it."""
    graph = stream(6, head=1024)
    found = inline(graph, prices())
    adds = [op for op in found if "add" in op.target]
    assert [len(op.inputs) for op in adds] == [2, 3, 4, 5, 2, 3]
    fused = [op for op in reductions(found, prices()) if "add" in op.target]
    assert [len(op.outputs) for op in fused] == [1, 1, 1, 2, 1, 1]  # the norm's, and once the stream


def test_a_stream_whose_addends_would_raise_the_peak_memory_is_written() -> None:
    graph = stream(6, head=8)
    assert inline(graph, prices()).operators == graph.operators


def test_what_a_product_reads_as_well_is_written() -> None:
    make = Maker()
    a, b, t, out, product = make.input(2, 8), make.input(2, 8), make.tensor(2, 8), make.tensor(2, 8), make.tensor(2, 8)
    make.op("add", (a, b), (t,))
    make.op("neg", (t,), (out,))
    make.op("mm", (t,), (product,), MATMUL, MatmulDims(2, 8, 8))
    graph = make.returns(out, product)
    assert inline(graph, prices()).operators == graph.operators


def gated(*, kept: bool = True) -> OperatorGraph:
    """silu(gate) x up, and backwards a product with silu(gate); *kept*: gate is read backwards as well."""
    make = Maker()
    gate, up, gradient = make.tensor(8), make.tensor(8), make.tensor(8)
    act, out, of_up, of_act = (make.tensor(8) for _ in range(4))
    make.op("mm", (make.input(8),), (gate,), MATMUL, MatmulDims(2, 4, 4))
    make.op("mm", (make.input(8),), (up,), MATMUL, MatmulDims(2, 4, 4))
    make.op("silu", (gate,), (act,), flops=32)
    make.op("mul", (act, up), (out,), flops=8)
    make.op("mm", (out,), (gradient,), MATMUL, MatmulDims(2, 4, 4), phase=Phase.BACKWARD)
    make.op("mul", (gradient, act), (of_up,), flops=8, phase=Phase.BACKWARD)
    if kept:
        make.op("silu_backward", (gradient, gate), (of_act,), flops=48, phase=Phase.BACKWARD)
    return make.returns(of_up, of_act)


def test_what_the_backward_pass_can_work_out_is_not_kept_for_it() -> None:
    found = recompute(gated(), prices())
    assert targets(found)[4:7] == ["aten.mm", "aten.silu", "aten.mul"]
    again = found.operators[5]
    assert (again.phase, again.deps) == (Phase.BACKWARD, (0,))
    fused = pointwise(found, prices())
    forward = next(op for op in fused if op.target == "fused.mul+silu")
    assert (forward.reads, forward.writes) == (32, 16)  # gate, up; their product alone is written


def test_what_would_be_kept_for_it_alone_is_no_gain() -> None:
    graph = gated(kept=False)
    assert recompute(graph, prices()).operators == graph.operators


def test_no_library_kernel_is_generated() -> None:
    graph = norm_backward(4, 8)
    (whole,) = reductions(graph, prices())
    assert isinstance(whole, Operator)
    assert (whole.target, whole.kind) == ("aten.native_layer_norm_backward", OpKind.REDUCTION)
