"""Kernels of a training step that memory does not bind: conversions, gradients of norms, sums down columns."""

from dataclasses import replace

import pytest
import torch

from frontends import trace_training_step
from hw_models import load_chip
from hw_models.tile import TileModel
from simulator.calibration import Calibration, RowCalibration, VectorCalibration
from simulator.costs import Cost
from simulator.dims import RowDims
from simulator.dtypes import DType
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role, Tensor, Workload

BF16, FP32 = DType.BF16, DType.FP32
_ROWS = RowCalibration(passes=1, latency=0, element_latency=0, cycles=0, row_cycles=1000)
_VECTOR = VectorCalibration(
    first_byte=0, converted=2, converting=1830, columns=10, norm=_ROWS, rms_norm=_ROWS, softmax=_ROWS, reduction=_ROWS
)
# 132 cores at 1.83 GHz with 4.8 TB/s; no launch, so that times are those of the work alone
CHIP = replace(
    (_h200 := load_chip("h200")),
    overheads=replace(_h200.overheads, launch=0),
    calibration=Calibration(dram=1.0, vector=_VECTOR, resident=0),
    power=None,
)


def cost(
    kind: OpKind, target: str, inputs: list[tuple[int, DType]], outputs: list[tuple[int, DType]], dims: RowDims | None
) -> Cost:
    """Cost of one operator over tensors of so many elements."""
    graph = OperatorGraph(Workload("one"))
    read, written = (
        tuple(
            Tensor(graph.add_storage("x", Role.ACTIVATION, size * dtype.bits // 8).id, (size,), dtype)
            for size, dtype in several
        )
        for several in (inputs, outputs)
    )
    reads, writes = (sum(each.nbytes for each in several) for several in (read, written))
    dtype = outputs[0][1]
    graph.add(Operator(0, "", target, kind, Phase.BACKWARD, read, written, 0, reads, writes, (), dtype, dims))
    (found,) = TileModel(CHIP).costs(graph)
    return found


N = 132 * 2 * 1830 * 100  # elements that 132 cores convert in 100 us, two a cycle


def test_a_wider_type_is_converted_element_by_element() -> None:
    # 100 us and 1830 cycles = 1 us until the first is there; 6 B an element are 60 us of memory beside it
    found = cost(OpKind.MOVE, "aten._to_copy", [(N, BF16)], [(N, FP32)], None)
    beside = (1 + (6 * N / 4.8e6 / 101) ** 3) ** (1 / 3)
    assert found.time / 1e6 == pytest.approx(101 * beside, rel=1e-3)
    assert found.detail == "converted by element"


def test_the_way_down_has_kernels_of_its_own() -> None:
    down = cost(OpKind.MOVE, "aten._to_copy", [(N, FP32)], [(N, BF16)], None)
    assert down.time / 1e6 == pytest.approx(6 * N / 4.8e6, rel=1e-3)


def test_operands_of_two_types_are_converted_and_those_of_one_are_not() -> None:
    mixed = cost(OpKind.POINTWISE, "aten.add", [(N, FP32), (N, BF16)], [(N, FP32)], None)
    same = cost(OpKind.POINTWISE, "aten.add", [(N, FP32), (N, FP32)], [(N, FP32)], None)
    assert mixed.detail == "converted by element"
    assert same.detail == ""
    assert same.time / 1e6 == pytest.approx(12 * N / 4.8e6, rel=1e-3)
    assert mixed.time > 100e6


@pytest.mark.parametrize(("columns", "blocks"), [(768, 24), (1024, 32), (4224, 132), (8448, 264)])
def test_a_gain_s_gradient_is_summed_by_one_core_for_32_columns(columns: int, blocks: int) -> None:
    # what was read is divided among the blocks, 10 B a cycle each; 132 of them run at a time
    rows = 4096
    size = rows * columns
    dims = RowDims(rows, columns)
    inputs = [(size, FP32), (size, FP32)]
    alone = cost(OpKind.REDUCTION, "aten.native_layer_norm_backward", inputs, [(size, FP32)], dims)
    gains = [(size, FP32), (columns, FP32), (columns, FP32)]
    both = cost(OpKind.REDUCTION, "aten.native_layer_norm_backward", inputs, gains, dims)
    waves = -(-blocks // 132)
    drawn = 8 * size / blocks * waves / 10 / 1.83e9
    assert (both.time - alone.time) / 1e12 == pytest.approx(max(drawn, 8 * size / 4.8e12), rel=1e-2)


def test_sums_down_columns_have_no_row_to_wait_for() -> None:
    # 1000 cycles a row are 5.7 ms for 3 x 2^18 rows on 132 cores; down columns it is the bytes, 100 MB at 4.8 TB/s
    many = 3 * 2**18
    inputs, outputs = [(32 * many, FP32)], [(many, FP32)]
    along = cost(OpKind.REDUCTION, "aten.sum", inputs, outputs, RowDims(many, 32))
    down = cost(OpKind.REDUCTION, "aten.sum", inputs, outputs, RowDims(many, 32, many))
    assert down.time / 1e6 == pytest.approx((32 * many + many) * 4 / 4.8e6, rel=1e-3)
    assert along.time / 1e6 > 3000


def test_the_gradient_of_a_loss_is_a_fill() -> None:
    with torch.device("meta"):
        head = torch.nn.Linear(8, 1000)
        x, y = torch.empty(64, 8), torch.zeros(64, dtype=torch.int64)
    graph = trace_training_step(head, (x,), loss=lambda out, _: torch.nn.functional.cross_entropy(out, y))
    (fill,) = [op for op in graph if op.target == "aten.nll_loss_backward"]
    assert (fill.kind, fill.reads, fill.writes) == (OpKind.MOVE, 64 * 8, 64 * 1000 * 4)
    assert {op.id: each.detail for op, each in zip(graph, TileModel(CHIP).costs(graph), strict=True)}[fill.id] == ""
