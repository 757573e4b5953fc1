"""Sweeps over arrays, scratchpads and bandwidths: by hand on the toy, against the model itself, and as properties."""

from functools import cache
from itertools import product

import pytest

from frontends import trace
from hw_models import load_chip
from hw_models.array_model import Axes, Binds, Program, Size, Sweep, SystolicModel, recommend, sweep
from hw_models.array_model.recommend import settled
from hw_models.single import single
from hw_models.systolic import Dataflow
from simulator.dtypes import DType
from simulator.errors import UsageError
from simulator.graph import OperatorGraph
from simulator.simulation import simulate
from simulator.units import quantity
from simulator.variants import Resource
from workloads import build

OURS = ("cores=1", "matrix.rate.bf16=1")


@cache
def gpt2(phase: str) -> OperatorGraph:
    made = build("gpt2", phase)
    return trace(made.module, made.args, made.kwargs, workload=made.workload, dtype="bf16")


def axes(sizes: str, srams: str, bandwidths: str) -> Axes:
    return Axes(
        tuple(Size(int(each), int(each)) for each in sizes.split()),
        tuple(quantity(each, "B") for each in srams.split()),
        tuple(quantity(each, "B/s") for each in bandwidths.split()),
    )


GRID = axes("16 32 64 128 256", "256KiB 1MiB 4MiB", "25.6GB/s 51.2GB/s 102.4GB/s 204.8GB/s")


@cache
def ours(phase: str) -> Sweep:
    """GPT-2 on one core with bf16 cells."""
    return sweep(Program(gpt2(phase), load_chip("edge-npu", OURS)), GRID)


def test_one_product_by_hand() -> None:
    # As in test_array_model: 7 x 5 x 9 on 4 x 4 takes 53 cycles of 1 ns, and 2 until the first tile is there.
    program = Program(single("gemm", {"M": 7, "N": 5, "K": 9}), load_chip("systolic-toy"))
    (point,) = sweep(program, axes("4", "64KiB", "16GB/s")).points
    assert point.time == 55_000
    assert point.shares == {
        Binds.ARRAY: 53_000, Binds.VECTOR: 0, Binds.BANDWIDTH: 2_000, Binds.CAPACITY: 0, Binds.LAUNCH: 0
    }  # fmt: skip
    assert point.flops == 2 * 7 * 5 * 9
    assert point.utilisation == pytest.approx(7 * 5 * 9 / (16 * 55), rel=1e-4)
    assert point.cells_busy == pytest.approx(7 * 5 * 9 / (16 * 53), rel=1e-4)
    assert point.traffic == point.least == 2 * (63 + 45 + 35)
    assert point.achieved == pytest.approx(286 / 55e-9)
    assert point.bound is Binds.ARRAY


@pytest.mark.parametrize(
    ("phase", "bandwidth", "binds", "bound"),
    [
        ("prefill", "409.6GB/s", Binds.ARRAY, Resource.COMPUTE),
        ("decode", "51.2GB/s", Binds.BANDWIDTH, Resource.BANDWIDTH),
    ],
)
def test_a_point_is_what_the_model_says_and_close_to_the_engine(
    phase: str, bandwidth: str, binds: Binds, bound: Resource
) -> None:
    graph, chip = gpt2(phase), load_chip("edge-npu", [f"memory.lpddr.bandwidth={bandwidth}"])
    (point,) = sweep(Program(graph, chip), axes("64", "1MiB", bandwidth)).points
    costs = SystolicModel(chip).costs(graph)
    assert point.time == chip.overheads.host_submit + sum(cost.time for cost in costs)
    assert point.traffic == sum(cost.traffic for cost in costs)
    result = simulate(graph, chip, fidelity="systolic")
    assert 0.92 * point.seconds <= result.seconds <= point.seconds  # the engine fetches ahead
    assert (point.bound, result.bound) == (binds, bound)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_more_memory_never_hurts_and_nothing_is_free(phase: str) -> None:
    found = ours(phase)
    assert len(found.points) + found.without_fold == 60
    assert found.without_fold == 4  # 256 x 256 cells of bf16 need 256 KiB for two folds, and more for the rest
    for (row, column, depth), point in found.at.items():
        assert sum(point.shares.values()) == point.time
        assert min(point.shares.values()) >= 0
        assert 0 < point.utilisation <= point.cells_busy <= 1
        assert point.traffic >= point.least
        assert point.achieved <= point.bandwidth
        assert point.time >= point.least * 1e12 / point.bandwidth
        for bigger in ((row, column + 1, depth), (row, column, depth + 1)):
            assert bigger not in found.at or found.at[bigger].time <= point.time


def test_decode_needs_columns_through_which_weights_enter_as_fast_as_they_come() -> None:
    # One weight of 2 bytes a column and cycle of 1.024 ns: 1.953 GB/s a column, so 25.6 GB/s need 13.1 columns,
    # 51.2 GB/s 26.2, 102.4 GB/s 52.4 and 204.8 GB/s 104.9; the next sizes swept are these.
    found = ours("decode")
    best, every = recommend(found)
    assert [each.point.size.columns for each in every] == [16, 32, 64, 128]
    assert {each.point.sram for each in every} == {256 * 1024}  # each weight is used once, nothing is worth keeping
    assert best is every[-1]
    array, sram, bandwidth = best.choices
    assert array.gain < 0.1 < (array.loss or 0)
    assert sram.before is None
    assert sram.gain < 0.01
    assert not bandwidth.swept


def test_the_recommendation_is_the_smallest_that_its_rule_allows() -> None:
    found = ours("prefill")
    for threshold, depth in product((0.05, 0.2), range(4)):
        point = recommend(found, threshold)[1][depth].point
        sizes = [found.at[row, 2, depth].time for row in range(5)]
        row = found.axes.sizes.index(point.size)
        assert all(later > sizes[row] * (1 - threshold) ** (at + 1) for at, later in enumerate(sizes[row + 1 :]))
        assert row == 0 or any(
            later <= sizes[row - 1] * (1 - threshold) ** (at + 1) for at, later in enumerate(sizes[row:])
        )
    tight, loose = (recommend(found, threshold)[0].point for threshold in (0.01, 0.6))
    assert (loose.size, loose.sram, loose.bandwidth) <= (tight.size, tight.sram, tight.bandwidth)
    assert loose.time > tight.time


def test_the_best_dataflow_is_never_slower_than_each() -> None:
    program = Program(gpt2("decode"), load_chip("edge-npu", OURS))
    one = {
        flow: sweep(program, Axes((Size(64, 16),), (2**20,), (10**11,), (flow,))).points[0].time for flow in Dataflow
    }
    best = sweep(program, Axes((Size(64, 16),), (2**20,), (10**11,), tuple(Dataflow))).points[0]
    assert best.time == min(one.values())
    # With one row of activations weights enter through 16 columns (ws) or 64 rows (is).
    assert best.dataflow is not Dataflow.WEIGHT
    assert one[Dataflow.INPUT] < 0.5 * one[Dataflow.WEIGHT]


def test_the_vector_unit_and_the_port_grow_with_the_array() -> None:
    program = Program(gpt2("decode"), load_chip("edge-npu"))
    chip = program.variant(Size(64, 256), Dataflow.WEIGHT, 2**20, 10**11)
    assert chip.vector.flops_per_cycle[DType.BF16] == 4 * 256
    assert chip.memory["scratchpad"].bandwidth == 250 * 10**9 * 320 // 128
    assert chip.dram_bandwidth == 10**11


def test_a_plateau_does_not_end_the_search() -> None:
    assert settled([100], 0.1) == 0
    assert settled([100, 95, 91], 0.1) == 0
    assert settled([100, 99, 80], 0.1) == 2  # 100 -> 80 is 10.6 % a step; 99 -> 80 is 19 %
    assert settled([100, 99, 85], 0.15) == 0  # 7.8 % a step
    assert settled([100, 99, 80], 0.5) == 0


@pytest.mark.parametrize(
    ("sizes", "srams", "bandwidths", "message"),
    [
        ((), (1,), (1,), "array sizes: empty, wanted one value at least"),
        ((Size(4, 4),), (), (1,), "SRAM: empty, wanted one value at least"),
        ((Size(4, 4), Size(4, 4)), (1,), (1,), "array sizes: 4x4 stands twice"),
        ((Size(4, 4),), (2**20, 2**20), (1,), "SRAM: 1 MiB stands twice"),
        ((Size(4, 4),), (1,), (10**9, 10**9), "bandwidth: 1 GB/s stands twice"),
        ((Size(0, 4),), (1,), (1,), "an array, SRAM or bandwidth of 0, wanted at least 1"),
        (
            tuple(Size(1, 1 + each) for each in range(20)), tuple(range(1, 21)), tuple(range(1, 21)),
            "20 x 20 x 20 x 1 are 8,000 points, wanted at most 4,096",
        ),
    ],
)  # fmt: skip
def test_axes_that_make_no_sense(
    sizes: tuple[Size, ...], srams: tuple[int, ...], bandwidths: tuple[int, ...], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        Axes(sizes, srams, bandwidths)
    assert str(caught.value) == message


def test_what_cannot_be_swept_says_why() -> None:
    gemm = single("gemm", {"M": 7, "N": 5, "K": 9})
    small = Program(gemm, load_chip("systolic-toy"))
    for call, message in (
        (
            lambda: sweep(small, axes("64", "1KiB", "1GB/s")),
            "1 KiB of scratchpad cannot hold one fold of the smallest array, 64x64 bf16; the least is 16,896 B",
        ),
        (lambda: recommend(sweep(small, axes("4", "1KiB", "1GB/s")), 1.0),
         "a threshold of 100%, wanted more than 0 % and less than 100 %"),
        (lambda: Program(single("softmax", {"R": 4, "C": 4}), load_chip("systolic-toy")),
         "softmax R=4 C=4: has no matrix product, so there is no array to size"),
        (lambda: Program(single("gemm", {"M": 7, "N": 5, "K": 9}, DType.FP32), load_chip("tpu-v3")),
         "the arrays of tpu-v3 do not multiply fp32 (they multiply bf16)"),
    ):  # fmt: skip
        with pytest.raises(UsageError) as caught:
            call()
        assert str(caught.value) == message
