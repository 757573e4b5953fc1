"""The bf16 cell: its arithmetic against exact integers, and those against the processor's own fp32."""

from pathlib import Path

import numpy as np
import pytest

from hw_models.rtl_bench import bf16_reference
from hw_models.rtl_bench.runner import build

SEED = 16


@pytest.mark.rtl
@pytest.mark.parametrize("module", ["mac_bf16", "float32_add"])
def test_float_units_are_exact_to_the_bit(module: str, tmp_path: Path) -> None:
    simulation = build("icarus", module, {}, tmp_path / "sim")
    environment = {"RTL_MODULE": module, "RTL_SEED": str(SEED), "RTL_CASES": "6000"}
    assert simulation.run("tests.rtl.cocotb_float", environment) == (2, 0)


def test_the_reference_adds_as_the_processor_does() -> None:
    rng = np.random.default_rng(SEED)
    x, y = rng.integers(0, 1 << 32, (2, 20_000), dtype=np.uint32)
    y[:10_000] = x[:10_000] ^ rng.integers(0, 1 << 26, 10_000, dtype=np.uint32)  # near by: sums that cancel
    with np.errstate(all="ignore"):
        want = (x.view(np.float32) + y.view(np.float32)).view(np.uint32)
    want[np.isnan(want.view(np.float32))] = bf16_reference.NAN
    got = [bf16_reference.add(int(left), int(right)) for left, right in zip(x, y, strict=True)]
    assert (np.array(got, dtype=np.uint32) == want).all()


def test_the_reference_multiplies_as_the_processor_does() -> None:
    # A bf16 product has 16 significant bits: the processor's product is exact as well unless it is subnormal or
    # overflows, and it rounds both of those once.  Adding -0 changes nothing, and keeps the sign of a zero.
    rng = np.random.default_rng(SEED)
    a, w = rng.integers(0, 1 << 16, (2, 20_000), dtype=np.uint32)
    with np.errstate(all="ignore"):
        want = ((a << 16).view(np.float32) * (w << 16).view(np.float32)).view(np.uint32)
    want[np.isnan(want.view(np.float32))] = bf16_reference.NAN
    addend = [(left ^ right) >> 15 << 31 for left, right in zip(a.tolist(), w.tolist(), strict=True)]
    got = [bf16_reference.fma(*case) for case in zip(a.tolist(), w.tolist(), addend, strict=True)]
    assert (np.array(got, dtype=np.uint32) == want).all()
