"""``--set PATH=VALUE``: any single value of a description, and messages that name the nearest path."""

import pytest

from hw_models import load_chip
from simulator.dtypes import DType
from simulator.errors import SpecError


def fault(*overrides: str) -> str:
    with pytest.raises(SpecError) as caught:
        load_chip("h200", overrides)
    return str(caught.value)


def test_a_value_is_replaced_and_the_last_word_wins() -> None:
    chip = load_chip("h200", ["memory.hbm.bandwidth=6TB/s", " cores = 144 ", "memory.hbm.bandwidth=7 TB/s"])
    assert (chip.dram_bandwidth, chip.cores) == (7 * 10**12, 144)
    assert chip.dram.capacity == load_chip("h200").dram.capacity


def test_a_mode_of_the_matrix_unit_is_added() -> None:
    chip = load_chip("h200", ["matrix.macs_per_cycle.int4=8192"])
    # 2 x 8192 x 132 x 1.83 GHz
    assert chip.matrix_peak(DType.INT4) == 2 * 8192 * 132 * 1_830_000_000


def test_a_section_that_the_file_lacks_is_made_and_says_so() -> None:
    power = load_chip("tpu-v5e", ["power.cap=200 W"]).power
    assert power is not None
    assert (power.cap, power.source) == (200, "set by hand, with no source")


def test_null_takes_away() -> None:
    assert load_chip("h200", ["power=null"]).power is None
    assert load_chip("h200", ["power.idle=null"]).power is not None
    chip = load_chip(
        "h200",
        ["matrix.macs_per_cycle=null", "matrix.array.rows=128", "matrix.array.columns=64", "matrix.rate.bf16=1"],
    )
    assert chip.matrix.macs(DType.BF16) == 128 * 64


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("memory.hmb.bandwidth=6TB/s", "the description has no memory.hmb; did you mean 'memory.hbm'?"),
        ("memory.hbm.bandwith=6TB/s", "the description has no memory.hbm.bandwith; "
         "did you mean 'memory.hbm.bandwidth'?"),
        ("matrix.macs_per_cycle.bf61=4", "the description has no matrix.macs_per_cycle.bf61; "
         "did you mean 'matrix.macs_per_cycle.bf16'?"),
        ("memory=3", "memory is a section; set one of its values (memory.X=... with X one of sram, l2, hbm)"),
        ("memory.hbm=3", "memory.hbm is a section; set one of its values "
         "(memory.hbm.X=... with X one of scope, capacity, source, bandwidth, latency)"),
        ("power=", "expected PATH=VALUE, such as memory.hbm.bandwidth=6TB/s"),
        ("power", "expected PATH=VALUE, such as memory.hbm.bandwidth=6TB/s"),
        ("power..cap=3 W", "expected PATH=VALUE, such as memory.hbm.bandwidth=6TB/s"),
        ("=3", "expected PATH=VALUE, such as memory.hbm.bandwidth=6TB/s"),
        ("cores.x=3", "cores is a single value and has nothing inside"),
        ("cores=[1, 2]", "sets one value at a time, got a list"),
        ("power={cap: 1 W}", "sets one value at a time, got a mapping"),
    ],
)  # fmt: skip
def test_an_override_that_names_nothing(override: str, expected: str) -> None:
    assert fault(override) == f"--set {override}: {expected}"


def test_every_wrong_override_is_reported() -> None:
    assert fault("memry.hbm=3", "cores=4", "foo").splitlines() == [
        "--set memry.hbm=3: the description has no memry; did you mean 'memory'?",
        "--set foo: expected PATH=VALUE, such as memory.hbm.bandwidth=6TB/s",
    ]


def test_a_value_is_checked_like_one_in_the_file() -> None:
    assert fault("memory.hbm.bandwidth=6", "cores=-1", "matrix.array.rows=8").splitlines() == [
        "h200: not a valid chip description:",
        "  cores (--set): must be greater than 0, got -1",
        "  matrix.array.columns (--set): is missing",
        "  memory.hbm.bandwidth (--set): needs a unit: write '6 B/s' or, say, '6 GB/s', not a bare 6",
    ]
