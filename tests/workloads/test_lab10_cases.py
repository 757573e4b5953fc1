"""Lab 10: parallel training on paper, answered by `workloads.distributed.estimates`.

Rows about links, topologies and measured clusters are answered beside the network models and the parallel plans.
"""

from collections.abc import Callable

import pytest

from tests.workloads.lab_cases import Case, cases
from workloads.distributed.estimates import (
    activation_bytes,
    best_fsdp,
    critical_tokens,
    flops_per_token,
    least_tokens,
    most_tensor_ranks,
    pipeline_ratio,
    tensor_ratio,
    tokens_per_chip,
    zero3_ratio,
    zero_volume,
)
from workloads.gpt.config import Config
from workloads.training.estimates import days, state_bytes

H100 = 990e12  # FLOP/s in bf16, as the book rounds it
NODE, RAIL = 450e9, 400e9  # B/s of a GPU inside its node, and of a node of 8 outwards
V5P = 4.59e14


def mixture() -> list[float]:
    return [best_fsdp(tokens=48_000, hidden=32_768, chips=64, axes=2)]


def applied() -> list[float]:
    tokens, chips, hidden = 4 * 1024 * 1024, 8960, 28672
    least = least_tokens(V5P, 2 * 9e10, hidden, axes=2)
    return [tokens / chips, best_fsdp(tokens, hidden, chips, axes=2), least]


def cluster() -> list[float]:
    chips = 16e6 / 850  # 850 tokens a chip are the fewest of FSDP on three axes
    return [chips, days(6.3e24, V5P, devices=1, share=0.5) / chips]


def largest() -> list[float]:
    return [96e9 / state_bytes(1)]


def rooflines() -> list[float]:
    return [
        critical_tokens(H100, NODE),
        critical_tokens(H100, RAIL),
        critical_tokens(H100, RAIL, ranks=2),
        critical_tokens(H100, RAIL, spread=128 / 4),
        critical_tokens(2250e12, RAIL),
        most_tensor_ranks(H100, NODE, hidden=28_000),
    ]


def seventy_billion() -> list[float]:
    # A pipeline of 8 nodes gives each of them an eighth of the gradients, so 8 x the bandwidth for the same tokens.
    return [state_bytes(70e9) / 8 / 1e9, tokens_per_chip(4e6, 1, 4096), critical_tokens(H100, 8 * RAIL)]


def double_counted() -> list[float]:
    model = Config(
        name="1.34B", source="playbook", layers=16, width=2048, heads=32, kv_heads=32, head_dim=64, ffn=8192,
        vocab=128256, context=4096, tied=True,
    )  # fmt: skip
    once, twice = (flops_per_token(model, 4096, heads) for heads in (1, 2))
    return [once, twice, round(twice / once, 4)]


def activations() -> list[float]:
    kept = [activation_bytes(80, 8192, 4096, tensor) for tensor in (8, 16)]
    whole, split = activation_bytes(80, 8192, 4096), activation_bytes(80, 8192, 4096, 8, sequence=True)
    return [each / 2**30 for each in (whole, *kept, split)]


def ratios() -> list[float]:
    peak = 989e12
    return [zero3_ratio(4096, peak, NODE), tensor_ratio(8192, 8, peak, NODE), pipeline_ratio(8192, 10, peak, NODE)]


ANSWERS: dict[str, Callable[[], list[float]]] = {
    "X6": mixture,
    "X7": applied,
    "X8": cluster,
    "X9": largest,
    "X14": rooflines,
    "X15": seventy_billion,
    "X18": double_counted,
    "X20": activations,
    "X21": ratios,
    "X22": lambda: [zero_volume(stage) for stage in range(4)],
    "X25": lambda: [tokens_per_chip(*each) for each in ((192, 4096, 192), (384, 4096, 768), (1536, 4096, 3072))],
}
CASES = cases("L10-")


@pytest.mark.parametrize("case", [CASES[f"L10-{name}"] for name in ANSWERS], ids=list(ANSWERS))
def test_case(case: Case) -> None:
    case.check(ANSWERS[case.id.removeprefix("L10-")]())


def test_nine_tenths_of_a_ring_of_ten_is_sent() -> None:
    assert critical_tokens(1000.0, 1.0, ranks=10) == pytest.approx(900.0)
