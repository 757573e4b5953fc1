"""Memory shared out, packed weights, the curve of decode and speculation, by hand and by closed forms."""

from dataclasses import replace
from functools import cache

import pytest

from hw_models import load_chip
from hw_models.tile.kernels import Bench
from simulator import OperatorGraph
from simulator.costs import Cost, compute_model
from simulator.dims import MatmulDims
from simulator.dtypes import DType
from simulator.errors import UsageError
from simulator.graph import OpKind, Role, Tensor
from simulator.packing import packed_bytes
from simulator.passes.quantise import quantised
from simulator.serving import Step
from simulator.serving.capacity import capacity, position_bytes
from simulator.serving.composed import Rows, StepShape, compose
from simulator.serving.family import Family
from simulator.variants import Resource
from tests.workloads.serving_models import H200, decodes, gpt2, running, times, traced
from workloads.inference.curve import Curve, Point, Settings, curve
from workloads.inference.curve_words import tables
from workloads.inference.speculate import Gains, Speculation, SpeculativeTimes, speculation


def test_capacity_by_hand() -> None:
    # GPT-2: 12 layers x 2 x 768 x 2 B = 36,864 B a position, 589,824 B a block of 16.
    assert position_bytes(gpt2()) == 36_864
    assert position_bytes(gpt2(), DType.INT8) == 18_432
    found = capacity(gpt2(), H200, 16, tokens=512, batch=8)
    assert found.usable == int(141e9 * 0.9)
    assert found.block == 589_824
    # tied embedding 50,257 x 768, positions 1,024 x 768, 12 blocks of 7,087,872 and a norm of 1,536: 124,439,808 x 2 B
    assert found.weights == 2 * 124_439_808
    assert found.blocks == (found.usable - found.weights - found.activations - found.workspace) // found.block
    # the feed-forward's 512 x 3,072 x 2 B are there twice, before and after gelu
    assert found.activations >= 2 * 512 * 3072 * 2


def small(nbytes: int) -> object:
    name = H200.dram_name
    return replace(H200, memory=dict(H200.memory) | {name: replace(H200.dram, capacity=nbytes)})


def test_what_does_not_fit_says_by_how_much() -> None:
    with pytest.raises(UsageError) as error:
        capacity(gpt2(), small(200_000_000), 16, 512, 8)  # type: ignore[arg-type]
    assert str(error.value) == (
        "the weights of gpt2 do not fit: 249 MB, 68.9 MB more than the 180 MB that may be used of h200's 200 MB"
    )
    with pytest.raises(UsageError, match=r"^no KV block of gpt2 fits: weights 249 MB, activations "):
        capacity(gpt2(), small(280_000_000), 16, 512, 8)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^--blocks 300000: 50\.\d GB more than fit; 21\d,\d{3} blocks do in "):
        capacity(gpt2(), H200, 16, 512, 8, blocks=300_000)


def test_packed_weights_by_hand() -> None:
    # 50,257 rows x 6 groups x (64 + 4) B, read by the head once a step
    head = compose(quantised_gpt2("w4"), decodes(4, 128)).operators[-1]
    packed = 50257 * 6 * 68
    assert packed_bytes(50257, 768, DType.INT4.bits) == packed
    assert head.reads == packed + 4 * 768 * 2
    assert head.flops == 2 * 4 * 768 * 50257
    # 4.25 and 8.25 bits a weight, where K is a multiple of 128
    assert packed_bytes(1000, 1280, DType.INT4.bits) * 8 == 4.25 * 1000 * 1280
    assert packed_bytes(1000, 1280, DType.INT8.bits) * 8 == 8.25 * 1000 * 1280


@cache
def quantised_gpt2(scheme: str) -> Family:
    found = gpt2()
    return Family(quantised(found.first, scheme), quantised(found.second, scheme), found.head, found.attention)


def test_a_packed_tied_embedding_is_stored_once() -> None:
    old, new = traced("decode", 1, 64), quantised(traced("decode", 1, 64), "w4")
    stored = sum(storage.nbytes for storage in new.storages if storage.name.startswith("embedding."))
    assert stored == packed_bytes(50257, 768, DType.INT4.bits)
    # a lookup reads 768 weights in 6 groups: 768 x 4.25 / 8 B
    assert new.operators[0].reads == old.operators[0].reads - 768 * 2 + 768 * 17 // 32
    assert new.flops == old.flops


def product() -> OperatorGraph:
    """128 rows times 4,096 x 4,096 weights."""
    bench = Bench(DType.BF16)
    x, y = bench.tensor(128, 4096), bench.tensor(128, 4096)
    weight = bench.graph.add_storage("weight", Role.WEIGHT, 2 * 4096 * 4096)
    dims = MatmulDims(128, 4096, 4096)
    bench.add(OpKind.MATMUL, "aten.mm", (x, Tensor(weight.id, (4096, 4096), DType.BF16)), y, dims.flops, dims)
    return bench.graph


def test_an_array_reads_packed_weights() -> None:
    # and unpacks them on the way: 4,096 x 4,096 x 4.25 / 8 B, and 128 rows in and out
    (found,) = compute_model("tile", load_chip("edge-npu")).costs(quantised(product(), "w4"))
    assert found.traffic == packed_bytes(4096, 4096, DType.INT4.bits) + 2 * 128 * 4096 * 2


def unpacked_at(operations: float) -> Cost:
    """The product with packed weights on an H200 whose lanes take so many operations for each weight."""
    assert H200.calibration is not None
    matmul = replace(H200.calibration.matmul, dequantise=operations, packed_row=0.0, packed_rows=64.0, unpacked=0.5)
    chip = replace(H200, calibration=replace(H200.calibration, matmul=matmul))
    (found,) = compute_model("tile", chip).costs(quantised(product(), "w4"))
    return found


def test_unpacking_takes_lanes_once_for_each_row_of_tiles() -> None:
    # 128 rows are two rows of tiles of 64; H200's lanes do half as many operations as FLOP a second.
    lanes = 2 * 4096 * 4096 / (H200.vector_peak(DType.FP32) / 2) * 1e12
    assert unpacked_at(18).time - unpacked_at(12).time == pytest.approx(6 * lanes, rel=0.05)  # arithmetic overlaps
    assert unpacked_at(0).time < unpacked_at(1).time
    # packed weights and 128 rows in and out cross once
    assert unpacked_at(0).traffic == packed_bytes(4096, 4096, DType.INT4.bits) + 2 * 128 * 4096 * 2
    (dense,) = compute_model("tile", H200).costs(product())
    assert dense.traffic == 2 * 4096 * 4096 + 2 * 128 * 4096 * 2


def test_weights_that_are_slow_to_unpack_are_unpacked_by_a_kernel_of_their_own() -> None:
    # It reads 4.25 bits and writes 16 for each weight; then the product is a dense one, however slow the lanes are.
    (dense,) = compute_model("tile", H200).costs(product())
    moved = packed_bytes(4096, 4096, DType.INT4.bits) + 2 * 4096 * 4096
    assert unpacked_at(1000).traffic == dense.traffic + moved
    assert unpacked_at(1000).detail == f"unpacked first, {dense.detail}"
    assert H200.calibration is not None
    longer = moved * 1e12 / (0.5 * H200.calibration.dram * H200.dram_bandwidth)
    assert unpacked_at(1000).time == unpacked_at(2000).time
    assert unpacked_at(1000).time == pytest.approx(dense.time + longer + H200.overheads.launch, rel=1e-6)


def test_an_unknown_scheme() -> None:
    with pytest.raises(UsageError) as error:
        quantised(gpt2().first, "w5")
    assert str(error.value) == "unknown quantisation 'w5'; did you mean 'w8'? (known: none, w8, w4)"


def test_the_curve_of_a_model() -> None:
    settings = Settings(H200, context=1024, batches=(1, 16, 128))
    plain, four = (curve(quantised_gpt2(name), name, settings) for name in ("none", "w4"))
    for found in (plain, four):
        rates = [point.tokens_per_second for point in found.points]
        assert rates == sorted(rates)
        assert all(point.fits for point in found.points)
    # knee: bytes / bandwidth = batch x FLOP / peak, from 2 B and 2 FLOP a weight: peak / bandwidth, biases aside
    assert plain.knee == pytest.approx(H200.peak(DType.BF16) / H200.dram_bandwidth, rel=0.01)
    assert four.knee == pytest.approx(plain.knee * 4.25 / 16, rel=0.01)
    # largest batch: blocks over the 64 of a sequence
    assert plain.limit == capacity(gpt2(), H200, 16, 256, 256).blocks // 64


def test_slow_rates_keep_three_digits() -> None:
    # one sequence in 2.315 s, 8 in 3.2 s: 0.43197 and 2.5 tokens/s
    steps = ((1, 2_315_000_000_000), (8, 3_200_000_000_000))
    points = [Point(batch, time, batch * 1e12 / time, Resource.BANDWIDTH, 1.0, batch < 8) for batch, time in steps]
    found = tables(Settings(H200, 64), [Curve("none", "bf16", 10**9, 1.0, 4, tuple(points))], ())
    assert found[0].rows == [["1", "0.432", "2315.000"], ["8", "2.50*", "3200.000"]]
    assert found[2].rows[0][-1] == "0.432 at 1"


def test_speculation_by_its_closed_form() -> None:
    how = Speculation("gpt2", 3, 0.6)
    assert how.gain == pytest.approx((1 - 0.6**4) / (1 - 0.6))
    gains, step = Gains(how, seed=1), running([10] * 200)
    drawn = [gain for _ in range(100) for gain in gains(step)]
    assert sum(drawn) / len(drawn) == pytest.approx(how.gain, rel=0.02)
    assert {1, 4} <= set(drawn) <= {1, 2, 3, 4}


def test_a_step_of_speculation_is_its_proposals_and_the_check() -> None:
    timer = SpeculativeTimes(times(), times(), tokens=3)
    step = Step(4, running([100, 100]).decodes)
    check = times().of(StepShape(8, 8, Rows(2, 4, 104), None))
    assert timer.time(step) == check + sum(times().decode(2, keys) for keys in (101, 102, 103))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tokens=3", "--speculate tokens=3: wanted draft=MODEL,tokens=4,acceptance=0.7"),
        ("draft=gpt2,tokens=x", "--speculate draft=gpt2,tokens=x: wanted draft=MODEL,tokens=4,acceptance=0.7"),
        (
            "draft=gpt2,acceptance=2",
            "--speculate draft=gpt2,acceptance=2: tokens must be at least 1 and acceptance between 0 and 1",
        ),
    ],
)
def test_speculation_that_makes_no_sense(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        speculation(text)
    assert str(error.value) == message
