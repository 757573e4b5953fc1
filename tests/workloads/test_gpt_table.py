"""The closed form against arithmetic by hand and against torch's own counter, run on meta tensors."""

from collections import defaultdict
from dataclasses import replace

import pytest
from torch.utils.flop_counter import FlopCounterMode

from simulator.dtypes import DType
from tests.workloads.gpt_configs import FAMILIES, MOE, PARALLEL, WINDOWED
from workloads.gpt import Config, preset, preset_names
from workloads.gpt.estimates import attention_flops, forward_flops_per_token, kv_bytes, linear_flops
from workloads.gpt.model import Model
from workloads.gpt.parameters import parameters
from workloads.gpt.program import program
from workloads.gpt.table import Row, step, table

SHAPES = [("prefill", 2, 24), ("decode", 3, 40), ("train", 2, 16)]


def named(rows: tuple[Row, ...]) -> dict[str, Row]:
    return {row.module: row for row in rows}


def totals(config: Config, phase: str, batch: int, length: int) -> dict[str, int]:
    """Return FLOP by path in the model; an attention without its mask, as the counter sees it."""
    found: defaultdict[str, int] = defaultdict(int)
    for row in table(config, step(phase, batch, length)):
        if row.kind == "matmul":
            found[row.module] += row.count * row.flops
    queries = 1 if phase == "decode" else length
    found["attention"] = attention_flops(config, batch, queries, length, causal=False)
    return dict(found)


def counted(config: Config, phase: str, batch: int, length: int) -> dict[str, int]:
    """Return the same from FlopCounterMode; its own name for a linear layer is the path of the module."""
    work = program(config, phase, batch, seq=length, context=length)
    with FlopCounterMode(display=False) as counter:
        work.module(*work.args, **work.kwargs)
    found: defaultdict[str, int] = defaultdict(int)
    for path, operators in counter.get_flop_counts().items():
        parts = path.split(".")[1:]
        name = ".".join("*" if part.isdigit() else part for part in parts)
        if name == "blocks.*.attention":  # what its projections, which have names of their own, do not account for
            found["attention"] += sum(operators.values())
        elif parts and name.split(".")[-1] not in ("blocks", "*", "ffn"):
            found[name] += sum(operators.values())
    found["attention"] -= sum(flops for name, flops in found.items() if ".attention." in name)
    return dict(found)


@pytest.mark.parametrize(("phase", "batch", "length"), SHAPES)
@pytest.mark.parametrize("name", preset_names())
def test_matmuls_are_exactly_those_that_torch_counts(name: str, phase: str, batch: int, length: int) -> None:
    config = replace(preset(name), layers=2)
    assert totals(config, phase, batch, length) == counted(config, phase, batch, length)


def test_all_layers_of_a_whole_model_add_up_to_torchs_count() -> None:
    # decode sees every key, so that no mask makes a difference
    config = preset("llama-70b")
    work = program(config, "decode", batch=4, context=2048)
    with FlopCounterMode(display=False) as counter:
        work.module(*work.args, **work.kwargs)
    assert sum(row.count * row.flops for row in table(config, step("decode", 4, 2048))) == counter.get_total_flops()


@pytest.mark.parametrize("config", FAMILIES.values(), ids=lambda config: config.name)
def test_parameters_are_those_of_the_module(config: Config) -> None:
    model = Model(config)
    assert parameters(config).total == sum(weight.numel() for weight in model.parameters())
    assert sum(row.count * row.parameters for row in table(config, step("prefill", 1, 4))) == parameters(config).total


def test_a_decode_step_of_llama_8b_by_hand() -> None:
    rows = named(table(preset("llama-8b"), step("decode", 1, 1024)))
    # q: [1, 4096] x [4096, 4096] in bf16
    q = rows["blocks.*.attention.q"]
    assert (q.count, q.macs, q.reads, q.writes) == (32, 4096 * 4096, 2 * (4096 + 4096 * 4096), 2 * 4096)
    # attention: 32 heads x 1024 keys x 128 columns, twice; reads Q, and 1024 keys and values of 8 heads x 128
    attention = rows["blocks.*.attention"]
    assert attention.macs == 2 * 32 * 1024 * 128
    assert (attention.reads, attention.writes) == (2 * (4096 + 2 * 1024 * 1024), 2 * 4096)
    # the cache takes one key and one value of 1024 elements
    assert rows["blocks.*.attention/cache"].writes == 2 * 2 * 1024
    assert rows["head"].macs == 4096 * 128256


def test_prefill_counts_the_causal_triangle_and_one_row_of_logits() -> None:
    rows = named(table(preset("llama-8b"), step("prefill", 2, 100)))
    # 100 x 101 / 2 = 5050 pairs a head; 2 sequences x 32 heads x 5050 pairs x 2 x 128
    assert rows["blocks.*.attention"].macs == 2 * 32 * 5050 * 2 * 128
    assert rows["head"].macs == 2 * 4096 * 128256
    assert "blocks.*.attention/cache" not in rows


def test_gpt2_has_biases_and_reads_them() -> None:
    rows = named(table(preset("gpt2"), step("prefill", 1, 10)))
    up = rows["blocks.*.ffn.up"]
    assert up.parameters == 768 * 3072 + 3072
    assert up.reads == 2 * (10 * 768 + 768 * 3072 + 3072)
    assert rows["head"].parameters == 0  # tied: counted as the embedding
    assert rows["embedding"].parameters == (50257 + 1024) * 768


def test_a_window_bounds_what_decode_reads() -> None:
    config = replace(WINDOWED, window=(8, 0))  # one layer of each
    rows = named(table(config, step("decode", 1, 32)))
    assert rows["blocks.*.attention/window 8"].macs == 2 * 4 * 8 * 8  # 4 heads x 8 keys x 8 columns
    assert rows["blocks.*.attention"].macs == 2 * 4 * 32 * 8
    assert kv_bytes(config, 1, 32) == 2 * (8 + 32) * 2 * 16  # K and V, keys of both layers, bf16, 2 heads x 8 columns


def test_few_tokens_do_not_read_all_experts() -> None:
    config = replace(MOE, layers=1)
    one = named(table(config, step("decode", 1, 4)))["blocks.*.ffn/gate"]
    assert one.reads == 2 * (2 * 32 + 2 * 32 * 16) + 16  # two visits, two of four experts, where their rows end
    many = named(table(config, step("prefill", 1, 8)))["blocks.*.ffn/gate"]
    assert many.reads == 2 * (16 * 32 + 4 * 32 * 16) + 16


def test_a_parallel_block_has_one_norm() -> None:
    rows = named(table(PARALLEL, step("prefill", 1, 4)))
    assert "blocks.*.attention_norm" in rows
    assert "blocks.*.ffn_norm" not in rows
    assert "blocks.*.ffn.gate" not in rows


def test_bytes_follow_the_element_type() -> None:
    wide, narrow = (table(preset("llama-1b"), step("decode", 2, 64, dtype)) for dtype in (DType.BF16, DType.INT4))
    for two_bytes, half_a_byte in zip(wide[1:], narrow[1:], strict=True):  # the first row reads token ids too
        assert two_bytes.reads == 4 * half_a_byte.reads
    assert narrow[0].reads == wide[0].reads - 2 * 2048 * 3 // 2


@pytest.mark.parametrize("name", ["gpt2-xl", "llama-1b", "llama-8b"])
def test_the_rule_of_two_flop_a_parameter_is_close(name: str) -> None:
    # It counts norms and biases as matrices, which is less than a thousandth.
    config = preset(name)
    assert forward_flops_per_token(config) == pytest.approx(linear_flops(config, 1), rel=2e-3)
