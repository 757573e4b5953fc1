"""Closed forms of the systolic array: values worked out by hand, then the cycle-by-cycle play as a second opinion."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hw_models.systolic import Array, Convention, Dataflow, Phase, Phases, Place, count_phases, phases, play, run_gemm
from simulator.errors import UsageError

WS, OS, IS = Dataflow.WEIGHT, Dataflow.OUTPUT, Dataflow.INPUT
SCALESIM = Convention.SCALESIM
SIZE = st.integers(1, 14)


def arrays() -> st.SearchStrategy[Array]:
    """Arrays of the RTL, small enough to play."""
    side = st.integers(1, 6)
    depth, hides = st.none() | st.integers(1, 9), st.booleans()
    with_depth = st.builds(Array, side, side, st.sampled_from([WS, IS]), depth=depth, hides_preload=hides)
    return with_depth | st.builds(Array, side, side, st.just(OS))


def test_one_tile_of_the_weight_stationary_rtl() -> None:
    # 4 weight rows in; the first activation meets row 4 three cycles after it entered; 10 rows stream;
    # the last one crosses 3 more columns, and one more cycle writes it to the result register.
    assert phases(Array(4, 4), m=10, n=4, k=4) == Phases(preload=4, fill=3, stream=10, drain=4)


def test_weights_load_behind_the_wave() -> None:
    # 2 tiles of k.  With 10 rows the second tile's 4 weight rows are in long before it starts: 2 x 10 to stream.
    assert phases(Array(4, 4), m=10, n=4, k=8) == Phases(preload=4, fill=3, stream=20, drain=4)
    # With 1 row, its 4 weight rows take 4 cycles of which 1 is hidden: 4 + (4 - 1).
    assert phases(Array(4, 4), m=1, n=4, k=8) == Phases(preload=7, fill=3, stream=2, drain=4)


def test_a_tall_gemm_runs_in_blocks_of_the_accumulators() -> None:
    # 10 rows in blocks of 4, 4, 2 with 2 tiles each.  A tile of 4 hides all of a load, a tile of 2 leaves 2 of 4
    # open, but only once, for nothing loads behind the last tile: 4 + 2.
    assert phases(Array(4, 4, depth=4), m=10, n=4, k=8) == Phases(preload=6, fill=3, stream=20, drain=4)


def test_without_hiding_each_tile_loads_before_it_streams() -> None:
    # 2 tiles of 10 rows, 4 weight rows before each.
    array = Array(4, 4, hides_preload=False)
    assert phases(array, m=10, n=4, k=8) == Phases(preload=8, fill=3, stream=20, drain=4)


def test_one_tile_of_the_output_stationary_rtl() -> None:
    # The far corner of 4 x 3 works 3 + 2 cycles after the first cell; 10 steps of k; 4 result rows shift out.
    assert phases(Array(4, 3, OS), m=4, n=3, k=10) == Phases(preload=0, fill=5, stream=10, drain=4)


def test_a_short_k_waits_for_the_drain_chain() -> None:
    # 2 tiles with k = 1: the second one's only step waits until the 4 rows of the first are out: 4 - 1, then 4.
    assert phases(Array(4, 3, OS), m=4, n=6, k=1) == Phases(preload=0, fill=5, stream=2, drain=7)
    # An edge tile of 2 rows holds the chain for 2 cycles only.
    assert phases(Array(4, 3, OS), m=2, n=6, k=1) == Phases(preload=0, fill=5, stream=2, drain=3)


@pytest.mark.parametrize(
    ("dataflow", "cycles"),
    [
        # On 5 x 3 cells, 7 x 8 x 9 takes 2 x 3 folds in each dataflow:
        (OS, 6 * (5 + 3 + 9 - 2)),
        (WS, 6 * (10 + 3 + 7 - 2)),
        (IS, 6 * (10 + 3 + 8 - 2)),
    ],
)
def test_scalesim_folds_one_after_the_other(dataflow: Dataflow, cycles: int) -> None:
    assert phases(Array(5, 3, dataflow, SCALESIM), m=7, n=8, k=9).cycles == cycles


def test_input_stationary_is_weight_stationary_transposed() -> None:
    assert phases(Array(4, 3, IS), m=5, n=6, k=7) == phases(Array(4, 3, WS), m=6, n=5, k=7)


def test_a_single_fold_lasts_until_its_farthest_cell_is_done() -> None:
    # Cell (r, c) works on step t in cycle t + r + c: count by brute force, against R + C + T - 2.
    rows, columns, time = 5, 3, 7
    last = max(t + r + c for t in range(time) for r in range(rows) for c in range(columns))
    assert phases(Array(rows, columns, OS, SCALESIM), m=rows, n=columns, k=time).cycles == last + 1


@given(array=arrays(), m=SIZE, n=SIZE, k=SIZE)
def test_closed_form_is_the_cycle_by_cycle_play(array: Array, m: int, n: int, k: int) -> None:
    steps = play(array, m, n, k)
    assert count_phases(steps) == phases(array, m, n, k)
    assert steps[-1].result is not None, "the last cycle writes the last result"


@given(array=arrays(), m=SIZE, n=SIZE, k=SIZE)
def test_a_played_gemm_moves_every_word_once_for_each_fold(array: Array, m: int, n: int, k: int) -> None:
    steps, run = play(array, m, n, k), run_gemm(array, m, n, k)
    entered = [step.enter for step in steps if step.enter is not None]
    assert len(entered) == len(set(entered)) == run.phases.stream
    assert entered == sorted(entered)
    loaded = [step.load for step in steps if step.load is not None]
    blocks = -(-int(run.mapping.time) // array.depth) if array.depth else 1
    assert len(loaded) == len(set(loaded)) == (0 if array.dataflow is OS else run.folds * blocks * array.rows)


@given(array=arrays(), m=SIZE, n=SIZE, k=SIZE)
def test_a_tile_streams_only_with_all_its_weights(array: Array, m: int, n: int, k: int) -> None:
    loaded: dict[int, int] = {}
    for cycle, step in enumerate(play(array, m, n, k)):
        if step.enter is not None and array.dataflow is not OS:
            assert loaded[step.enter[0]] == array.rows, f"cycle {cycle}"
        if step.load is not None:
            loaded[step.load[0]] = loaded.get(step.load[0], 0) + 1


def test_back_to_back_tiles_leave_no_bubble() -> None:
    # T >= R: from the first activation to the last, one row enters in every cycle.
    steps = play(Array(4, 4), m=4, n=12, k=12)
    entries: list[Place | None] = [step.enter for step in steps]
    assert None not in entries[4 : 4 + 4 * 9]
    assert [step.phase for step in steps].count(Phase.PRELOAD) == 4


@settings(max_examples=30)
@given(
    array=arrays() | st.builds(Array, SIZE, SIZE, st.sampled_from(Dataflow), st.just(SCALESIM)),
    shapes=st.lists(st.tuples(*[st.integers(1, 99)] * 3), min_size=1, max_size=9),
)
def test_many_shapes_at_once_give_what_each_gives_alone(array: Array, shapes: list[tuple[int, int, int]]) -> None:
    m, n, k = (list(dimension) for dimension in zip(*shapes, strict=True))
    together = run_gemm(array, m, n, k)
    for index, shape in enumerate(shapes):
        alone = run_gemm(array, *shape)
        for name in ("preload", "fill", "stream", "drain"):
            assert np.asarray(getattr(together.phases, name))[index] == getattr(alone.phases, name)
        assert np.asarray(together.cycles)[index] == alone.cycles
        assert np.asarray(together.sram.total)[index] == alone.sram.total
        assert np.asarray(together.mapping_efficiency)[index] == alone.mapping_efficiency


@given(array=arrays(), m=SIZE, n=SIZE, k=SIZE)
def test_no_array_beats_its_cells(array: Array, m: int, n: int, k: int) -> None:
    run = run_gemm(array, m, n, k)
    assert run.macs == m * n * k
    assert 0 < run.utilisation <= run.mapping_efficiency <= 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Array(0, -1), "rows is 0, wanted at least 1; columns is -1, wanted at least 1"),
        (
            lambda: Array(4, 4, "rs"),  # type: ignore[arg-type]
            "dataflow is 'rs', wanted one of ws, os, is",
        ),
        (lambda: Array(4, 4, OS, depth=8), "depth is 8, but rtl os has no accumulators"),
        (lambda: Array(4, 4, WS, SCALESIM, 8), "depth is 8, but scalesim ws has no accumulators"),
        (lambda: Array(4, 4, OS, hides_preload=False), "hides_preload is False, which is no choice of rtl os"),
        (lambda: phases(Array(4, 4), 0, 1, 1), "m is 0, wanted at least 1"),
        (lambda: phases(Array(4, 4), 1, [3, -2], 1), "n has an element of -2, wanted at least 1"),
        (lambda: phases(Array(4, 4), 1, 1, np.array([1.5])), "k has elements of float64, wanted integers"),
        (
            lambda: play(Array(4, 4, WS, SCALESIM), 1, 1, 1),
            "convention is scalesim, and only the RTL is played cycle by cycle",
        ),
    ],
)
def test_what_cannot_be_is_refused(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        call()
