"""Kernel times of single operators, in the format of hw_models/data/h200/ops.csv."""

import csv
import json
import math
import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel

from workloads.measure.clock import Call, copies_needed, eager_us, is_cold, kernel_us, say

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_MOST_COPIES = {"gemm": 400, "bmm": 400}  # others 64, which repeats h200/ops.csv: small operands stay in the cache
Shape = dict[str, Any]
Cell = tuple[str, str, Shape]
Operation = Callable[..., object]
Case = tuple[int, Callable[[], Call]]  # bytes that one call reads; makes a call on operands of its own
Maker = Callable[[str, Shape], Case]


def measure_ops(out: Path, seed: int) -> None:
    """Measure the cells drawn with *seed*: sdpa by the flash kernels, and in a second file by those PyTorch chooses."""
    torch.manual_seed(seed)
    drawn = {json.dumps(cell): cell for cell in cells(random.Random(seed))}.values()
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        _write(out, drawn)
    _write(out.with_name("sdpa-default.csv"), [cell for cell in drawn if cell[0] == "sdpa"])


def _write(out: Path, drawn: Iterable[Cell]) -> None:
    """Write one row for each cell; a cell that fails is reported."""
    with out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["op", "dtype", "shape", "cold", "us", "eager_us"])
        for op, dtype, shape in drawn:
            try:
                row = measure(op, dtype, shape)
            except (RuntimeError, NotImplementedError) as error:  # out of memory, or no kernel for this cell
                say(f"not measured: {op} {dtype} {shape}: {str(error).splitlines()[0]}")
            else:
                say(f"{op} {dtype} {shape} {row}")
                writer.writerow([op, dtype, json.dumps(shape), *row])
            file.flush()
            torch.cuda.empty_cache()


def measure(op: str, dtype: str, shape: Shape) -> tuple[int, str, str]:
    """Return whether the operands were cold, the microseconds of the kernel and those of an eager call."""
    nbytes, fresh = _MAKERS[op](dtype, shape)
    calls = [fresh() for _ in range(copies_needed(nbytes, _MOST_COPIES.get(op, 64)))]
    us = kernel_us(calls)
    return int(is_cold(nbytes, len(calls))), f"{us:.4f}", f"{eager_us(calls[0], us):.4f}"


def cells(rng: random.Random) -> Iterator[Cell]:
    """Draw shapes that LLM layers have: sizes of published models, log-uniform token counts, some odd sizes."""
    widths = [512, 896, 1024, 1280, 1536, 2048, 2560, 3072, 3584, 4608, 5120, 6656, 7168, 8192, 11008, 13824, 18944]
    for _ in range(110):
        yield "gemm", "bf16", {"M": _tokens(rng, 16384), "N": rng.choice(widths), "K": rng.choice(widths)}
    for vocabulary in (32000, 49152, 50257, 50304, 151936):
        for _ in range(3):
            yield "gemm", "bf16", {"M": _tokens(rng, 4096), "N": vocabulary, "K": rng.choice(widths[:9])}
    for _ in range(12):
        odd = rng.choice(widths[:10]) + rng.choice([1, 2, 4, 6])
        yield "gemm", "bf16", {"M": _tokens(rng, 4096), "N": odd, "K": rng.choice([odd, 1024])}
    for dtype, count in (("fp8", 14), ("fp16", 8), ("fp32", 8)):
        for _ in range(count):
            yield "gemm", dtype, {"M": 16 * _tokens(rng, 512), "N": rng.choice(widths), "K": rng.choice(widths)}
    yield from _attention(rng)
    yield from _rows(rng)


def _tokens(rng: random.Random, most: int) -> int:
    return rng.choice([1, 1, 2, 4]) if rng.random() < 0.12 else int(2 ** rng.uniform(2, most.bit_length() - 1))


def _attention(rng: random.Random) -> Iterator[Cell]:
    heads = [
        (16, 16, 64),
        (20, 20, 64),
        (14, 2, 64),
        (32, 8, 64),
        (24, 8, 128),
        (16, 8, 128),
        (40, 40, 128),
        (28, 4, 128),
    ]
    for _ in range(26):
        h, kv, d = rng.choice(heads)
        s = 64 * int(2 ** rng.uniform(0, 7.2))
        b = max(1, min(16, 2 ** rng.randint(0, 14) // s))
        yield "sdpa", "bf16", {"B": b, "H": h, "Hkv": kv, "Sq": s, "Skv": s, "D": d, "causal": rng.random() < 0.7}
    for _ in range(34):
        h, kv, d = rng.choice(heads)
        b, s = 2 ** rng.randint(0, 7), int(2 ** rng.uniform(6, 13.5))
        if b * s * kv * d * 4 < 2**33:
            yield "sdpa", "bf16", {"B": b, "H": h, "Hkv": kv, "Sq": 1, "Skv": s, "D": d, "causal": False}
    for _ in range(14):
        b, m = rng.choice([8, 16, 20, 32, 64]), _tokens(rng, 1024)
        yield "bmm", "bf16", {"B": b, "M": m, "N": rng.choice([64, 128, 512, 1024]), "K": rng.choice([64, 128, 1024])}


def _rows(rng: random.Random) -> Iterator[Cell]:
    columns = [64, 128, 896, 1024, 1280, 2048, 3072, 5120, 8192, 14336, 32000, 50257]
    for op in (
        "copy",
        "add",
        "gelu",
        "silu",
        "mul_scalar",
        "softmax",
        "layernorm",
        "rmsnorm",
        "sum",
        "cast_fp32",
        "transpose",
    ):
        for _ in range(9):
            c = rng.choice(columns)
            fewest = 2 if op == "transpose" else 1  # of one row it is a view, and no kernel runs
            yield op, "bf16", {"R": max(fewest, int(2 ** rng.uniform(12, 27) / c)), "C": c}
    for _ in range(4):
        yield (
            "embedding",
            "bf16",
            {"V": rng.choice([32000, 151936]), "C": rng.choice(columns[2:8]), "T": _tokens(rng, 16384)},
        )
        yield "cross_entropy", "fp32", {"T": _tokens(rng, 8192), "V": rng.choice([32000, 50257, 128256])}


def _gemm(dtype: str, s: Shape) -> Case:
    m, n, k = s["M"], s["N"], s["K"]
    if dtype == "fp8":
        return (m + n) * k, lambda: _scaled(m, n, k)
    return _on(F.linear, dtype, (m, k), (n, k))


def _scaled(m: int, n: int, k: int) -> Call:
    a, b = (torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn) for rows in (m, n))
    one = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16)


def _bmm(dtype: str, s: Shape) -> Case:
    return _on(torch.bmm, dtype, (s["B"], s["M"], s["K"]), (s["B"], s["K"], s["N"]))


def _sdpa(dtype: str, s: Shape) -> Case:
    attention = partial(F.scaled_dot_product_attention, is_causal=s["causal"], enable_gqa=s["H"] != s["Hkv"])
    cache = (s["B"], s["Hkv"], s["Skv"], s["D"])
    return _on(attention, dtype, (s["B"], s["H"], s["Sq"], s["D"]), cache, cache)


def _row(operation: Operation) -> Maker:
    return lambda dtype, s: _on(operation, dtype, (s["R"], s["C"]))


def _add(dtype: str, s: Shape) -> Case:
    return _on(torch.add, dtype, (s["R"], s["C"]), (s["R"], s["C"]))


def _layernorm(dtype: str, s: Shape) -> Case:
    return _on(lambda x, w, b: F.layer_norm(x, (s["C"],), w, b), dtype, (s["R"], s["C"]), (s["C"],), (s["C"],))


def _rmsnorm(dtype: str, s: Shape) -> Case:
    return _on(lambda x, w: F.rms_norm(x, (s["C"],), w), dtype, (s["R"], s["C"]), (s["C"],))


def _embedding(dtype: str, s: Shape) -> Case:
    table = _random(dtype, s["V"], s["C"])  # one table: each call reads other rows of it
    return s["T"] * s["C"] * table.itemsize, lambda: partial(F.embedding, _labels(s), table)


def _cross_entropy(dtype: str, s: Shape) -> Case:
    nbytes = s["T"] * s["V"] * _TYPES[dtype].itemsize
    return nbytes, lambda: partial(F.cross_entropy, _random(dtype, s["T"], s["V"]), _labels(s))


def _labels(s: Shape) -> torch.Tensor:
    return torch.randint(0, s["V"], (s["T"],), device="cuda")


def _on(operation: Operation, dtype: str, *shapes: tuple[int, ...]) -> Case:
    """Return *operation* on random operands of *shapes*."""
    nbytes = sum(math.prod(shape) for shape in shapes) * _TYPES[dtype].itemsize
    return nbytes, lambda: partial(operation, *(_random(dtype, *shape) for shape in shapes))


def _random(dtype: str, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=_TYPES[dtype])


_MAKERS: dict[str, Maker] = {
    "gemm": _gemm,
    "bmm": _bmm,
    "sdpa": _sdpa,
    "add": _add,
    "copy": _row(torch.clone),
    "gelu": _row(lambda x: F.gelu(x, approximate="tanh")),
    "silu": _row(F.silu),
    "mul_scalar": _row(lambda x: x * 1.5),
    "softmax": _row(lambda x: torch.softmax(x, -1)),
    "sum": _row(lambda x: x.sum(-1)),
    "cast_fp32": _row(torch.Tensor.float),
    "transpose": _row(lambda x: x.t().contiguous()),
    "layernorm": _layernorm,
    "rmsnorm": _rmsnorm,
    "embedding": _embedding,
    "cross_entropy": _cross_entropy,
}
