"""The engine's own step for the simulator: its operators' costs by hand, its trace, and its attention over pages."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from frontends import building, trace
from hw_models.tile.attention import Attention
from hw_models.tile.machine import machine
from hw_models.tile.paged import paged, split
from simulator import OperatorGraph
from simulator.dims import AttentionDims, MatmulDims, RowDims
from simulator.dtypes import DType
from simulator.graph import Role
from simulator.packing import bits_of, packed_bytes
from simulator.passes.quantise import quantised
from simulator.serving.composed import Rows, StepShape, compose
from tests.workloads.serving_models import H200
from workloads.gpt.presets import LLAMA_1B, QWEN3_06B
from workloads.inference import traced
from workloads.inference.batch import Batch
from workloads.inference.families import engine_family, packed
from workloads.inference.model import Dense, Quantised

SMALL = replace(LLAMA_1B, layers=2, vocab=1000)  # width 2048, 32 heads of 64, 8 key heads, ffn 8192
NORMED = replace(QWEN3_06B, layers=1, vocab=1000)  # width 1024, 16 heads of 128, 8 key heads, with a norm on each


@cache
def decode(batch: int = 4, context: int = 300) -> OperatorGraph:
    return traced.step_trace(SMALL)("decode", batch, context)


def names(graph: OperatorGraph) -> list[str]:
    return [op.target.removeprefix("xpusim_inference.") for op in graph]


def test_the_engine_has_nine_kernels_a_layer() -> None:
    layer = ["aten.mm", "place", "attention", "aten.mm", "add_norm", "aten.mm", "gate", "aten.mm"]
    assert names(decode()) == ["aten.embedding", "norm", *layer, "add_norm", *layer, "add_norm", "aten.mm"]
    assert not decode().uncovered


def test_operators_by_hand() -> None:
    _, _, qkv, place, attention, o, add_norm, up, gate, down = decode().operators[:10]
    assert qkv.dims == MatmulDims(4, 2048 + 2 * 512, 2048)
    assert (up.dims, down.dims, o.dims) == (
        MatmulDims(4, 16384, 2048), MatmulDims(4, 2048, 8192), MatmulDims(4, 2048, 2048)
    )  # fmt: skip
    # 3,072 columns of 2 B, rotations of 32 + 32 elements of 2 B, a position and a slot of 4 B for each of 4 tokens
    assert place.reads == 4 * (3072 * 2 + 64 * 2 + 8)
    # queries and keys, and keys and values into the cache
    assert place.writes == 4 * (2048 + 3 * 512) * 2
    assert place.flops == 4 * 3 * (2048 + 512)
    assert attention.dims == AttentionDims(4, 32, 8, 1, 300, 64, 64)
    assert attention.reads == 4 * (2048 + 300 * 2 * 512) * 2
    assert (add_norm.dims, add_norm.reads, add_norm.writes) == (RowDims(4, 2048), (8 + 1) * 2048 * 2, 8 * 2048 * 2)
    assert (gate.reads, gate.writes) == (4 * 16384 * 2, 4 * 8192 * 2)


def test_queries_and_keys_with_norms_of_their_own() -> None:
    place = traced.step_trace(NORMED)("decode", 2, 64).operators[3]
    # 4,096 columns; rotations of 64 + 64 elements; two gains of 128
    assert place.reads == 2 * (4096 * 2 + 128 * 2 + 8) + 2 * 128 * 2
    assert place.flops == 2 * (3 + 4) * (2048 + 1024)


def test_weights_are_weights_and_a_tied_head_is_stored_once() -> None:
    stored = sum(each.nbytes for each in decode().storages if each.role is Role.WEIGHT)
    layer = 3072 * 2048 + 2048 * 2048 + 16384 * 2048 + 2048 * 8192 + 2 * 2048
    assert stored == 2 * (1000 * 2048 + 2 * layer + 2048)
    caches = [each for each in decode().storages if each.role is Role.CACHE]
    assert [each.nbytes for each in caches] == [4 * 300 * 512 * 2] * 4  # keys and values of two layers


def test_a_prompt_that_starts_has_attention_of_its_own() -> None:
    found = engine_family("llama-1b")
    assert found.fresh == "xpusim.attention"
    assert {found.first.operators[id].target for id in found.attention} == {"xpusim_inference.attention"}

    def targets(shape: StepShape) -> set[str]:
        return {op.target for op in compose(found, shape) if isinstance(op.dims, AttentionDims)}

    assert targets(StepShape(64, 1, None, Rows(1, 64, 64))) == {"xpusim.attention"}
    for rows in (Rows(1, 64, 100), Rows(2, 64, 64)):  # a later chunk, two prompts
        assert targets(StepShape(rows.batch * 64, 1, None, rows)) == {"xpusim_inference.attention"}
    assert targets(StepShape(66, 3, Rows(2, 1, 9), Rows(1, 64, 64))) == {"xpusim_inference.attention"}
    assert packed(found, "w4").fresh == found.fresh


@pytest.mark.parametrize(("scheme", "dtype"), [("w4", DType.INT4), ("w8", DType.INT8)])
def test_the_packed_operator_reads_what_the_pass_says(scheme: str, dtype: DType) -> None:
    # K = 200: two groups, the second one in part
    with building():
        weight = torch.zeros(64, 200)
        x = torch.zeros(3, 200)
    (own,) = trace(Quantised(weight, None, bits_of(scheme)), (x,), dtype="bf16")
    dense = Dense(weight, None)
    dense.weight = torch.nn.Parameter(weight)
    (passed,) = quantised(trace(dense, (x,), dtype="bf16"), scheme)
    assert own.reads == passed.reads == 3 * 200 * 2 + packed_bytes(64, 200, dtype.bits)
    assert own.dims == passed.dims == MatmulDims(3, 64, 200)
    assert (own.writes, own.flops) == (passed.writes, passed.flops)


def test_prompts_over_pages_are_runs_of_equal_length() -> None:
    config = replace(SMALL, layers=1)
    step = traced.Step(config, 64)
    with building():
        pages = ((torch.zeros(2, 64, 8, 64), torch.zeros(2, 64, 8, 64)),)
        columns = traced._columns(2, 16)

    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = step

        def forward(self, columns: traced.Columns, cache: object) -> torch.Tensor:
            batch = Batch(*columns, 0, 16, False)
            found: torch.Tensor = super(traced.Step, self.step).forward(batch, cache)  # type: ignore[arg-type]
            return found

    graph = trace(Two(), (columns,), {"cache": pages}, dtype="bf16")
    dims = next(op.dims for op in graph if op.target == "xpusim_inference.attention")
    assert dims == AttentionDims(2, 32, 8, 16, 64, 64, 64, causal=True)


def attended(batch: int, keys: int) -> float:
    """Microseconds of the decode kernel for 8 key heads of 128 on an H200."""
    dims = AttentionDims(batch, 32, 8, 1, keys, 128, 128)
    return paged(machine(H200), Attention(dims, DType.BF16, 2, 2 * batch * 8 * keys * 128 * 2)).time / 1e6


def test_paged_attention_by_hand() -> None:
    # 128 sequences of 2,048: 1,024 blocks in one part, three to a core of 256 KiB (64 KiB each and a little):
    # 2.59 waves, the last of which moves its bytes no faster than a block alone would need; so all are at bandwidth.
    assert H200.calibration is not None
    cal, cycle = H200.calibration.paged, 1e6 / H200.matrix.clock
    assert split(132, 1024, 2048) == 1
    stream = 2 * 128 * 8 * 2048 * 128 * 2 / (H200.calibration.dram * H200.dram_bandwidth) * 1e6
    fixed = (cal.launch + cal.combine) * H200.overheads.launch / 1e6
    cycles = cal.block_cycles + cal.part_cycles + 128 * 32 / 132 * cal.row_cycles
    assert attended(128, 2048) == pytest.approx(stream + fixed + cycles * cycle, rel=1e-6)


def test_a_short_last_wave_is_as_slow_as_one_block() -> None:
    # 50 sequences: 400 blocks of two parts' length... 800 blocks of 1,024 keys on 396 places: 2.02 waves
    assert split(132, 400, 2048) == 2
    even, more = attended(49, 2048), attended(50, 2048)  # 784 blocks: 1.98 waves
    assert H200.calibration is not None
    alone = 16 * H200.calibration.paged.tile_cycles * 1e6 / H200.matrix.clock
    assert more - even > 0.5 * alone
