"""The cases of lab 4 that a formula answers; NOT_HERE says why the others are not tests."""

import csv
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from tests.workloads.lab_cases import CASES
from workloads.gpt import Config, preset
from workloads.gpt.parameters import parameters
from workloads.training.estimates import (
    checkpoint_bytes,
    days,
    kept_by_unfused_layer,
    selective_recompute_flops,
    share_of_peak,
    state_bytes,
    training_flops,
    zero_bytes,
)

LLAMA_70B = training_flops(70e9, 15e12)
TINY_STORIES = Config(
    name="tiny-stories", source="CS336 assignment 1",
    layers=4, width=512, heads=16, kv_heads=16, head_dim=32, ffn=1344, vocab=10000, context=256,
)  # fmt: skip
GPT3 = Config(
    name="gpt3", source="Brown et al. 2020, table 2.1",
    layers=96, width=12288, heads=96, kv_heads=96, head_dim=128, ffn=4 * 12288, vocab=50257, context=2048,
)  # fmt: skip
# What needs text that the project does not ship, hours of a device, chips that nobody described, or several chips.
NOT_HERE = {
    "L04-X6": "losses and minutes of runs on TinyStories, which the project may not download",
    "L04-X8": "nine stages of a notebook on an A100: unfused attention and torch.compile, batch not stated",
    "L04-X9": "fp8 training on eight H100",
    "L04-X10": "hours on an RTX 3090, which no chip file describes",
}


def expected(case: str) -> Any:
    with CASES.open(newline="") as file:
        (row,) = [row for row in csv.DictReader(file) if row["id"] == case]
    return json.loads(row["expected"])


def stories() -> list[float]:
    p = parameters(TINY_STORIES)
    return [p.total, p.total - p.embedding - p.head, p.total - p.embedding]


def state_and_checkpoints() -> list[float]:
    # three checkpoints a layer: its input (1 width) and two in the network, 2.7 widths each
    return [state_bytes(13e9), checkpoint_bytes(40, 5120, 16e6, 1 + 2 * 2.7)]


def llama_70b_memory() -> list[float]:
    total = state_bytes(70e9) + checkpoint_bytes(80, 8192, 4e6, 4)
    return [total / 1e12, math.ceil(total / 96e9), total / 8960 / 1e9]  # a v5p has 96 GB


def zero_in_gib() -> list[float]:
    return [size / 2**30 for stage in range(4) for size in zero_bytes(8.05e9, 8, stage)]


def dropped() -> list[float]:
    linear, quadratic = kept_by_unfused_layer(GPT3, 2048)
    return [-quadratic / (linear + quadratic), selective_recompute_flops(GPT3, 2048)]


# id -> (answer, tolerances as the table gives them: relative and absolute)
ANSWERS: dict[str, tuple[Callable[[], list[float]], float, float]] = {
    "L04-X1": (lambda: [share_of_peak(training_flops(37e9, 14.8e12), 2.79e6 * 3600, 1.513e15)], 0, 0.002),
    "L04-X2": (state_and_checkpoints, 0.03, 0),
    "L04-X3": (lambda: [LLAMA_70B, days(LLAMA_70B, 4.59e14) / 365, days(LLAMA_70B, 4.59e14, 8960, 0.4)], 0.01, 0),
    "L04-X4": (llama_70b_memory, 0.01, 0),
    "L04-X5": (lambda: [math.ceil(state_bytes(70e9) / 80e9), days(LLAMA_70B, 990e12, 4096, 0.45)], 0.02, 0),
    "L04-X7": (stories, 0, 0),
    "L04-X11": (zero_in_gib, 0.01, 0),
    "L04-X12": (dropped, 0, 0.005),
    "L04-X13": (lambda: [share_of_peak(training_flops(70e9, 1.64e7), 13.5 * 3600, 312e12, 16)], 0, 0.001),
    "L04-X14": (lambda: [share_of_peak(9600 * 0.05e12, 1, peak) for peak in (989e12, 1979e12)], 0, 0.01),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_case(case: str) -> None:
    answer, relative, absolute = ANSWERS[case]
    wanted = expected(case)
    if isinstance(wanted, dict):
        wanted = [size for stage in wanted.values() for size in stage]
    wanted = wanted if isinstance(wanted, list) else [wanted]
    assert answer() == pytest.approx(wanted, rel=relative, abs=absolute)


def test_a_wrong_peak_changes_utilisation_by_the_ratio_of_the_peaks() -> None:
    """L04-X15: a log that divides the work of A100s by the peak of an H100."""
    wanted = expected("L04-X15")
    flops = wanted["mfu_312"] * 312e12  # a second and device
    right, shown = (share_of_peak(flops, 1, peak) for peak in (312e12, 989e12))
    assert right / shown == pytest.approx(989 / 312, rel=1e-12)
    assert shown == pytest.approx(wanted["mfu_989_shown"], abs=0.02)


def test_every_case_of_the_lab_is_answered_or_explained() -> None:
    with CASES.open(newline="") as file:
        ids = {row["id"] for row in csv.DictReader(file) if row["lab"] == "4"}
    assert set(ANSWERS) | set(NOT_HERE) | {"L04-X15"} == ids


def test_a_dense_gpt_keeps_less_for_each_token_the_shorter_its_rows_are() -> None:
    # 5 a s / h: 5 x 12 x 1024 / 768 = 80 bytes a column at 1024 tokens, 20 at 256
    assert kept_by_unfused_layer(preset("gpt2"), 1024) == (34, 80)
    assert kept_by_unfused_layer(preset("gpt2"), 256) == (34, 20)
