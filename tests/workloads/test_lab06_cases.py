"""Lab 6: bytes of keys, values and packed weights, answered by the engine's own functions and the models' tables.

Measured rows (L06-X1, X4, X12, X14) are answered elsewhere.
"""

import csv
import json
import math
import random
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from simulator.dtypes import DType
from simulator.packing import packed_bytes
from tests.workloads.lab_cases import CASES
from workloads.gpt import Config, Experts, preset
from workloads.gpt.estimates import kv_bytes, kv_bytes_per_token
from workloads.gpt.parameters import parameters
from workloads.inference.cache import block_bytes, blocks_for
from workloads.roofline.inference import chips_needed, min_step_seconds
from workloads.roofline.machine import Machine

V5E = Machine(peak=1.97e14, bandwidth=8.1e11, capacity=16e9)  # as the scaling book rounds it
QWEN3 = preset("qwen3-0.6b")
QWEN3_4B = replace(
    QWEN3, name="qwen3-4b", source="huggingface.co/Qwen/Qwen3-4B", layers=36, width=2560, heads=32, ffn=9728
)
# The scaling book's model of its inference questions; embedding and head are one matrix.
BOOK = replace(
    QWEN3, name="book", source="jax-ml.github.io/scaling-book/inference", layers=64, width=4096, heads=32, kv_heads=8,
    head_dim=256, ffn=16384, vocab=32128, tied=True,
)  # fmt: skip
BOOK_MOE = replace(BOOK, name="book-moe", experts=Experts(count=16, active=2, width=16384))
LLAMA2_13B = replace(
    preset("llama-8b"), name="llama2-13b", source="huggingface.co/meta-llama/Llama-2-13b-hf", layers=40, width=5120,
    heads=40, kv_heads=40, ffn=13824, vocab=32000, context=4096, rope_scaling=None,
)  # fmt: skip


def attention(layers: int, kv_heads: int, head_dim: int) -> Config:
    """A model of which only keys and values matter."""
    sizes = replace(QWEN3, layers=layers, kv_heads=kv_heads, heads=kv_heads, head_dim=head_dim)
    return replace(sizes, name="keys and values")


def weights(config: Config, dtype: DType) -> float:
    return parameters(config).matrices * dtype.bits / 8


def latent() -> list[float]:
    # MLA keeps one row of 1024 a token in place of keys and values: as many elements as one head of 512 has.
    many, one = attention(48, 24, 86), attention(48, 1, 512)
    return [kv_bytes(config, 1, 8192) / 1e9 for config in (many, one)]


def sequences_of_13b() -> list[float]:
    each = kv_bytes(LLAMA2_13B, 1, 8192) / 1e9
    assert 4 * each > weights(LLAMA2_13B, DType.BF16) / 1e9
    return [each, 4 * each, weights(LLAMA2_13B, DType.BF16) / 1e9]


def mixture() -> list[float]:
    nbytes = weights(BOOK_MOE, DType.INT8)
    free = (V5E.capacity - nbytes / 128) / 1e9
    return [1e3 * min_step_seconds(V5E.times(128), nbytes, 0), free, math.ceil(chips_needed(V5E, nbytes))]


def llama_in_int8() -> list[float]:
    config = preset("llama-8b")
    held = weights(config, DType.INT8), kv_bytes(config, 240, 8192, DType.INT8)
    chips = 2 ** math.ceil(math.log2(chips_needed(V5E, sum(held))))
    return [held[0] / 1e9, held[1] / 1e9, chips]


def nano_vllm() -> list[float]:
    # The lengths of nano-vllm's bench.py: 256 requests of 100 to 1024 tokens, then as many outputs, by its seed.
    draw = random.Random(0)
    prompts = []
    for _ in range(256):
        length = draw.randint(100, 1024)
        prompts.append(length)
        for _ in range(length):
            draw.randint(0, 10000)  # the token ids themselves, which come from the same stream
    lengths = [length + draw.randint(100, 1024) for length in prompts]
    return [block_bytes(QWEN3, 256), blocks_for(lengths, 256)]


def vocabulary_head() -> list[float]:
    nbytes = packed_bytes(QWEN3_4B.vocab, QWEN3_4B.width, bits=4)
    return [nbytes, nbytes / 1030e-6 / 1e9]


ANSWERS: dict[str, Callable[[], list[float]]] = {
    "L06-X2": lambda: [kv_bytes_per_token(QWEN3_4B)],
    "L06-X3": vocabulary_head,
    "L06-X5": lambda: [kv_bytes_per_token(QWEN3), 2 * parameters(QWEN3).total],
    "L06-X6": latent,
    "L06-X7": lambda: [kv_bytes(attention(64, 64, 128), 1, 8192, DType.INT8) / 2**30],
    "L06-X8": sequences_of_13b,
    "L06-X9": lambda: [1e3 * min_step_seconds(V5E.times(16), weights(BOOK, DType.INT8), 0)],
    "L06-X10": mixture,
    "L06-X11": llama_in_int8,
    "L06-X13": nano_vllm,
}


def expected(row: dict[str, str]) -> list[float]:
    """The numbers of a row; ``4*6.71=26.8 > 26.0`` stands for 26.8 and 26.0."""
    value = json.loads(row["expected"])
    numbers: list[float] = []
    for item in value if isinstance(value, list) else [value]:
        found = re.findall(r"[\d.]+", item.partition("=")[2]) if isinstance(item, str) else [item]
        numbers += [float(each) for each in found]
    return numbers


def within(row: dict[str, str]) -> tuple[float, float]:
    """Relative and absolute tolerance of a row; ``exact`` is neither."""
    found = re.match(r"(rel|abs) ([\d.]+)", row["tolerance"])
    if found is None:
        return 1e-12, 0.0
    return (float(found[2]) / 100, 0.0) if found[1] == "rel" else (0.0, float(found[2]))


def rows() -> list[dict[str, str]]:
    with CASES.open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["id"] in ANSWERS]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["id"])
def test_case(row: dict[str, str]) -> None:
    rel, abs_ = within(row)
    assert ANSWERS[row["id"]]() == pytest.approx(expected(row), rel=rel, abs=abs_)


def test_no_answer_is_without_a_case() -> None:
    assert len(rows()) == len(ANSWERS)


def test_the_books_model_has_the_bytes_that_it_says() -> None:
    assert weights(BOOK, DType.INT8) == 18_385_207_296
