"""The library: derived peaks against what the vendors print, and a source for every number."""

from dataclasses import fields, is_dataclass

import pytest

from hw_models import chip_names, load_chip
from hw_models.loader import LIBRARY
from simulator.dtypes import DType

# TFLOP/s (or TOPS), dense, as published by the vendor; where a data sheet prints only the sparse figure, half of it.
PUBLISHED = [
    ("h200", DType.BF16, 989.4), ("h200", DType.FP16, 989.4), ("h200", DType.TF32, 494.7),
    ("h200", DType.FP8, 1979), ("h200", DType.INT8, 1979),
    ("h100", DType.BF16, 989.4), ("h100", DType.FP8, 1978.9), ("h100", DType.INT8, 1978.9),
    ("a100", DType.BF16, 312), ("a100", DType.TF32, 156), ("a100", DType.INT8, 624), ("a100", DType.INT4, 1248),
    ("a100", DType.FP64, 19.5),
    ("b200", DType.BF16, 2250), ("b200", DType.FP8, 4500), ("b200", DType.TF32, 1125),
    ("mi300x", DType.BF16, 1307.4), ("mi300x", DType.FP8, 2614.9), ("mi300x", DType.INT8, 2614.9),
    ("mi300x", DType.TF32, 653.7), ("mi300x", DType.FP32, 163.4), ("mi300x", DType.FP64, 163.4),
    ("tpu-v3", DType.BF16, 123), ("tpu-v5e", DType.BF16, 197), ("tpu-v5e", DType.INT8, 394),
    ("tpu-v5p", DType.BF16, 459), ("tpu-v5p", DType.INT8, 918),
    ("edge-npu", DType.INT8, 32), ("systolic-toy", DType.BF16, 0.032),
]  # fmt: skip
VECTOR = [("h200", 66.9), ("h100", 66.9), ("a100", 19.5), ("b200", 75), ("mi300x", 163.4), ("tpu-v3", 3.85)]  # fp32
MEMORY = [  # bytes and bytes per second of the off-chip level
    ("h200", 141e9, 4.8e12), ("h100", 80e9, 3.35e12), ("a100", 80e9, 2.039e12), ("b200", 180e9, 8e12),
    ("mi300x", 192e9, 5.3e12), ("tpu-v3", 32e9, 900e9), ("tpu-v5e", 16e9, 819e9), ("tpu-v5p", 95e9, 2.765e12),
    ("apple-m4", 32e9, 120e9), ("edge-npu", 16e9, 51.2e9), ("systolic-toy", 2**30, 16e9),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype", "published"), PUBLISHED)
def test_the_derived_peak_is_the_published_one(name: str, dtype: DType, published: float) -> None:
    assert load_chip(name).matrix_peak(dtype) == pytest.approx(published * 1e12, rel=0.01)


@pytest.mark.parametrize(("name", "published"), VECTOR)
def test_the_derived_vector_peak_is_the_published_one(name: str, published: float) -> None:
    assert load_chip(name).vector_peak(DType.FP32) == pytest.approx(published * 1e12, rel=0.01)


@pytest.mark.parametrize(("name", "capacity", "bandwidth"), MEMORY)
def test_memory_is_as_published(name: str, capacity: float, bandwidth: float) -> None:
    chip = load_chip(name)
    assert (chip.dram.capacity, chip.dram_bandwidth) == (capacity, bandwidth)


def test_the_apple_gpu_peak_is_what_its_lanes_give() -> None:
    # 10 cores x 128 lanes x 2 x 1.47 GHz = 3.763 TFLOP/s, the same in half precision; 2.9 is the best measured.
    chip = load_chip("apple-m4")
    assert chip.matrix_peak(DType.FP16) == chip.vector_peak(DType.FP32) == 3_763_200_000_000


def test_gpus_have_their_on_chip_levels_and_links() -> None:
    for name in ("h200", "h100", "a100", "b200", "mi300x"):
        chip = load_chip(name)
        assert chip.memory["sram"].scope == "core"
        assert chip.memory["l2"].scope == "chip"
        assert chip.dram_name == "hbm"
        assert chip.links is not None
        assert chip.host_link is not None
    links = load_chip("h200").links
    assert links is not None
    assert links.count * links.bandwidth == 450e9  # NVLink 4: 900 GB/s in both directions together


@pytest.mark.parametrize("name", chip_names())
def test_every_chip_loads_under_its_own_name(name: str) -> None:
    chip = load_chip(name)
    assert chip.name == name
    assert chip.description


@pytest.mark.parametrize("name", chip_names())
def test_every_section_with_a_quantity_names_its_source(name: str) -> None:
    def check(value: object, path: str, covered: bool) -> None:
        if not is_dataclass(value):
            return
        own = getattr(value, "source", "")
        assert own or covered, f"{name}: {path} has no source"
        for item in fields(value):
            inner = getattr(value, item.name)
            members = inner.values() if isinstance(inner, dict) else [inner]
            for member in members:
                check(
                    member, f"{path}.{item.name}", bool(own) or path.startswith("chip.calibration")
                )  # one fit, one source

    check(load_chip(name), "chip", covered=False)


def test_the_library_holds_the_chips_that_the_documentation_names() -> None:
    assert set(chip_names()) >= {name for name, *_ in PUBLISHED} | {"apple-m4"}
    assert {path.suffix for path in LIBRARY.iterdir()} == {".yaml"}
