"""Lab 7: bytes of each level by hand, against a replay element by element, and as properties."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.gemm_replay import dram_elements, elements_asked, tiles_in_order
from workloads.gemm.geometry import residence
from workloads.gemm.steps import LADDER, Config, Step, step
from workloads.gemm.traffic import compulsory, l2_bytes, merged, order, port_bytes, traffic

BF16 = 2
sides = st.integers(1, 40)


def tiled(rows: int, columns: int, depth: int = 16, group: int = 1) -> Step:
    return Step("tile", "tiled", Config(rows, columns, depth, group=group), "")


def test_bytes_to_the_cores_by_hand() -> None:
    # 4096^3 in tiles of 128 x 256: the left operand (32 MiB) goes to each of 16 columns of tiles, the right one to
    # each of 32 rows of tiles, the result leaves once: 49 x 32 MiB
    assert l2_bytes(step("pipelined"), (4096, 4096, 4096), BF16) == 49 * 32 * 2**20


def test_neighbours_that_share_a_row_ask_once_in_four() -> None:
    # row by row, four neighbours share 128 rows and have 256 columns each: 128 / 4 + 256 of 128 + 256 are left;
    # in bands of 8 rows they share the columns: 128 + 256 / 4
    sizes, operands = (4096, 4096, 4096), 48 * 32 * 2**20
    for name, left in (("pipelined", 288), ("grouped", 192)):
        asked = l2_bytes(step(name), sizes, BF16)
        assert merged(step(name), sizes, BF16, asked) == operands * left // 384 + 32 * 2**20


def test_lines_at_the_port_by_hand() -> None:
    # one warp, one k: 32 lines of the left operand and one of the right, against one of each
    sizes = (256, 256, 10)
    warps = 256 * 256 // 32
    assert port_bytes(step("naive"), sizes, BF16) == warps * 10 * 33 * 128
    assert port_bytes(step("coalesced"), sizes, BF16) == warps * 10 * 2 * 128


def test_dram_bytes_of_waves_by_hand() -> None:
    # 2048 x 2048 in tiles of 128 x 256, 16 programs at once: a wave is 2 rows of 8 tiles; with a cache for nothing
    # each of 8 waves fetches 256 rows and all 2048 columns of 64 elements
    moved = traffic(tiled(128, 256), (2048, 2048, 64), BF16, cores=16, l2=0, programs=1)
    assert moved.dram == (8 * (256 + 2048) * 64 + 2048 * 2048) * BF16
    # with room for a wave, the right operand stays: 2048 rows and 2048 columns once
    moved = traffic(tiled(128, 256), (2048, 2048, 64), BF16, cores=16, l2=1e6, programs=1)
    assert moved.dram == moved.least == compulsory((2048, 2048, 64), BF16)


@settings(max_examples=40, deadline=None)
@given(sides, sides, sides, st.sampled_from([(16, 16), (16, 32), (32, 16)]), st.integers(1, 3))
def test_bytes_to_the_cores_equal_a_count_of_every_load(
    m: int, n: int, k: int, cut: tuple[int, int], group: int
) -> None:
    each = tiled(*cut, group=group)
    assert l2_bytes(each, (m, n, k), BF16) == BF16 * elements_asked(each.config, (m, n, k))
    assert list(order(each.config, (m, n, k))) == tiles_in_order(each.config, (m, n, k))


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("resident", [1, 3, 4, 8])
@pytest.mark.parametrize("room", [0.0, 0.3, 1.0])
def test_dram_bytes_follow_a_replayed_cache(group: int, resident: int, room: float) -> None:
    sizes = (136, 128, 64)
    each = tiled(16, 16, 8, group=group)
    cache = int(room * (sizes[0] + sizes[1]) * sizes[2]) + (16 + 16) * 8 * resident  # and the slices in hand
    replayed = BF16 * dram_elements(each.config, sizes, resident, cache)
    moved = traffic(each, sizes, BF16, cores=resident, l2=cache * BF16, programs=1)
    assert moved.dram == pytest.approx(replayed, rel=0.10)


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 300), st.sampled_from(LADDER), st.floats(0, 1e6))
@settings(max_examples=60, deadline=None)
def test_no_step_moves_less_than_each_matrix_once(m: int, n: int, k: int, each: Step, l2: float) -> None:
    moved = traffic(each, (m, n, k), BF16, cores=4, l2=l2, programs=residence(each, BF16).programs)
    assert moved.dram >= moved.least
    assert moved.asked >= moved.least
    assert moved.asked >= moved.l2


@pytest.mark.parametrize("sizes", [(512, 512, 512), (500, 300, 77)])
def test_larger_tiles_never_ask_for_more(sizes: tuple[int, int, int]) -> None:
    for longer in (False, True):
        cuts = [(side, 64) if longer else (64, side) for side in (16, 32, 64, 128, 256)]
        asked = [l2_bytes(tiled(*cut), sizes, BF16) for cut in cuts]
        assert asked == sorted(asked, reverse=True)
        assert asked[-1] < asked[0]


def test_a_larger_cache_never_moves_more() -> None:
    moved = [traffic(tiled(16, 16), (160, 160, 64), BF16, 8, l2, 1).dram for l2 in range(0, 60_000, 2000)]
    assert moved == sorted(moved, reverse=True)
    assert moved[0] > moved[-1]


def test_residence_is_that_of_the_compiled_kernels() -> None:
    # ptxas (Triton 3.6, sm_90): 56 registers and 128 threads; 170 registers and 256 threads; slices of 48 KiB
    assert residence(step("shared"), BF16).programs == 9
    assert residence(step("shared"), BF16).registers == 56
    assert residence(step("pipelined"), BF16).shared == 3 * 48 * 1024
    assert residence(step("pipelined"), BF16).programs == 1
    assert residence(step("naive"), BF16).programs == 16  # 64 warps
