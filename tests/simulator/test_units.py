"""Quantities: what is read exactly, what is refused and with which words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.units import PS_PER_SECOND, binary, decimal, duration, quantity, seconds, transfer_ps


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("80 GB", "B", 80 * 10**9),
        ("80 GiB", "B", 80 * 2**30),
        ("6TB/s", "B/s", 6 * 10**12),  # as on a command line
        ("1.755 GHz", "Hz", 1_755_000_000),
        ("0.5 KiB", "B", 512),
        ("700 W", "W", 700),
    ],
)
def test_a_quantity_is_read_exactly(text: str, unit: str, value: int) -> None:
    assert quantity(text, unit) == value


@pytest.mark.parametrize(
    ("text", "unit", "message"),
    [
        (80, "B", "needs a unit: write '80 B' or, say, '80 GB', not a bare 80"),
        ("80", "B", "'80' is not a quantity in B (expected the form '3.35 TB')"),
        ("80 Gb", "B", "'80 Gb' is not a quantity in B (expected the form '3.35 TB')"),
        ("80 gB", "B", "'80 gB' is not a quantity in B (expected the form '3.35 TB')"),
        ("-3 GB", "B", "'-3 GB' is not a quantity in B (expected the form '3.35 TB')"),
        ("3 GB", "B/s", "'3 GB' is not a quantity in B/s (expected the form '3.35 TB/s')"),
        ("0.3 B", "B", "'0.3 B' is not a whole number of B"),
        (None, "Hz", "needs a unit: write 'None Hz' or, say, 'None GHz', not a bare None"),
    ],
)
def test_what_is_no_quantity_is_refused_with_the_form_wanted(text: object, unit: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        quantity(text, unit)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (3, "needs a unit: write '3 us' or '3 ns', not a bare 3"),
        ("3 m", "'3 m' is not a time (expected the form '3.1 us'; units are s, ms, us, ns, ps)"),
        ("0.5 ps", "'0.5 ps' is not a whole number of ps"),
    ],
)
def test_what_is_no_time_is_refused(text: object, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        duration(text)
    assert str(caught.value) == message


def test_a_transfer_rounds_up() -> None:
    assert transfer_ps(1, 3) == 333_333_333_334  # a third of a second, in ps
    assert transfer_ps(0, 3) == 0


@given(st.integers(0, 10**15), st.integers(1, 10**15))
def test_a_transfer_is_never_faster_than_the_bandwidth(size: int, bandwidth: int) -> None:
    time = transfer_ps(size, bandwidth)
    assert time * bandwidth >= size * PS_PER_SECOND
    assert (time - 1) * bandwidth < size * PS_PER_SECOND or time == 0


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (decimal(999.9, "B"), "1 kB"),
        (decimal(1_234_567, "FLOP"), "1.23 MFLOP"),
        (decimal(4.8e12, "B/s"), "4.8 TB/s"),
        (binary(1024), "1 KiB"),
        (binary(16_826_249_216), "15.7 GiB"),
        (seconds(999_960), "1 us"),
        (seconds(6_470_210_000), "6.47 ms"),
        (seconds(440_182_590_000), "440.2 ms"),
    ],
)
def test_numbers_for_people_carry_the_prefix_that_reads_best(text: str, written: str) -> None:
    assert text == written
