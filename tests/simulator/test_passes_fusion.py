"""Fusion on graphs worked out by hand: kernels, bytes, and one test for each way in which a merge is not legal."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from simulator.costs import Cost, compute_model
from simulator.dims import CollectiveDims, Dims, MatmulDims, RowDims
from simulator.dtypes import DType
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role, Tensor, Workload
from simulator.memory import memory_timeline
from simulator.passes.fusion import epilogue, pointwise, reductions
from simulator.passes.prices import Prices
from tests.simulator.toys import cost, toy_chip

MOVE, POINT, REDUCE, MATMUL = OpKind.MOVE, OpKind.POINTWISE, OpKind.REDUCTION, OpKind.MATMUL


class Maker:
    """Builds graphs of bf16 tensors, each in a storage of its own; dependencies follow from who writes what."""

    def __init__(self) -> None:
        self.graph = OperatorGraph(Workload("hand"))

    def tensor(self, *shape: int, role: Role = Role.ACTIVATION) -> Tensor:
        made = Tensor(0, shape, DType.BF16)
        return replace(made, storage=self.graph.add_storage("t", role, made.nbytes).id)

    def input(self, *shape: int) -> Tensor:
        return self.tensor(*shape, role=Role.INPUT)

    def op(
        self,
        target: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        kind: OpKind = POINT,
        dims: Dims | None = None,
        flops: int = 0,
        phase: Phase = Phase.FORWARD,
        group: tuple[int, ...] = (),
    ) -> Operator:
        touched = {tensor.storage for tensor in (*inputs, *outputs)}
        deps = tuple(op.id for op in self.graph if any(tensor.storage in touched for tensor in op.outputs))
        reads, writes = (sum(tensor.nbytes for tensor in tensors) for tensors in (inputs, outputs))
        return self.graph.add(
            Operator(
                len(self.graph), "m", f"aten.{target}", kind, phase, tuple(inputs), tuple(outputs), flops, reads,
                writes, deps, DType.BF16, dims, dispatches=2, group=group,
            )
        )  # fmt: skip

    def returns(self, *tensors: Tensor) -> OperatorGraph:
        self.graph.outputs = frozenset(tensor.storage for tensor in tensors)
        return self.graph


def prices() -> Prices:
    """Every kernel takes 6 ns, so that fewer are faster."""
    return Prices(compute_model("fixed", toy_chip()))


def targets(graph: OperatorGraph) -> list[str]:
    return [op.target for op in graph]


def test_a_chain_reads_its_inputs_and_writes_its_output_once() -> None:
    make = Maker()
    a, b, c = make.input(8), make.input(8), make.input(8)
    t, out = make.tensor(8), make.tensor(8)
    make.op("mul", (a, b), (t,), flops=8)
    make.op("add", (t, c), (out,), flops=8)
    (fused,) = pointwise(make.returns(out), prices())
    assert fused.target == "fused.mul+add"
    assert fused.kind is POINT
    assert (fused.reads, fused.writes) == (3 * 16, 16)  # a, b, c and out of 8 x 2 bytes; t never leaves the chip
    assert (fused.flops, fused.dispatches, fused.deps) == (16, 1, ())
    assert fused.inputs == (a, b, c)
    assert fused.outputs == (out,)


def test_an_input_that_two_members_read_is_read_once() -> None:
    make = Maker()
    a = make.input(8)
    t, out = make.tensor(8), make.tensor(8)
    make.op("silu", (a,), (t,))
    make.op("mul", (t, a), (out,))
    (fused,) = pointwise(make.returns(out), prices())
    assert (fused.reads, fused.writes) == (16, 16)


def test_siblings_over_the_same_input_become_one() -> None:
    make = Maker()
    a = make.input(8)
    first, second = make.tensor(8), make.tensor(8)
    make.op("exp", (a,), (first,))
    make.op("neg", (a,), (second,))
    (fused,) = pointwise(make.returns(first, second), prices())
    assert (fused.reads, fused.writes) == (16, 32)
    assert fused.outputs == (first, second)


def test_a_second_use_keeps_the_intermediate_written() -> None:
    make = Maker()
    a = make.input(8)
    t, out, product = make.tensor(8), make.tensor(8), make.tensor(8)
    make.op("exp", (a,), (t,))
    make.op("neg", (t,), (out,))
    make.op("mm", (t,), (product,), MATMUL, MatmulDims(2, 4, 4))
    fused, _ = pointwise(make.returns(out, product), prices())
    assert fused.outputs == (t, out)
    assert (fused.reads, fused.writes) == (16, 32)


def test_what_the_program_returns_stays_written() -> None:
    make = Maker()
    a, t, out = make.input(8), make.tensor(8), make.tensor(8)
    make.op("exp", (a,), (t,))
    make.op("neg", (t,), (out,))
    (fused,) = pointwise(make.returns(t, out), prices())
    assert fused.outputs == (t, out)


def test_different_sizes_are_not_fused() -> None:
    make = Maker()
    a, t, out = make.input(12), make.tensor(12), make.tensor(8)
    make.op("exp", (a,), (t,))
    make.op("neg", (replace(t, shape=(8,)),), (out,))  # a slice of t
    assert len(pointwise(make.returns(out), prices())) == 2


def test_a_broadcast_operand_is_worked_out_where_it_is_used() -> None:
    make = Maker()
    row, wide = make.input(4), make.input(2, 4)
    t, out = make.tensor(4), make.tensor(2, 4)
    make.op("exp", (row,), (t,))
    make.op("add", (wide, t), (out,))
    (fused,) = pointwise(make.returns(out), prices())
    assert (fused.reads, fused.writes) == (8 + 16, 16)


def test_a_broadcast_operand_that_others_need_too_is_not() -> None:
    make = Maker()
    row, wide = make.input(4), make.input(2, 4)
    t, out = make.tensor(4), make.tensor(2, 4)
    make.op("exp", (row,), (t,))
    make.op("add", (wide, t), (out,))
    assert len(pointwise(make.returns(t, out), prices())) == 2


def test_parts_of_a_concatenation_are_computed_in_place() -> None:
    make = Maker()
    a, b = make.input(4), make.input(4)
    first, second, out = make.tensor(4), make.tensor(4), make.tensor(8)
    make.op("exp", (a,), (first,))
    make.op("neg", (b,), (second,))
    make.op("cat", (first, second), (out,), MOVE)
    (fused,) = pointwise(make.returns(out), prices())
    assert (fused.reads, fused.writes) == (16, 16)


def test_two_halves_of_a_storage_are_read_once_each() -> None:
    make = Maker()
    whole = make.input(2, 4)
    half = replace(whole, shape=(1, 4))
    first, second, out = make.tensor(1, 4), make.tensor(1, 4), make.tensor(1, 4)
    make.op("exp", (half,), (first,))
    make.op("neg", (half,), (second,))
    make.op("mul", (first, second), (out,))
    (fused,) = pointwise(make.returns(out), prices())
    assert fused.reads == 16  # as far as shapes tell these are the two halves of 8 elements
    assert fused.inputs == (Tensor(whole.storage, (8,), DType.BF16),)


def test_a_write_in_place_is_not_moved_before_a_read() -> None:
    make = Maker()
    state, a = make.input(8), make.input(8)
    t, out = make.tensor(8), make.tensor(8)
    make.op("mul", (state, a), (t,))
    make.op("copy_", (a,), (state,), MOVE)
    make.op("neg", (t,), (out,))
    found = pointwise(make.returns(out), prices())
    order = [set(op.target.removeprefix("fused.").removeprefix("aten.").split("+")) for op in found]
    assert order == [{"mul", "neg"}, {"copy_"}]
    assert found.operators[1].deps == (0,)


def test_no_fusion_across_a_collective() -> None:
    make = Maker()
    a, t, u, out = make.input(8), make.tensor(8), make.tensor(8), make.tensor(8)
    make.op("exp", (a,), (t,))
    make.op("all_reduce", (t,), (u,), OpKind.COLLECTIVE, CollectiveDims("all_reduce", 16), group=(0, 1))
    make.op("mul", (u, a), (out,))
    assert targets(pointwise(make.returns(out), prices())) == ["fused.exp", "aten.all_reduce", "fused.mul"]


def test_no_fusion_over_phases() -> None:
    make = Maker()
    a, t, out = make.input(8), make.tensor(8), make.tensor(8)
    make.op("exp", (a,), (t,))
    make.op("neg", (t,), (out,), phase=Phase.BACKWARD)
    assert len(pointwise(make.returns(out), prices())) == 2


def test_no_fusion_around_an_operator_that_would_have_to_move() -> None:
    make = Maker()
    a, t, product, out = make.input(8), make.tensor(8), make.tensor(8), make.tensor(8)
    make.op("exp", (a,), (t,))
    make.op("mm", (t,), (product,), MATMUL, MatmulDims(2, 4, 4))
    make.op("mul", (t, product), (out,))
    assert len(pointwise(make.returns(out), prices())) == 3  # exp before, mul after the product


class FusedIsSlow:
    """A chip on which a kernel that does two operators takes ten times as long as one."""

    ideal = False

    def costs(self, graph: OperatorGraph) -> list[Cost]:
        return [cost(memory=60_000 if "+" in op.target else 6_000) for op in graph]


def test_a_fusion_that_the_model_says_is_slower_is_not_made() -> None:
    make = Maker()
    a, t, out = make.input(8), make.tensor(8), make.tensor(8)
    make.op("exp", (a,), (t,))
    make.op("neg", (t,), (out,))
    assert targets(pointwise(make.returns(out), Prices(FusedIsSlow()))) == ["fused.exp", "fused.neg"]


@pytest.mark.parametrize(("later", "kernels"), [(8, 4), (512, 3)])
def test_the_peak_memory_never_grows(later: int, kernels: int) -> None:
    """A cast of 256 B to 128 B, fused with the sum that follows, has its wide operand beside the sum's operands."""
    make = Maker()
    x, wide = make.input(8), Tensor(make.tensor(128).storage, (64,), DType.FP32)
    narrow, c, out, last = make.tensor(64), make.tensor(64), make.tensor(64), make.tensor(later)
    make.op("sort", (x,), (wide,), REDUCE)  # no kernel is generated for it, nor for products
    make.op("_to_copy", (wide,), (narrow,), MOVE)
    make.op("mm", (x,), (c,), MATMUL, MatmulDims(2, 4, 4))
    make.op("add", (narrow, c), (out,))
    make.op("mm", (out,), (last,), MATMUL, MatmulDims(2, 4, 4))
    graph = make.returns(last)
    found = pointwise(graph, prices())
    # 16 B of x and: wide + narrow = narrow + c + out = 384 B, or out and the last product; fused wide + c + out = 512 B
    peak = 16 + max(384, 128 + 2 * later)
    assert memory_timeline(graph, range(5)).peak == peak
    assert memory_timeline(found, range(len(found))).peak == peak
    assert len(found) == kernels + 1


def norm(make: Maker, data: Tensor, rows: int, columns: int, out: Tensor) -> Operator:
    gain = make.tensor(columns, role=Role.WEIGHT)
    return make.op("native_layer_norm", (data, gain), (out,), REDUCE, RowDims(rows, columns), flops=8 * rows * columns)


def test_a_sum_before_and_a_product_after_a_norm_join_it() -> None:
    make = Maker()
    x, y, scale = make.input(2, 8), make.input(2, 8), make.input(2, 8)
    total, normed, out = make.tensor(2, 8), make.tensor(2, 8), make.tensor(2, 8)
    make.op("add", (x, y), (total,), flops=16)
    norm(make, total, 2, 8, normed)
    make.op("mul", (normed, scale), (out,), flops=16)
    (fused,) = reductions(make.returns(out), prices())
    assert fused.target == "fused.add+mul+native_layer_norm.rows"
    assert (fused.kind, fused.dims) == (REDUCE, RowDims(2, 8))
    assert (fused.reads, fused.writes) == (3 * 32 + 16, 32)  # x, y, scale and the gain; out
    assert fused.flops == 16 + 128 + 16


def test_pointwise_alone_leaves_norms_alone() -> None:
    make = Maker()
    x, total, normed = make.input(2, 8), make.tensor(2, 8), make.tensor(2, 8)
    make.op("exp", (x,), (total,))
    norm(make, total, 2, 8, normed)
    assert len(pointwise(make.returns(normed), prices())) == 2


@pytest.mark.parametrize(
    ("shape", "rows"),
    [((2, 8), RowDims(8, 2, inner=8)), ((8, 2), RowDims(2, 8)), ((4, 6), RowDims(3, 8))],
    ids=["down the columns", "rows of another length", "rows that end within an axis"],
)
def test_a_reduction_over_another_axis_is_not_fused(shape: tuple[int, int], rows: RowDims) -> None:
    make = Maker()
    x, total, small = make.input(*shape), make.tensor(*shape), make.tensor(rows.rows)
    make.op("exp", (x,), (total,))
    make.op("sum", (total,), (small,), REDUCE, rows)
    assert len(reductions(make.returns(small), prices())) == 2


def test_two_reductions_share_rows_only_if_they_are_the_same() -> None:
    make = Maker()
    x, a, b = make.input(2, 8), make.tensor(2), make.tensor(1)
    make.op("sum", (x,), (a,), REDUCE, RowDims(2, 8))
    make.op("amax", (x,), (b,), REDUCE, RowDims(1, 16))
    assert len(reductions(make.returns(a, b), prices())) == 2
    make = Maker()
    x, a, b = make.input(2, 8), make.tensor(2), make.tensor(2)
    make.op("sum", (x,), (a,), REDUCE, RowDims(2, 8))
    make.op("amax", (x,), (b,), REDUCE, RowDims(2, 8))
    (fused,) = reductions(make.returns(a, b), prices())
    assert (fused.reads, fused.writes) == (32, 8)


def test_an_epilogue_takes_the_result_of_a_product_in_registers() -> None:
    make = Maker()
    x, w, residual = make.input(4, 2), make.tensor(2, 4, role=Role.WEIGHT), make.input(4, 4)
    product, out = make.tensor(4, 4), make.tensor(4, 4)
    dims = MatmulDims(4, 4, 2)
    make.op("mm", (x, w), (product,), MATMUL, dims, flops=dims.flops)
    make.op("add", (product, residual), (out,), flops=16)
    (fused,) = epilogue(make.returns(out), prices())
    assert (fused.target, fused.kind, fused.dims) == ("fused.add+mm", MATMUL, dims)
    assert (fused.reads, fused.writes) == (16 + 16 + 32, 32)
    assert fused.flops == 64 + 16


def test_a_product_that_is_read_twice_keeps_its_own_kernel() -> None:
    make = Maker()
    x, w = make.input(4, 2), make.tensor(2, 4, role=Role.WEIGHT)
    product, out, other = make.tensor(4, 4), make.tensor(4, 4), make.tensor(4, 4)
    make.op("mm", (x, w), (product,), MATMUL, MatmulDims(4, 4, 2))
    make.op("exp", (product,), (out,))
    make.op("mm", (product, w), (other,), MATMUL, MatmulDims(4, 4, 4))
    assert len(epilogue(make.returns(out, other), prices())) == 3


def test_the_moment_of_release_is_carried_over() -> None:
    make = Maker()
    a, t, out, late = make.input(8), make.tensor(8), make.tensor(8), make.tensor(8)
    make.op("mm", (a,), (late,), MATMUL, MatmulDims(2, 4, 4))
    make.op("exp", (late,), (t,))
    make.op("neg", (t,), (out,))
    graph = make.returns(out)
    graph.released = {late.storage: 2, t.storage: 2}
    found = pointwise(graph, prices())
    assert found.released == {late.storage: 1}  # t is never in memory
    assert graph.released == {late.storage: 2, t.storage: 2}
