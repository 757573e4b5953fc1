"""What binds one GEMM on an array, on cases that can be worked out by hand, and how little of each resource will do."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hw_models.array_model.sizing import SLACK, Machine, least_bandwidth, least_pads, scaled, size_up
from hw_models.systolic import Array, Dataflow, Scratchpads
from simulator.errors import UsageError
from simulator.variants import Resource

# 7 x 5 x 9 on 4 x 4 ws: rows of k in folds of 4, 4 and 1, columns of n in folds of 4 and 1, 7 steps each.
# Stall-free: preload 4, fill 3, stream 6 x 7, drain 4 = 53.  At 4 words a cycle: the first fold's 16 weights take 4
# cycles unhidden.  Beside the folds move 4 x 7 ifmap words (7 cycles; no stall), then 28 + 16 weights (11, stall 4),
# then 7 + 4 weights + 28 results (9.75, stall 2.75); with column 5 only 4, 4 and 1 + 7 words.  4 + 6.75, so 11.
SMALL = Machine(Array(4, 4), clock=10**9, pads=Scratchpads(1024, 1024, 1024), bandwidth=4e9)

# 64 x 64 x 4 on 4 x 4 ws: 16 folds along n of 64 steps: 4 + 3 + 1024 + 4 = 1035 stall-free.  2 words a cycle; half of
# the ifmap's scratchpad keeps 4 of its 256 words.  Unhidden 16 weights: 8.  First fold 256 ifmap + 256 result words:
# 256 cycles, stall 192.  15 others 252 + 256 + 16 weights: 262, stall 198.  Stalls 8 + 192 + 15 x 198 = 3170.
# With room for the ifmap the others move 256 + 16: 136, stall 72: 8 + 192 + 15 x 72 = 1280.
CROWDED = replace(SMALL, pads=Scratchpads(8, 1024, 1024), bandwidth=2e9)


def test_arithmetic_binds_where_waits_are_short() -> None:
    found = size_up(SMALL, (7, 5, 9))
    assert found.seconds == pytest.approx(64e-9)
    assert found.bound is Resource.COMPUTE
    # Infinitely fast cells leave the transfers: 4 + 7 + 11 + 9.75 + 1 + 1 + 2 = 35.75 ns of 64.
    assert found.saved[Resource.COMPUTE] == pytest.approx(1 - 35.75 / 64, abs=1e-5)
    assert found.saved[Resource.BANDWIDTH] == pytest.approx(11 / 64)
    assert found.saved[Resource.CAPACITY] == 0


def test_capacity_binds_where_words_come_again_and_again() -> None:
    found = size_up(CROWDED, (64, 64, 4))
    assert found.seconds == pytest.approx(4205e-9)
    assert found.bound is Resource.CAPACITY
    assert found.saved[Resource.CAPACITY] == pytest.approx((3170 - 1280) / 4205)
    assert found.saved[Resource.BANDWIDTH] == pytest.approx(1280 / 4205)  # what is left of the waits
    assert found.saved[Resource.COMPUTE] == pytest.approx(1 - (8 + 256 + 15 * 262) / 4205, abs=1e-5)
    assert found.least_pads is not None
    assert found.least_pads.ifmap > 8


def test_bandwidth_binds_where_nothing_could_be_kept() -> None:
    # A vector times a matrix uses each weight once: no scratchpad helps.
    found = size_up(replace(SMALL, bandwidth=1e9), (1, 64, 64))
    assert found.bound is Resource.BANDWIDTH
    assert found.saved[Resource.CAPACITY] == 0


def test_without_memory_only_arithmetic_binds() -> None:
    found = size_up(Machine(Array(4, 4)), (7, 5, 9))
    assert found.seconds == pytest.approx(53e-9)
    assert found.bound is Resource.COMPUTE
    assert found.saved[Resource.COMPUTE] == pytest.approx(1, abs=1e-5)
    assert (found.least_bandwidth, found.least_pads) == (None, None)
    # Twice the rows: folds of k 8 and 1: 8 + 7 + 4 x 7 + 4, and 1 between two short tiles (8 rows load behind 7) x 3.
    assert found.larger[Array(8, 4)] == pytest.approx(50e-9)


def test_what_holds_no_larger_fold_has_no_larger_array() -> None:
    machine = replace(SMALL, pads=Scratchpads(1024, 32, 1024))
    assert set(size_up(machine, (64, 64, 3)).larger) == {Array(8, 4)}  # 3 of k: never more than 3 x 4 weights
    with pytest.raises(UsageError):
        replace(machine, array=Array(4, 8)).run((64, 64, 4))


EXTENT = st.integers(1, 200)


@settings(max_examples=25, deadline=None)
@given(st.tuples(EXTENT, EXTENT, EXTENT), st.sampled_from(Dataflow), st.sampled_from((1, 2)))
def test_the_least_is_enough_and_less_is_not(shape: tuple[int, int, int], dataflow: Dataflow, cores: int) -> None:
    machine = replace(SMALL, array=Array(8, 4, dataflow), cores=cores)
    unlimited = replace(machine, bandwidth=math.inf).seconds(shape)
    rate = least_bandwidth(machine, shape)
    assert replace(machine, bandwidth=rate).seconds(shape) <= SLACK * unlimited
    assert replace(machine, bandwidth=rate / 1.01).seconds(shape) > SLACK * unlimited

    pads = least_pads(machine, shape)
    endless = replace(machine, pads=Scratchpads(10**7, 10**7, 10**7)).seconds(shape)
    assert replace(machine, pads=pads).seconds(shape) <= SLACK * endless
    for name in ("ifmap", "filter", "ofmap"):
        smaller = replace(machine, pads=replace(pads, **{name: getattr(pads, name) - 1}))
        try:
            assert smaller.seconds(shape) > SLACK * endless
        except UsageError as error:
            assert name in str(error)  # noqa: PT017


@settings(max_examples=25, deadline=None)
@given(st.tuples(EXTENT, EXTENT, EXTENT), st.sampled_from(Dataflow), st.integers(1, 100), st.integers(300, 3000))
def test_more_of_anything_is_never_slower(
    shape: tuple[int, int, int], dataflow: Dataflow, rate: int, words: int
) -> None:
    machine = Machine(Array(8, 4, dataflow), pads=Scratchpads(words, words, words), bandwidth=rate * 1e8)
    found = size_up(machine, shape)
    assert all(share >= 0 for share in found.saved.values())
    assert all(share >= 0 for share in found.ten_percent.values())
    assert scaled(machine, Resource.CAPACITY, 2).seconds(shape) <= found.seconds
