"""The tile model: values worked out by hand, then bounds and monotonicity over random operators and all chips."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw_models import chip_names, load_chip
from hw_models.residency import hits
from hw_models.roofline import roofline_cost
from hw_models.tile import TileModel
from hw_models.tile.attention import Attention, attention
from hw_models.tile.folds import fold_ps
from hw_models.tile.kernels import kernel_graph, known_kernels
from hw_models.tile.machine import machine
from hw_models.tile.matmul import Product, matmul
from hw_models.tile.timing import together
from hw_models.tile.traffic import matmul_traffic
from simulator.calibration import AttentionCalibration, Calibration, MatmulCalibration, PowerCalibration
from simulator.costs import Cost, Unit
from simulator.dims import AttentionDims
from simulator.dtypes import DType
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role, Tensor, Workload
from simulator.hardware import Chip, Energies, Power
from simulator.units import PS_PER_SECOND

TOY, H200 = load_chip("systolic-toy"), load_chip("h200")
BF16 = DType.BF16


def cost(chip: Chip, op: str, shape: dict[str, int], dtype: DType = BF16) -> Cost:
    graph = kernel_graph(op, dtype, shape)
    assert graph is not None
    (found,) = TileModel(chip).costs(graph)
    return found


def plain(chip: Chip, **sections: Any) -> Chip:
    """*chip* with nothing but waves: no launch, full rates, no latency of a step, no power cap."""
    ideal = MatmulCalibration(
        launch=1, efficiency=1, step_cycles=0, split=100, multicast=1e6, store=1, stream=1e6, overlap=1e3
    )
    overheads = replace(chip.overheads, launch=0)
    calibration = Calibration(dram=1.0, matmul=ideal, **sections)
    return replace(chip, overheads=overheads, calibration=calibration, power=None)


def drawing(watts: int, chip: Chip) -> Chip:
    """*chip* whose matrix units draw *watts* above idle at their bf16 peak, on a board of 700 W that idles at 122 W."""
    peak = chip.matrix_peak(BF16)
    assert peak is not None
    energy = Energies(matrix={BF16: watts * 10**18 // peak}, source="made up for this test")
    return replace(chip, power=Power(cap=700, idle=122, energy=energy, source="made up for this test"))


def test_one_wave_of_tiles_by_hand() -> None:
    # 132 SMs, 2048 multiply-adds a cycle each at 1.83 GHz.  3072 x 2816 x 1024: 24 x 11 = 264 tiles of 128 x 256 fill
    # exactly 2 waves; a tile is 128 x 256 x 1024 / 2048 = 16384 cycles = 8.953 us, so that the arithmetic takes
    # 2 x 8.953 = 17.906 us, as much as at the peak.  Bytes: 2 x (3.146 + 2.884 + 8.651) MB = 29.36 MB, 6.1 us.
    found = cost(plain(H200), "gemm", {"M": 3072, "N": 2816, "K": 1024})
    assert found.time == pytest.approx(2 * 16384 / 1.83e9 * 1e12, rel=1e-6)
    assert found.compute == pytest.approx(found.time, rel=1e-6)
    assert found.traffic == 2 * (3072 * 1024 + 1024 * 2816 + 3072 * 2816)
    assert found.detail.endswith("waves of 132")


def test_a_last_wave_with_one_tile_takes_as_long_as_a_full_one() -> None:
    # 133 products of one smallest tile and one step of K each, with bandwidth to spare: 64 x 64 x 64 / 2048 = 128
    # cycles a tile, and the 133rd waits for a second wave
    chip = more(plain(H200), bandwidth=1000)
    full, late = (cost(chip, "bmm", {"B": batch, "M": 64, "N": 64, "K": 64}) for batch in (132, 133))
    assert full.time == pytest.approx(128 / 1.83e9 * 1e12, rel=1e-4)
    assert late.time == pytest.approx(2 * full.time, rel=1e-4)


def test_power_stretches_a_product_by_the_root_of_what_is_wanted() -> None:
    # At its peak the product would draw 4 times the 700 - 122 W that the cap leaves: 4 ** 0.5 = twice as long.
    shape = {"M": 3072, "N": 2816, "K": 1024}
    fast = cost(plain(H200), "gemm", shape)
    hungry = drawing(4 * 578, plain(H200, power=PowerCalibration(exponent=0.5)))
    slow = cost(hungry, "gemm", shape)
    assert slow.time == pytest.approx(2 * fast.time, rel=1e-6)
    assert slow.clock == pytest.approx(0.5, rel=1e-6)
    assert fast.clock == 1


def test_the_cap_looks_at_the_kernel_and_at_the_run() -> None:
    # 578 W are left.  Alone the kernel wants 4 times as much; a run that wants 578 W in the mean is not held back.
    # Half and half: sqrt(4 x 1) ** 0.5 = 1.41 times as long; a kernel that wants less is never held back.
    chip = machine(drawing(1000, plain(H200, power=PowerCalibration(exponent=0.5, averaging=0.5))))
    assert chip.slowdown(4 * 578, 578) == pytest.approx(2**0.5)
    assert chip.slowdown(4 * 578, 4 * 578) == pytest.approx(2)
    assert chip.slowdown(500, 4 * 578) == 1


def test_narrow_loads_cost_less_than_the_narrowest() -> None:
    times = [cost(H200, "gemm", {"M": 4096, "N": n, "K": 768}).time for n in (4096, 4100, 4098, 4097)]  # 16, 8, 4, 2 B
    assert times == sorted(times)


def test_unaligned_rows_are_much_slower() -> None:
    aligned = cost(H200, "gemm", {"M": 4096, "N": 50264, "K": 768})
    unaligned = cost(H200, "gemm", {"M": 4096, "N": 50257, "K": 768})
    assert 5 < unaligned.time / aligned.time < 10


def test_folds_of_an_array_by_hand() -> None:
    # 4x4 cells, weight stationary: 16 x 16 = 256 folds of 64 streamed rows each, back to back, then 4 + 4 - 2 cycles to
    # fill and drain: 256 x 64 + 6 = 16390 cycles of 1 ns.  Bytes: 3 x 64 x 64 x 2 B at 16 GB/s = 1.536 us.
    found = cost(TOY, "gemm", {"M": 64, "N": 64, "K": 64})
    assert (found.time, found.compute, found.memory) == (16_390_000, 16_390_000, 1_536_000)
    assert (found.unit, found.launch) == (Unit.MATRIX, 0)
    assert found.detail == "256 folds of 4x4 (ws)"


def test_an_edge_fold_costs_as_much_as_a_full_one() -> None:
    # K = 5 needs two folds of 4 rows where K = 4 needs one: 2 x 64 + 6 against 64 + 6 cycles
    one, _ = fold_ps(machine(TOY), 64, 4, 4, 1, BF16)
    two, _ = fold_ps(machine(TOY), 64, 4, 5, 1, BF16)
    assert (one, two) == (70_000, 134_000)


def test_a_small_memory_means_refetches() -> None:
    # 64 KiB: half of it holds 32 KiB / (512 x 2 B) = 32 rows of one operand, so that the other one, 512 x 512 x 2 B =
    # 512 KiB, streams past 512 / 32 = 16 times; a block of 90 x 90 sums needs both ceil(512 / 90) = 6 times.
    # 6 + 6 reads of 512 KiB and one write are the least.
    assert matmul_traffic(512, 512, 512, 1, 2, 2, 65536) == 13 * 512 * 1024
    found = cost(TOY, "gemm", {"M": 512, "N": 512, "K": 512})
    assert found.traffic == 13 * 512 * 1024


def test_attention_waits_for_its_longest_block() -> None:
    # One block of 128 queries over 128 keys of 64 columns on one core, all factors 1: 16384 pairs, each
    # 2 x 64 / 2048 = 0.0625 cycles of products and 1 / 16 of an exponential: 2048 cycles of 1 / 1.83 GHz = 1.119 us
    flat = AttentionCalibration(launch=1, efficiency=1, exponentials=16, alone=1, block_cycles=0)
    chip = machine(plain(H200, attention=flat))
    dims = AttentionDims(1, 1, 1, 128, 128, 64, 64)
    found = attention(chip, Attention(dims, BF16, 2, 4 * 128 * 64 * 2))
    assert found.time == pytest.approx(2048 / 1.83e9 * 1e12)
    assert found.detail == "1 blocks of 128 rows, 0.00379 waves of 264"


def test_decode_streams_the_cache() -> None:
    # 8 heads of 65536 keys x 128 x 2 (K and V) x 2 B = 268 MB: at best 56 us at 4.8 TB/s, 64 us at what streams reach
    found = cost(H200, "sdpa", {"B": 1, "H": 32, "Hkv": 8, "Sq": 1, "Skv": 65536, "D": 128, "causal": 0})
    assert 60e6 < found.time < 100e6
    assert "8 streams of keys, split in " in found.detail


def test_together_is_the_longer_and_a_little_more() -> None:
    assert together(5.0, 0.0, 2.0) == 5.0
    assert together(3.0, 4.0, 2.0) == pytest.approx(5.0)


def chain(*sizes: int) -> OperatorGraph:
    """Operators that each read what the one before has written; operator i writes sizes[i] bytes."""
    graph = OperatorGraph(Workload("chain"))
    before: tuple[Tensor, ...] = ()
    for index, size in enumerate(sizes):
        made = Tensor(graph.add_storage("x", Role.ACTIVATION, size).id, (size,), DType.INT8)
        reads = sum(tensor.nbytes for tensor in before)
        deps = (index - 1,) if index else ()
        op = Operator(index, "", "copy", OpKind.MOVE, Phase.FORWARD, before, (made,), 0, reads, size, deps, DType.INT8)
        graph.add(op)
        before = (made,)
    return graph


def test_what_was_just_written_is_still_there() -> None:
    # operator 1 reads 100 B right after they were written; operator 2 reads 300 B that do not fit in 200 B
    assert list(hits(chain(100, 300, 10), 200)) == [0, 100, 0]
    assert list(hits(chain(100, 300, 10), 1000)) == [0, 100, 300]
    assert list(hits(chain(100, 300, 10), 0)) == [0, 0, 0]


def test_writing_one_position_does_not_bring_in_the_whole_cache() -> None:
    # a cache of 1000 B: operator 0 writes 10 B of it, 1 reads all (10 B are there), 2 reads all (all are there)
    graph = OperatorGraph(Workload("decode"))
    cache = graph.add_storage("cache", Role.CACHE, 1000).id
    whole, slice_ = Tensor(cache, (1000,), DType.INT8), Tensor(cache, (10,), DType.INT8)
    for index, (inputs, outputs) in enumerate((((), (slice_,)), ((whole,), ()), ((whole,), ()))):
        reads, writes = (sum(tensor.nbytes for tensor in each) for each in (inputs, outputs))
        graph.add(
            Operator(index, "", "x", OpKind.MOVE, Phase.FORWARD, inputs, outputs, 0, reads, writes, (), DType.INT8)
        )
    assert list(hits(graph, 10**6)) == [0, 10, 1000]


def test_a_cached_operand_is_not_fetched() -> None:
    product = Product(64, 4096, 4096, 1, BF16, 2, 2)
    cold, hot = matmul(machine(H200), product), matmul(machine(H200), replace(product, cached=2 * 4096 * 4096))
    assert cold.traffic - hot.traffic == 2 * 4096 * 4096
    assert hot.time < cold.time


SIZES = st.integers(1, 3000)
SHAPES: dict[str, Any] = {
    "gemm": st.fixed_dictionaries({"M": SIZES, "N": SIZES, "K": SIZES}),
    "bmm": st.fixed_dictionaries({"B": st.integers(1, 64), "M": SIZES, "N": SIZES, "K": SIZES}),
    "sdpa": st.builds(
        lambda kv, group, **rest: {"H": kv * group, "Hkv": kv, **rest},
        kv=st.integers(1, 8), group=st.integers(1, 8), B=st.integers(1, 16), Sq=SIZES, Skv=SIZES,
        D=st.sampled_from([32, 64, 80, 128, 256]), causal=st.integers(0, 1),
    ),
    **{
        name: st.fixed_dictionaries({"R": SIZES, "C": SIZES})
        for name in ("copy", "add", "gelu", "silu", "softmax", "layernorm", "rmsnorm", "sum", "transpose", "cast_fp32")
    },
    "embedding": st.fixed_dictionaries({"V": SIZES, "C": SIZES, "T": SIZES}),
    "cross_entropy": st.fixed_dictionaries({"T": SIZES, "V": SIZES}),
}  # fmt: skip
KERNELS = st.sampled_from(sorted(SHAPES)).flatmap(lambda name: st.tuples(st.just(name), SHAPES[name]))
CHIPS = st.sampled_from(chip_names())
DTYPES = st.sampled_from([DType.BF16, DType.FP32, DType.INT8, DType.FP8])


@given(KERNELS, CHIPS, DTYPES)
def test_nothing_is_faster_than_the_roofline(kernel: tuple[str, dict[str, int]], name: str, dtype: DType) -> None:
    chip = load_chip(name)
    graph = kernel_graph(kernel[0], dtype, kernel[1])
    assert graph is not None
    cached = hits(graph, machine(chip).resident)
    for op, found, hit in zip(graph, TileModel(chip).costs(graph), cached, strict=True):
        floor = roofline_cost(chip, replace(op, reads=op.reads - hit))
        assert found.time >= floor.time * (1 - 1e-9)
        assert found.time >= found.launch
        assert found.traffic >= op.nbytes - hit


def more(chip: Chip, bandwidth: float = 1, clock: float = 1) -> Chip:
    memory = {
        level: replace(found, bandwidth=None if found.bandwidth is None else int(found.bandwidth * bandwidth))
        for level, found in chip.memory.items()
    }
    matrix = replace(chip.matrix, clock=int(chip.matrix.clock * clock))
    vector = replace(chip.vector, clock=int(chip.vector.clock * clock))
    return replace(chip, memory=memory, matrix=matrix, vector=vector)


@pytest.mark.parametrize("better", [{"bandwidth": 1.5}, {"clock": 1.5}, {"bandwidth": 1.1, "clock": 1.1}])
@given(kernel=KERNELS, name=CHIPS)
def test_more_of_a_resource_never_costs_time(
    better: dict[str, float], kernel: tuple[str, dict[str, int]], name: str
) -> None:
    chip = load_chip(name)
    graph = kernel_graph(kernel[0], BF16, kernel[1])
    assert graph is not None
    before, after = (TileModel(each).costs(graph) for each in (chip, more(chip, **better)))
    assert sum(each.time for each in after) <= sum(each.time for each in before) * (1 + 1e-9) + len(graph.operators)


@given(SIZES, SIZES, SIZES, st.integers(1000, 10**6), st.integers(0, 10**6))
def test_more_memory_never_means_more_traffic(m: int, n: int, k: int, capacity: int, extra: int) -> None:
    least = 2 * (m * k + k * n + m * n)
    small, large = (matmul_traffic(m, n, k, 1, 2, 2, size) for size in (capacity, capacity + extra))
    assert least <= large <= small


def test_every_kernel_of_the_tables_is_known() -> None:
    assert set(SHAPES) | {"mul_scalar", "noop_fill", "attention"} == set(known_kernels())
    assert kernel_graph("fft", BF16, {}) is None


def test_identical_operators_share_one_cost() -> None:
    graph = chain(*([100] * 1000))
    found = TileModel(H200).costs(graph)
    assert len({id(each) for each in found}) <= 3


def test_a_chip_without_measurements_gets_the_defaults() -> None:
    bare = replace(H200, calibration=None)
    assert machine(bare).calibration == Calibration()
    assert machine(TOY).calibration.dram == 1.0
    assert machine(TOY).dram == TOY.dram_bandwidth / PS_PER_SECOND


_FIELDS: list[Callable[[Calibration], float]] = [lambda c: c.dram, lambda c: c.matmul.efficiency, lambda c: c.resident]


@pytest.mark.parametrize("name", chip_names())
def test_efficiencies_are_fractions(name: str) -> None:
    calibration = machine(load_chip(name)).calibration
    assert all(0 < field(calibration) <= 1 for field in _FIELDS)


def test_a_row_without_matrix_hardware_streams_its_weights() -> None:
    # An M4 has no matrix cells: 1 x 3072 x 768 needs 4.7 MFLOP of 3.76 TFLOP/s (1.3 us) and 4.7 MB of 120 GB/s (39 us).
    graph = kernel_graph("gemm", DType.BF16, {"M": 1, "N": 3072, "K": 768})
    assert graph is not None
    (cost,) = TileModel(load_chip("apple-m4")).costs(graph)
    assert cost.detail == "row by row on the vector lanes"
    assert cost.memory <= cost.time <= 1.4 * cost.memory


def test_an_empty_operator_takes_no_time() -> None:
    empty = Tensor(0, (0, 64), BF16)
    graph = OperatorGraph(Workload("empty"))
    graph.add_storage("nothing", Role.ACTIVATION, 0)
    graph.add(Operator(0, "", "aten.mm", OpKind.MOVE, Phase.FORWARD, (), (empty,), 0, 0, 0, (), BF16))
    (found,) = TileModel(H200).costs(graph)
    assert (found.time, found.traffic, found.detail) == (0, 0, "empty: nothing is launched")


def test_a_memory_answers_late_and_a_narrow_port_starves_the_array() -> None:
    # 64 x 64 x 64 on 4 x 4 cells takes 16,390 ns (above).  10 ns of latency come on top.  Each of 256 folds reads 64
    # rows of 4 values and 16 that stay, 2 B each: 139,264 B, which 1 MB/s takes 139.264 ms for.
    late = load_chip("systolic-toy", ["memory.dram.latency=10 ns"])
    assert cost(late, "gemm", {"M": 64, "N": 64, "K": 64}).time == 16_400_000
    starved = load_chip("systolic-toy", ["memory.sram.bandwidth=1 MB/s"])
    assert cost(starved, "gemm", {"M": 64, "N": 64, "K": 64}).time == 139_264_000_000
