"""DRAM words and stalls of the systolic array: by hand, against a walk over every fold, and as properties."""

import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw_models.systolic import Array, Convention, Dataflow, Scratchpads, Words, run_gemm, split_gemm
from simulator.errors import UsageError

WS, OS = Dataflow.WEIGHT, Dataflow.OUTPUT
SCALESIM = Convention.SCALESIM
AMPLE = Scratchpads(1 << 30, 1 << 30, 1 << 30)
EXTENT = st.integers(1, 60)


def arrays() -> st.SearchStrategy[Array]:
    side = st.integers(1, 8)
    scalesim = st.builds(Array, side, side, st.sampled_from(Dataflow), st.just(SCALESIM))
    return scalesim | st.builds(Array, side, side, st.sampled_from(Dataflow)) | st.builds(Array, side, side, depth=side)


def pads(least: int = 128) -> st.SearchStrategy[Scratchpads]:
    words = st.integers(least, 6000)
    return st.builds(Scratchpads, words, words, words)


def test_with_room_for_all_each_word_moves_once() -> None:
    run = run_gemm(Array(4, 4, WS, SCALESIM), m=7, n=5, k=9, scratchpads=AMPLE)
    assert run.dram == Words(ifmap=63, filter=45, ofmap=35)
    assert run.stall_cycles == 0


def test_what_does_not_fit_comes_again() -> None:
    # RTL ws, 2 turns of columns, rows inside.  A = 7 x 9 = 63 words; 40 words hold 20 of them, so the second turn
    # brings 43 again.  B once.  Partial sums stay behind the array.
    run = run_gemm(Array(4, 4), m=7, n=5, k=9, scratchpads=Scratchpads(40, 32, 64))
    assert run.dram == Words(ifmap=63 + 43, filter=45, ofmap=35)


def test_partial_sums_that_do_not_fit_go_out_and_come_back() -> None:
    # SCALE-Sim ws with one column tile: C is 7 x 4 = 28 words, half of 16 stays, 20 words go out and in again
    # between the 3 turns of rows: 28 + 2 x 2 x 20.
    run = run_gemm(Array(4, 4, WS, SCALESIM), m=7, n=4, k=9, scratchpads=Scratchpads(1024, 1024, 16))
    assert run.dram == Words(ifmap=63, filter=36, ofmap=28 + 80)


def test_output_stationary_brings_both_operands_again() -> None:
    # RTL os, columns inside: 2 x 2 folds.  A tile of 4 x 9 = 36 words (then 3 x 9 = 27) is used in 2 turns of columns
    # and 10 stay: 26 + 17 again.  All of B, 9 x 5 = 45, is used in 2 turns of rows and 16 stay: 29 again.
    run = run_gemm(Array(4, 4, OS), m=7, n=5, k=9, scratchpads=Scratchpads(20, 32, 64))
    assert run.dram == Words(ifmap=63 + 43, filter=45 + 29, ofmap=35)


def test_stalls_by_hand() -> None:
    # RTL ws, 4 words a cycle, every fold lasts 7 cycles.  Cold: the first tile, 16 words = 4 cycles.
    #   fold    ifmap  filter  ofmap   cycles of DRAM   lost
    #   (0, 0)   28       -      -        7              0
    #   (1, 0)   28      16      -       11              4
    #   (2, 0)    7       4     28        9.75           2.75
    #   column 1: A is kept, B tiles of 4, 4, 1 words, 7 results: nothing lost.      4 + 4 + 2.75, rounded up
    run = run_gemm(Array(4, 4), m=7, n=5, k=9, scratchpads=Scratchpads(1024, 1024, 1024), bandwidth=4.0)
    assert run.stall_cycles == 11
    assert run.cycles == run.phases.cycles + 11


@given(array=arrays(), m=EXTENT, n=EXTENT, k=EXTENT, size=pads(), bandwidth=st.floats(0.1, 50))
def test_stalls_never_rise_with_scratchpads_or_bandwidth(
    array: Array, m: int, n: int, k: int, size: Scratchpads, bandwidth: float
) -> None:
    def stalls(pads: Scratchpads, rate: float) -> int:
        return int(run_gemm(array, m, n, k, pads, rate).stall_cycles)

    base = stalls(size, bandwidth)
    for more, factor in itertools.product((1, 7, 500), (1.0, 1.01, 3.0)):
        for grown in (
            Scratchpads(size.ifmap + more, size.filter, size.ofmap),
            Scratchpads(size.ifmap, size.filter + more, size.ofmap),
            Scratchpads(size.ifmap, size.filter, size.ofmap + more),
        ):
            assert stalls(grown, bandwidth * factor) <= base


@given(array=arrays(), m=EXTENT, n=EXTENT, k=EXTENT, size=pads(), bandwidth=st.floats(0.1, 50))
def test_time_is_bounded_below_by_the_array_and_by_dram(
    array: Array, m: int, n: int, k: int, size: Scratchpads, bandwidth: float
) -> None:
    run = run_gemm(array, m, n, k, size, bandwidth)
    assert run.dram is not None
    assert run.cycles >= run.phases.cycles
    assert run.cycles >= math.floor(int(run.dram.total) / bandwidth)
    assert int(run.dram.ifmap) >= m * k
    assert int(run.dram.filter) >= k * n
    assert int(run.dram.ofmap) >= m * n


@given(array=arrays(), m=EXTENT, n=EXTENT, k=EXTENT, size=pads())
def test_without_a_limit_on_bandwidth_nothing_stalls(array: Array, m: int, n: int, k: int, size: Scratchpads) -> None:
    assert run_gemm(array, m, n, k, size).stall_cycles == 0


@given(m=EXTENT, n=EXTENT, k=EXTENT, size=pads(32), bandwidth=st.floats(0.1, 50))
def test_counted_folds_equal_a_walk_over_all_of_them(
    m: int, n: int, k: int, size: Scratchpads, bandwidth: float
) -> None:
    run = run_gemm(Array(4, 3), m, n, k, size, bandwidth)
    assert run.stall_cycles == pytest.approx(math.ceil(_walk(m, n, k, size, bandwidth) - 1e-9), abs=1)


def _walk(m: int, n: int, k: int, size: Scratchpads, bandwidth: float) -> float:
    """Stalls of the RTL's ws on 4 x 3 cells, fold by fold."""
    kept = min(1.0, (size.ifmap // 2) / (m * k))
    lost = min(4, k) * min(3, n) / bandwidth
    for column, row in itertools.product(range(0, n, 3), range(0, k, 4)):
        height, width = min(4, k - row), min(3, n - column)
        words = m * height * (1 - kept if column else 1)
        words += 0 if (row, column) == (0, 0) else height * width
        words += m * width if row + 4 >= k else 0
        lost += max(0.0, words / bandwidth - max(m, 4))
    return lost


@given(array=arrays(), shapes=st.lists(st.tuples(*[EXTENT] * 3), min_size=1, max_size=8), bandwidth=st.floats(0.1, 50))
def test_many_shapes_at_once_stall_as_each_alone(
    array: Array, shapes: list[tuple[int, int, int]], bandwidth: float
) -> None:
    size = Scratchpads(300, 200, 150)
    m, n, k = (list(dimension) for dimension in zip(*shapes, strict=True))
    together = run_gemm(array, m, n, k, size, bandwidth)
    alone = [run_gemm(array, *shape, size, bandwidth) for shape in shapes]
    assert np.asarray(together.stall_cycles).tolist() == [run.stall_cycles for run in alone]
    assert together.dram is not None
    assert np.asarray(together.dram.total).tolist() == [run.dram.total for run in alone if run.dram is not None]


def test_long_lists_are_cut_and_put_together_again() -> None:
    rng = np.random.default_rng(3)
    m, n, k = rng.integers(1, 500, (3, 20_000))
    array, size = Array(16, 16, WS, SCALESIM), Scratchpads(4096, 4096, 4096)
    run = run_gemm(array, m, n, k, size, 8.0)
    for index in (0, 8191, 8192, 19_999):
        alone = run_gemm(array, int(m[index]), int(n[index]), int(k[index]), size, 8.0)
        assert np.asarray(run.stall_cycles)[index] == alone.stall_cycles


def test_scratchpads_too_small_for_a_fold_are_refused() -> None:
    message = (
        "the ifmap scratchpad holds 4 words, wanted at least 8 for one fold; "
        "the filter scratchpad holds 16 words, wanted at least 24 for one fold"
    )
    with pytest.raises(UsageError, match=f"^{message}$"):
        run_gemm(Array(4, 3), 9, 9, 9, Scratchpads(4, 16, 6), 1.0)
    run_gemm(Array(4, 3), 9, 9, 9, Scratchpads(8, 24, 6), 1.0)
    run_gemm(Array(4, 3), 9, 1, 2, Scratchpads(4, 4, 2), 1.0)  # 2 x 1 cells are in use


def test_a_bandwidth_of_nothing_is_refused() -> None:
    message = re.escape("DRAM bandwidth is 0.0 words a cycle, wanted more than 0")
    with pytest.raises(UsageError, match=f"^{message}$"):
        run_gemm(Array(4, 3), 9, 9, 9, AMPLE, 0.0)


def test_two_cores_take_half_the_rows_each() -> None:
    # 64 rows on 4 x 4: 4 + 3 + 64 + 4 alone; 32 rows each: 4 + 3 + 32 + 4.
    assert split_gemm(Array(4, 4), 64, 4, 4, cores=1).cycles == 75
    split = split_gemm(Array(4, 4), 64, 4, 4, cores=2)
    assert (split.m_parts, split.n_parts, split.k_parts, split.cycles) == (2, 1, 1, 43)


def test_a_long_k_is_split_and_added_up() -> None:
    # os, 4 x 4 x 4096 on 4 cores: k in 4 parts of 1024; fill 6, drain 4; each core adds 3 x 4 words, 4 a cycle: 3.
    split = split_gemm(Array(4, 4, OS), 4, 4, 4096, cores=4)
    assert (split.k_parts, split.reduction_words, split.reduction_cycles) == (4, 12, 3)
    assert split.cycles == 6 + 1024 + 4 + 3


@given(m=EXTENT, n=EXTENT, k=EXTENT, cores=st.integers(1, 12))
def test_more_cores_are_never_slower_than_their_share(m: int, n: int, k: int, cores: int) -> None:
    split = split_gemm(Array(4, 4), m, n, k, cores)
    assert split.busy_cores <= cores
    assert split.cycles * cores * 16 >= m * n * k


@given(
    array=arrays(), m=EXTENT, n=EXTENT, k=EXTENT, cores=st.integers(1, 11), room=pads(), bandwidth=st.floats(0.05, 64)
)
def test_one_core_more_never_takes_longer(
    array: Array, m: int, n: int, k: int, cores: int, room: Scratchpads, bandwidth: float
) -> None:
    fewer, more = (split_gemm(array, m, n, k, count, room, bandwidth) for count in (cores, cores + 1))
    assert more.cycles <= fewer.cycles


@given(
    array=arrays(), m=EXTENT, n=EXTENT, k=EXTENT, cores=st.integers(1, 12), room=pads(), bandwidth=st.floats(0.05, 64)
)
def test_no_grid_is_faster_than_the_one_taken(
    array: Array, m: int, n: int, k: int, cores: int, room: Scratchpads, bandwidth: float
) -> None:
    best = math.inf
    for parts in itertools.product(range(1, cores + 1), repeat=3):
        if math.prod(parts) <= cores and all(part <= extent for part, extent in zip(parts, (m, n, k), strict=True)):
            rows, columns, depth = (-(-extent // part) for part, extent in zip(parts, (m, n, k), strict=True))
            run = run_gemm(array, rows, columns, depth, room, bandwidth / math.prod(parts))
            sums = (parts[2] - 1) * -(-rows * columns // parts[2])
            best = min(best, int(run.cycles) + -(-sums // array.columns))
    assert split_gemm(array, m, n, k, cores, room, bandwidth).cycles == best


def test_cores_idle_if_sharing_the_bandwidth_costs_more() -> None:
    # One core: fill 254, stream 128, drain 128.  At 16 words a cycle 128 x 128 words of each operand take 1,024.
    # ifmap and filter beside the only fold: 2,048 - 128 lost; the results that nothing hides: 1,024.
    room = Scratchpads(1 << 18, 1 << 18, 1 << 18)
    for cores in (1, 7):
        split = split_gemm(Array(128, 128, OS), 128, 128, 128, cores, room, 16.0)
        assert (split.cycles, split.busy_cores) == (510 + 1920 + 1024, 1)


def test_too_few_and_too_many_cores_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^cores is 0, wanted at least 1$"):
        split_gemm(Array(4, 4), 1, 1, 1, cores=0)
    with pytest.raises(UsageError, match=r"^cores is 1000000007, wanted at most 4,096$"):
        split_gemm(Array(4, 4), 1, 1, 1, cores=1_000_000_007)


def test_the_most_cores_share_a_gemm() -> None:
    # 64 parts of m and 16 of n leave one row of one fold: preload 4, fill 3, stream 1, drain 4.
    split = split_gemm(Array(4, 4), 64, 64, 4, cores=4096)
    assert (split.cycles, split.busy_cores) == (12, 64 * 16)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2**31, 1, 1), "m is 2147483648, wanted at most 2,147,483,647"),
        ((2**31 - 1, 2**31 - 1, 2**31 - 1), "a GEMM of 9.9e+27 multiply-adds and up to 6.19e+26 cycles, wanted at "
         "most 1.15e+18 of either"),
    ],
)  # fmt: skip
def test_what_cannot_be_counted_in_64_bits_is_refused(shape: tuple[int, int, int], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        run_gemm(Array(4, 4), *shape)
    assert str(caught.value) == message
    with pytest.raises(UsageError, match="wanted at most"):
        run_gemm(Array(4, 4), np.array([1, shape[0]]), np.array([1, shape[1]]), np.array([1, shape[2]]))


def test_large_counts_are_exact_in_arrays_too() -> None:
    # Of different shapes one may have the largest m and another the largest k.
    m, n, k = np.array([2**31 - 1, 1]), np.array([2**20, 1]), np.array([1, 2**31 - 1])
    both = run_gemm(Array(4, 4, OS), m, n, k, Scratchpads(1 << 70, 1 << 70, 1 << 70), 1e-3)
    alone = run_gemm(Array(4, 4, OS), 2**31 - 1, 2**20, 1, Scratchpads(1 << 70, 1 << 70, 1 << 70), 1e-3)
    assert int(np.asarray(both.cycles)[0]) == alone.cycles > 2**50
    with pytest.raises(
        UsageError, match=r"^DRAM takes .*e\+2\d cycles longer than the array, wanted at most 4\.61e\+18$"
    ):
        run_gemm(Array(4, 4), m, n, k, AMPLE, 1e-12)


def test_a_convolution_fetches_its_input_once_if_it_is_held() -> None:
    # 16 x 16 x 4 inputs, 3 x 3 filters, 8 of them: A is 196 x 36, 7,056 words, of which 1,024 are distinct.
    array = Array(8, 8, WS, SCALESIM)
    for half, want in ((1024, 1024), (1023, 7056)):
        room = Scratchpads(2 * half, 1 << 20, 1 << 20)
        run = run_gemm(array, np.array([196]), np.array([8]), np.array([36]), room, np.inf, np.array([1024]))
        assert run.dram is not None
        assert (run.dram.ifmap, run.dram.filter, run.dram.ofmap) == (want, 8 * 36, 196 * 8)


@given(
    array=arrays(), m=EXTENT, n=EXTENT, k=EXTENT, words=st.integers(1, 4000), room=pads(), bandwidth=st.floats(0.1, 64)
)
def test_repeated_inputs_never_add_words_or_stalls(
    array: Array, m: int, n: int, k: int, words: int, room: Scratchpads, bandwidth: float
) -> None:
    stored = run_gemm(array, m, n, k, room, bandwidth)
    unrolled = run_gemm(array, m, n, k, room, bandwidth, words)
    assert stored.dram is not None
    assert unrolled.dram is not None
    assert unrolled.dram.ifmap <= stored.dram.ifmap
    assert unrolled.stall_cycles <= stored.stall_cycles
    more = run_gemm(array, m, n, k, replace(room, ifmap=room.ifmap + 500), bandwidth, words)
    assert more.stall_cycles <= unrolled.stall_cycles
