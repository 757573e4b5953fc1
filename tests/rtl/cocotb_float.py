"""Runs inside the simulator: mac_bf16 or float32_add against exact arithmetic, bit for bit."""

import os
import random
from typing import Any

import cocotb
from cocotb.triggers import Timer

from hw_models.rtl_bench import bf16_reference

COUNT = int(os.environ.get("RTL_CASES", "1"))
SEED = int(os.environ.get("RTL_SEED", "1"))

FP32_CORNERS = [
    sign << 31 | bits
    for sign in (0, 1)
    for bits in (0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x3F800000, 0x3F7FFFFF, 0x7F7FFFFF, 0x7F800000, 0x7FC00001)
]
BF16_CORNERS = sorted({bits >> 16 for bits in FP32_CORNERS} | {0x0001, 0x8001, 0x007F, 0x0080, 0x1F80, 0x2000})


def random_fp32(rng: random.Random, near: int | None = None) -> int:
    """Return fp32 bits: anywhere, or with an exponent at most 30 away from *near*'s, where sums round and cancel."""
    if near is None or rng.random() < 0.2:
        return rng.getrandbits(32)
    exponent = min(max((near >> 23 & 0xFF) + rng.randint(-30, 30), 0), 254)
    fraction = rng.choice([rng.getrandbits(23), 0, 0x7FFFFF, near & 0x7FFFFF, 1 << rng.randrange(23)])
    return rng.getrandbits(1) << 31 | exponent << 23 | fraction


def product_bits(a: int, w: int) -> int:
    """Return fp32 bits near a * w, to aim the addend at."""
    return bf16_reference.fma(a, w, 0)


@cocotb.test(skip=os.environ.get("RTL_MODULE") != "mac_bf16")
async def every_mac_is_rounded_once(dut: Any) -> None:
    rng = random.Random(SEED)
    cases = [(a, w, p) for a in BF16_CORNERS for w in BF16_CORNERS for p in FP32_CORNERS]
    for _ in range(COUNT):
        a, w = rng.getrandbits(16), rng.getrandbits(16)
        cases.append((a, w, random_fp32(rng, product_bits(a, w))))
    for a, w, p in cases:
        dut.a.value, dut.w.value, dut.p.value = a, w, p
        await Timer(1, "ns")
        got, want = int(dut.y.value), bf16_reference.fma(a, w, p)
        assert got == want, f"{a:04x} * {w:04x} + {p:08x} gave {got:08x}, wanted {want:08x}"


@cocotb.test(skip=os.environ.get("RTL_MODULE") != "float32_add")
async def every_sum_is_rounded_to_even(dut: Any) -> None:
    rng = random.Random(SEED)
    cases = [(x, y) for x in FP32_CORNERS for y in FP32_CORNERS]
    for _ in range(COUNT):
        x = rng.getrandbits(32)
        cases.append((x, random_fp32(rng, x)))
    for x, y in cases:
        dut.x.value, dut.y.value = x, y
        await Timer(1, "ns")
        got, want = int(dut.sum.value), bf16_reference.add(x, y)
        assert got == want, f"{x:08x} + {y:08x} gave {got:08x}, wanted {want:08x}"
