"""The systolic fidelity: by hand on the toy, against run_gemm, and as properties."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hw_models import load_chip
from hw_models.array_model import Place, SystolicModel, places, plan
from hw_models.array_model.place import rooms
from hw_models.array_model.plan import Product
from hw_models.roofline import roofline_cost
from hw_models.single import single
from hw_models.systolic import Array, Dataflow, Scratchpads, phases, run_gemm, split_gemm
from simulator.costs import Cost, Unit, compute_model
from simulator.dims import ConvolutionDims, MatmulDims
from simulator.dtypes import DType
from simulator.errors import UsageError
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role, Tensor, Workload
from simulator.hardware import Chip
from simulator.simulation import simulate
from simulator.variants import Resource

CHIPS = ("systolic-toy", "tpu-v3", "tpu-v5e", "tpu-v5p", "edge-npu")
EXTENT = st.integers(1, 3000)


def cost(chip: Chip, name: str, dtype: DType = DType.BF16, /, **sizes: int) -> Cost:
    (found,) = SystolicModel(chip).costs(single(name, sizes, dtype))
    return found


def test_a_small_product_by_hand() -> None:
    # 7 x 5 x 9 on 4 x 4 ws at 1 GHz: 4 + 3 + 6 folds x 7 + 4 = 53 cycles.  All of it fits.  DRAM: 16 B = 8 words a
    # cycle; the first tile, 16 words, takes 2 cycles; no later fold of 7 cycles waits (28 + 16 + 28 words at most).
    found = cost(load_chip("systolic-toy"), "gemm", M=7, N=5, K=9)
    assert found.unit is Unit.MATRIX
    assert (found.compute, found.time) == (53_000, 55_000)
    assert found.traffic == 2 * (63 + 45 + 35)
    assert found.detail == "6 folds of 4x4 (ws), cells 37% busy, stalled 4%"


def test_what_does_not_fit_moves_again_and_more_memory_helps() -> None:
    small, large = (load_chip("edge-npu", [f"memory.sram.capacity={size}"]) for size in ("128KiB", "16MiB"))
    sizes = {"M": 2048, "N": 4096, "K": 4096}
    little, much = cost(small, "gemm", **sizes), cost(large, "gemm", **sizes)
    least = 2 * (2048 * 4096 + 4096 * 4096 + 2048 * 4096)
    assert little.traffic > 4 * least
    assert much.traffic < 2.2 * least  # four cores, each with its own copy of half of A and half of B
    assert little.time > 1.5 * much.time
    assert re.search(r"3 blocks, traffic [\d.]+x the least$", little.detail)
    assert re.search(r"sums of \d+ folds kept, traffic [\d.]+x the least$", much.detail)


def test_capacity_is_the_verdict_where_scratchpads_are_too_small() -> None:
    graph = single("gemm", {"M": 2048, "N": 4096, "K": 4096})
    starved = load_chip("edge-npu", ["memory.sram.capacity=64KiB", "memory.lpddr.bandwidth=25GB/s"])
    result = simulate(graph, starved, fidelity="systolic")
    assert result.operators[0].bound in (Resource.CAPACITY, Resource.BANDWIDTH)
    assert result.savings[Resource.CAPACITY] > 0.5 * result.time
    assert simulate(graph, load_chip("tpu-v5e"), fidelity="systolic").bound is Resource.COMPUTE


def test_one_array_is_never_faster_than_the_exact_closed_form() -> None:
    chip = load_chip("systolic-toy", ["memory.sram.capacity=64GiB", "memory.dram.bandwidth=1PB/s"])
    for shape in ((1, 1, 1), (7, 5, 9), (64, 64, 64), (100, 3, 33)):
        found = cost(chip, "gemm", **dict(zip("MNK", shape, strict=True)))
        assert found.compute == 1000 * int(phases(Array(4, 4), *shape).cycles)


def test_several_cores_split_as_split_gemm_does() -> None:
    chip = load_chip("edge-npu", ["memory.lpddr.bandwidth=1PB/s", "memory.sram.bandwidth=null"])
    split = split_gemm(Array(64, 64), 512, 4096, 4096, cores=4)
    assert split.k_parts == 1
    found = cost(chip, "gemm", DType.INT8, M=512, N=4096, K=4096)
    assert found.compute <= 1024 * split.cycles  # a cycle is 1.024 ns; a plan may do no worse


def test_a_batch_is_spread_over_arrays() -> None:
    chip = load_chip("edge-npu", ["memory.lpddr.bandwidth=1PB/s", "memory.sram.bandwidth=null"])
    one, eight = (cost(chip, "bmm", DType.INT8, B=batch, M=64, N=64, K=64) for batch in (1, 8))
    assert eight.compute == pytest.approx(
        2 * cost(replace(chip, cores=1), "gemm", DType.INT8, M=64, N=64, K=64).compute
    )
    assert one.compute < eight.compute


def test_attention_is_two_products_beside_its_softmax() -> None:
    chip = load_chip("tpu-v3")
    sizes = {"B": 1, "H": 32, "Hkv": 8, "Sq": 1024, "D": 128}
    full, causal = cost(chip, "attention", **sizes), cost(chip, "attention", **sizes, causal=1)
    assert full.unit is Unit.MATRIX
    assert full.detail.endswith("% busy, softmax 0.31x as long beside")
    assert 0.5 * full.compute < causal.compute < 0.65 * full.compute
    slow = replace(chip, vector=replace(chip.vector, clock=chip.vector.clock // 100))
    assert cost(slow, "attention", **sizes).compute == pytest.approx(
        5 * 32 * 1024**2 / slow.vector_peak(DType.BF16) * 1e12
    )


def test_a_convolution_is_a_product_that_unrolls_its_input_on_chip() -> None:
    # 56 x 56 x 64 -> 64 filters of 3 x 3: m = 3136, k = 576; the input has 56 x 56 x 64 elements and moves once.
    graph = OperatorGraph(Workload("conv"))
    shapes = ((1, 64, 56, 56), (64, 64, 3, 3), (1, 64, 56, 56))
    tensors = [Tensor(graph.add_storage(str(shape), Role.INPUT, 0).id, shape, DType.BF16) for shape in shapes]
    dims = ConvolutionDims(positions=56 * 56, in_channels=64, out_channels=64, taps=9)
    reads, writes = sum(tensor.nbytes for tensor in tensors[:2]), tensors[2].nbytes
    graph.add(
        Operator(0, "", "aten.convolution", OpKind.CONVOLUTION, Phase.FORWARD, tuple(tensors[:2]), (tensors[2],),
                 dims.flops, reads, writes, (), DType.BF16, dims)
    )  # fmt: skip
    chip = load_chip("tpu-v3")
    (conv,) = SystolicModel(chip).costs(graph)
    gemm = cost(chip, "gemm", M=3136, N=64, K=576)
    assert conv.detail.endswith("4 arrays as 1x4x1, traffic 1.25x the least")
    assert conv.traffic == reads + writes + 3 * tensors[1].nbytes  # each array fetches the filters
    assert conv.traffic < gemm.traffic
    assert conv.compute == gemm.compute


def test_grouped_rows_are_spread_over_their_matrices() -> None:
    graph = single("gemm", {"M": 64, "N": 256, "K": 256})
    grouped = replace(graph.operators[0], dims=MatmulDims(64, 256, 256, groups=8))
    graph.operators[0] = grouped
    model = SystolicModel(load_chip("edge-npu"))
    (found,) = model.costs(graph)
    (batched,) = SystolicModel(load_chip("edge-npu")).costs(single("bmm", {"B": 8, "M": 8, "N": 256, "K": 256}))
    assert found.compute == batched.compute


def test_a_type_without_a_mode_runs_on_the_vector_unit() -> None:
    found = cost(load_chip("tpu-v3"), "gemm", DType.FP32, M=64, N=64, K=64)
    assert found.unit is Unit.VECTOR
    assert found.detail.endswith("the matrix unit has no fp32 mode, the vector unit does it")


def test_everything_else_is_launch_and_roofline() -> None:
    chip = load_chip("edge-npu")
    (op,) = graph = single("softmax", {"R": 64, "C": 512})
    (found,) = SystolicModel(chip).costs(graph)
    assert found.time == roofline_cost(chip, op).time + chip.overheads.launch
    assert found.launch == chip.overheads.launch == 2_000_000


@pytest.mark.parametrize("name", CHIPS)
@settings(max_examples=12, deadline=None)
@given(m=EXTENT, n=EXTENT, k=EXTENT, batch=st.sampled_from((1, 1, 3, 12)))
def test_never_below_the_roofline(name: str, m: int, n: int, k: int, batch: int) -> None:
    chip = load_chip(name)
    (op,) = graph = single("bmm", {"B": batch, "M": m, "N": n, "K": k})
    (found,) = SystolicModel(chip).costs(graph)
    floor = roofline_cost(chip, op)
    assert found.time >= floor.time + chip.overheads.launch
    assert found.traffic >= op.nbytes
    assert found.compute >= floor.compute
    assert found.memory >= floor.memory
    assert found.time >= max(found.compute, found.memory)


@settings(max_examples=30, deadline=None)
@given(
    shape=st.tuples(EXTENT, EXTENT, EXTENT), dataflow=st.sampled_from(("ws", "os", "is")),
    count=st.sampled_from((1, 2)), sram=st.integers(20, 400), more=st.integers(0, 400),
    bandwidth=st.integers(1, 100), faster=st.integers(0, 50),
)  # fmt: skip
def test_more_memory_or_bandwidth_is_never_slower(
    shape: tuple[int, int, int], dataflow: str, count: int, sram: int, more: int, bandwidth: int, faster: int
) -> None:
    def at(capacity: int, rate: int) -> int:
        array = {"rows": 16, "columns": 16, "dataflow": dataflow, "count": count}
        texts = [f"matrix.array.{key}={value}" for key, value in array.items()]
        texts += [f"memory.sram.capacity={capacity}KiB", f"memory.lpddr.bandwidth={rate}GB/s"]
        chip = load_chip("edge-npu", texts)
        return cost(chip, "gemm", DType.BF16, **dict(zip("MNK", shape, strict=True))).time

    base = at(sram, bandwidth)
    assert at(sram + more, bandwidth) <= base
    assert at(sram, bandwidth + faster) <= base
    assert at(sram + more, bandwidth + faster) <= base


@settings(max_examples=20, deadline=None)
@given(shape=st.tuples(EXTENT, EXTENT, EXTENT), dataflow=st.sampled_from(list(Dataflow)))
def test_a_plan_is_as_fast_as_the_rtl_with_the_same_memory(shape: tuple[int, int, int], dataflow: Dataflow) -> None:
    # The RTL's own order with half of the scratchpad for each operand that streams is one of the choices.
    array, size = Array(16, 16, dataflow), 1 << 20
    (found,) = plan((Place(array, 1, size, 1e9),), (Product(*shape),), 1.0, 8.0)
    (room,) = [each for each in rooms(array, 1.0, size) if each.by_row == each.by_column]
    pads = {
        Dataflow.WEIGHT: Scratchpads(room.by_row, room.in_cells, room.by_column),
        Dataflow.OUTPUT: Scratchpads(room.by_row, room.by_column, room.in_cells),
        Dataflow.INPUT: Scratchpads(room.in_cells, room.by_row, room.by_column),
    }[dataflow]
    assert found.steps <= int(run_gemm(array, *shape, pads, 8.0).cycles)


def test_a_chip_without_an_array_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        compute_model("systolic", load_chip("h200"))
    text = str(caught.value)
    assert text.startswith("chip h200 has no systolic array, which fidelity systolic needs: its matrix unit does ")
    assert "2048 bf16" in text
    assert text.endswith(
        "multiply-adds a cycle in each of 132 cores "
        "(chips with an array: edge-npu, systolic-toy, tpu-v3, tpu-v5e, tpu-v5p)"
    )
    assert "\n" not in text


def test_a_scratchpad_too_small_for_a_fold_names_the_least() -> None:
    # 2 x 64 x 64 x 2 B for the cells, 2 x 64 x 2 B for a row of A, 64 sums of 4 B
    message = (
        r"^chip edge-npu: 16 KiB of on-chip memory for each array cannot hold one fold of 64x64 bf16; "
        r"the least is 16.5 KiB$"
    )
    with pytest.raises(UsageError, match=message):
        places(load_chip("edge-npu", ["memory.sram.capacity=16KiB"]), DType.BF16)
    assert cost(load_chip("edge-npu", ["memory.sram.capacity=17KiB"]), "gemm", M=100, N=100, K=100).time > 0


def test_without_on_chip_memory_an_array_cannot_work() -> None:
    chip = load_chip("edge-npu")
    message = r"^chip edge-npu: has only lpddr \(16 GB\); an array needs on-chip memory: a level with 'scope: core' or "
    with pytest.raises(UsageError, match=message):
        places(replace(chip, memory={"lpddr": chip.memory["lpddr"]}), DType.INT8)


def test_equal_operators_share_one_cost() -> None:
    graph = single("gemm", {"M": 64, "N": 64, "K": 64})
    graph.add(replace(graph.operators[0], id=1))
    one, other = SystolicModel(load_chip("tpu-v3")).costs(graph)
    assert one is other
