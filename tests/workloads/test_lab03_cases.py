"""Lab 3: parameter, FLOP and KV-cache arithmetic of published models, answered by `workloads.gpt`."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from simulator.dtypes import DType
from tests.workloads.lab_cases import Case, cases
from workloads.gpt import Config, Experts, preset
from workloads.gpt.estimates import (
    attention_break_even,
    attention_intensity,
    forward_flops_per_token,
    kv_bytes_per_token,
    linear_flops,
    training_flops_per_token,
)
from workloads.gpt.parameters import parameters

SCALING_BOOK = Config(
    name="scaling-book", source="scaling-book, transformers, question 1",
    layers=64, width=4096, heads=32, kv_heads=32, head_dim=128, ffn=16384, vocab=32000, context=8192,
    parallel=True, final_norm=False,  # the book counts one gain of D a layer and no norm before the head
)  # fmt: skip
WIDE_HEADS = Config(
    name="wide-heads", source="scaling-book, inference, question 1",
    layers=64, width=4096, heads=32, kv_heads=8, head_dim=256, ffn=16384, vocab=32128, context=8192, tied=True,
)  # fmt: skip
LLAMA_405B = replace(
    preset("llama-70b"), name="llama-405b", layers=126, width=16384, heads=128, ffn=53248
)  # Llama 3.1, the largest
MINIMIND = Config(
    name="minimind-3", source="minimind MiniMindConfig: F = ceil(768 pi / 64) 64",
    layers=8, width=768, heads=8, kv_heads=4, head_dim=96, ffn=2432, vocab=6400, context=32768, tied=True, qk_norm=True,
)  # fmt: skip
NANOCHAT_D24 = Config(
    name="nanochat-d24", source="nanochat: D = 64 L, heads of 128, windows short, short, short, long",
    layers=24, width=1536, heads=12, kv_heads=12, head_dim=128, ffn=4 * 1536, vocab=32768, context=2048,
    gated=False, window=(1024, 1024, 1024, 0),
)  # fmt: skip


def one_layer_moe() -> list[float]:
    # The estimator splits the dense network of 14336 into 8 experts of 1792 each.
    dense = Config(
        name="moe", source="LLMs-from-scratch chapter 4, mixture of experts",
        layers=1, width=7168, heads=56, kv_heads=56, head_dim=128, ffn=14336, vocab=1, context=1,
    )  # fmt: skip
    split = parameters(replace(dense, experts=Experts(count=8, active=2, width=14336 // 8)))
    return [parameters(dense).ffn, split.router, split.ffn + split.router, split.active + split.router]


def scaling_book() -> list[float]:
    p = parameters(SCALING_BOOK)
    return [p.total, p.attention_share, kv_bytes_per_token(SCALING_BOOK, DType.INT8)]


def mixture() -> list[float]:
    p = parameters(replace(WIDE_HEADS, experts=Experts(count=16, active=2, width=16384)))
    return [p.matrices, p.active_matrices]  # router and norms left out, as in the book


def intensities() -> list[float]:
    grouped = replace(SCALING_BOOK, heads=32, kv_heads=4)  # G = 8
    return [attention_intensity(grouped, 8192, 8192), attention_intensity(grouped, 1, 8192)]


def gpt2_linear_layers() -> list[float]:
    return [linear_flops(preset(name), 2 * 1024) for name in ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl")]


ANSWERS: dict[str, Callable[[], list[float]]] = {
    "L03-X1": scaling_book,
    "L03-X2": lambda: list(attention_break_even(SCALING_BOOK)),
    "L03-X3": intensities,
    "L03-X4": lambda: [parameters(LLAMA_405B).total, forward_flops_per_token(LLAMA_405B)],
    "L03-X5": lambda: [parameters(WIDE_HEADS).matrices, kv_bytes_per_token(WIDE_HEADS, DType.INT8)],
    "L03-X6": mixture,
    "L03-X7": one_layer_moe,
    "L03-X8": gpt2_linear_layers,
    "L03-X9": lambda: [parameters(MINIMIND).total],
    "L03-X10": lambda: [training_flops_per_token(NANOCHAT_D24, 2048) * 16_704 * 524_288],
}


def test_every_case_of_the_lab_is_answered() -> None:
    assert set(ANSWERS) == set(cases("L03-"))


@pytest.mark.parametrize("case", cases("L03-").values(), ids=lambda case: case.id)
def test_case(case: Case) -> None:
    answer = ANSWERS[case.id]()
    if case.id == "L03-X8":  # printed with two digits: 1.4e12 stands for anything from 1.35 to 1.45e12, which is 3.6 %
        assert [f"{got:.1e}" for got in answer] == [f"{wanted:.1e}" for wanted in case.expected]
    else:
        case.check(answer)


def test_the_largest_llama_needs_the_real_vocabulary() -> None:
    # 2 x 128256 x 16384 elements of embedding and head are 1 % of the model.
    p = parameters(LLAMA_405B)
    assert p.embedding + p.head == 2 * 128256 * 16384
