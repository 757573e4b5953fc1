"""The roofline model: values worked out by hand, then bounds and monotonicity over random operators."""

from dataclasses import replace
from math import inf
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw_models import load_chip
from hw_models.roofline import Roofline, attainable, ridge_point, roofline_cost, vector_ridge_point
from hw_models.single import single
from simulator.costs import Cost, Unit, compute_model
from simulator.dtypes import DType
from simulator.errors import UsageError
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Workload
from simulator.hardware import Chip
from simulator.units import PS_PER_SECOND

TOY, H200 = load_chip("systolic-toy"), load_chip("h200")


def gemm(chip: Chip, size: int, dtype: DType = DType.BF16) -> Cost:
    (found,) = Roofline(chip).costs(single("gemm", {"M": size, "N": size, "K": size}, dtype))
    return found


def operator(id_: int, kind: OpKind, dtype: DType, flops: int, nbytes: int) -> Operator:
    return Operator(id_, "", str(kind), kind, Phase.FORWARD, (), (), flops, nbytes, 0, (), dtype)


def test_a_small_matmul_waits_for_memory() -> None:
    # 4x4x4: 128 FLOP at 32 GFLOP/s          =  4 ns of compute
    #        3 x 16 x 2 B = 96 B at 16 GB/s  =  6 ns of memory, which decides
    found = gemm(TOY, 4)
    assert (found.compute, found.memory, found.time, found.launch) == (4_000, 6_000, 6_000, 0)
    assert (found.unit, found.traffic) == (Unit.MATRIX, 96)
    assert found.detail == "1.333 FLOP/B, ridge 2"


def test_a_large_matmul_waits_for_the_matrix_unit() -> None:
    # 64x64x64: 524288 FLOP at 32 GFLOP/s            = 16.384 us, which decides
    #           3 x 4096 x 2 B = 24576 B at 16 GB/s  =  1.536 us
    assert gemm(TOY, 64).time == 16_384_000


def test_a_type_without_a_mode_runs_on_the_vector_unit_and_says_so() -> None:
    # 128 FLOP at 4 GFLOP/s = 32 ns; the toy's array has bf16, fp16 and int8 only
    found = gemm(TOY, 4, DType.FP32)
    assert (found.unit, found.time) == (Unit.VECTOR, 32_000)
    assert found.detail == "0.6667 FLOP/B, ridge 0.25; the matrix unit has no fp32 mode, the vector unit does it"


@pytest.mark.parametrize(
    ("name", "sizes", "unit", "time"),
    [
        ("pointwise", {"R": 4, "C": 4}, Unit.VECTOR, 4_000),  # 16 FLOP: 4 ns; 64 B: 4 ns
        ("softmax", {"R": 4, "C": 4}, Unit.VECTOR, 20_000),  # 80 FLOP at 4 GFLOP/s
        ("copy", {"R": 4, "C": 4}, Unit.DMA, 4_000),  # 64 B at 16 GB/s
        ("embedding", {"T": 2, "V": 1000, "C": 8}, Unit.DMA, 4_000),  # 32 B out of the table and 32 B out
        ("attention", {"B": 1, "H": 1, "Sq": 1, "Skv": 4, "D": 4}, Unit.MATRIX, 5_000),
        # 64 FLOP: 2 ns; q, out 2 x 8 B, k, v 2 x 32 B: 80 B: 5 ns
    ],
)  # fmt: skip
def test_who_does_it_and_how_long_it_takes(name: str, sizes: dict[str, int], unit: Unit, time: int) -> None:
    (found,) = Roofline(TOY).costs(single(name, sizes))
    assert (found.unit, found.time) == (unit, time)


def test_ridge_points_and_the_roof() -> None:
    assert ridge_point(TOY, DType.BF16) == 2.0
    assert vector_ridge_point(TOY, DType.FP32) == ridge_point(TOY, DType.FP32) == 0.25
    assert attainable(TOY, DType.BF16, 0.5) == 8e9  # half a FLOP for each of 16e9 bytes
    assert attainable(TOY, DType.BF16, 2) == attainable(TOY, DType.BF16, inf) == 32e9
    assert ridge_point(H200, DType.BF16) == pytest.approx(206.1, rel=1e-3)  # 989.4 TFLOP/s over 4.8 TB/s


def test_an_operator_that_does_nothing_takes_no_time() -> None:
    found = roofline_cost(TOY, operator(0, OpKind.OTHER, DType.INT64, 0, 0))
    assert (found.time, found.compute, found.memory, found.traffic) == (0, 0, 0, 0)


def test_the_model_is_registered_under_its_name() -> None:
    assert isinstance(compute_model("roofline", TOY), Roofline)
    with pytest.raises(UsageError, match=r"^unknown fidelity 'roofine'; did you mean 'roofline'\? \(known: "):
        compute_model("roofine", TOY)


KINDS = st.sampled_from([kind for kind in OpKind if kind is not OpKind.COLLECTIVE])
OPERATORS = st.builds(
    operator,
    st.just(0),
    KINDS,
    st.sampled_from(DType),
    st.integers(0, 10**18),
    st.integers(0, 10**13),
)
CHIPS = st.sampled_from([TOY, H200, load_chip("tpu-v5e"), load_chip("apple-m4")])


def peak_of(chip: Chip, op: Operator) -> int:
    matrix = op.kind in (OpKind.MATMUL, OpKind.ATTENTION, OpKind.CONVOLUTION)
    return chip.peak(op.dtype) if matrix else chip.vector_peak(op.dtype)


@given(CHIPS, OPERATORS)
def test_no_time_beats_a_bound_and_one_of_them_is_met(chip: Chip, op: Operator) -> None:
    found = roofline_cost(chip, op)
    least = max(op.flops / peak_of(chip, op), op.nbytes / chip.dram_bandwidth) * PS_PER_SECOND
    assert least * (1 - 1e-12) <= found.time <= least * (1 + 1e-12) + 1  # rounded up to a whole picosecond
    assert found.time == max(found.compute, found.memory)
    assert found.traffic == op.nbytes
    assert found.launch == 0


@given(CHIPS, OPERATORS, st.integers(101, 1000))
def test_more_bandwidth_or_compute_never_takes_longer(chip: Chip, op: Operator, percent: int) -> None:
    level = replace(chip.dram, bandwidth=chip.dram_bandwidth * percent // 100)
    wide = replace(chip, memory={**chip.memory, chip.dram_name: level})
    matrix = replace(chip.matrix, clock=chip.matrix.clock * percent // 100)
    vector = replace(chip.vector, clock=chip.vector.clock * percent // 100)
    fast = replace(chip, matrix=matrix, vector=vector)
    before = roofline_cost(chip, op)
    assert roofline_cost(wide, op).time <= before.time
    assert roofline_cost(fast, op).time <= before.time
    both = roofline_cost(replace(fast, memory=wide.memory), op)
    assert both.time <= min(roofline_cost(wide, op).time, roofline_cost(fast, op).time)


@given(CHIPS, st.sampled_from(DType), st.floats(1e-6, 1e9))
def test_the_roof_is_the_lower_of_its_two_lines(chip: Chip, dtype: DType, intensity: float) -> None:
    roof = attainable(chip, dtype, intensity)
    assert roof <= chip.peak(dtype)
    assert roof <= intensity * chip.dram_bandwidth
    assert (roof == chip.peak(dtype)) == (intensity * chip.dram_bandwidth >= chip.peak(dtype))


@given(CHIPS, st.lists(OPERATORS, max_size=20))
def test_a_graph_costs_what_its_operators_cost_alone(chip: Chip, ops: list[Operator]) -> None:
    graph = OperatorGraph(Workload("random"), operators=[replace(op, id=i) for i, op in enumerate(ops)])
    assert list(Roofline(chip).costs(graph)) == [roofline_cost(chip, op) for op in ops]


def test_a_million_operators_of_few_shapes_are_fast() -> None:
    shapes = [operator(0, OpKind.MATMUL, DType.BF16, flops, 10**6) for flops in range(10**6, 10**6 + 50)]
    graph = OperatorGraph(Workload("large"), operators=shapes * 20_000)
    start = perf_counter()
    assert len(Roofline(H200).costs(graph)) == 1_000_000
    assert perf_counter() - start < 10  # 0.2 s here; a machine under load may take longer
