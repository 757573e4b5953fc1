"""Pipeline schedules against closed forms, values worked out by hand, and the longest path of networkx."""

from fractions import Fraction

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import DeadlockError, UsageError
from simulator.parallel.schedule import Order, Times, Timetable, Work, in_flight, orders, timetable


def test_1f1b_of_two_stages_by_hand() -> None:
    # forward 10, backward 20, sending 1; two microbatches
    #   stage 0  F0 0-10  F1 10-20              B0 42-62  B1 72-92
    #   stage 1           F0 11-21  B0 21-41    F1 41-51  B1 51-71
    found = timetable(orders("1f1b", 2, 2), [Times(10, 20, send=1)] * 2)
    assert found.orders[0] == [Work(False, 0, 0), Work(False, 0, 1), Work(True, 0, 0), Work(True, 0, 1)]
    assert found.start == [[0, 10, 42, 72], [11, 21, 41, 51]]
    assert found.end == [[10, 20, 62, 92], [21, 41, 51, 71]]
    assert found.makespan == 92


def test_a_sender_that_is_held_computes_later() -> None:
    # as above, but stage 0 begins F1 at 11, and stage 1 begins F1 at 42, after B0 has gone; B1 52-72 arrives at 73
    found = timetable(orders("1f1b", 2, 2), [Times(10, 20, send=1, holds=True)] * 2)
    assert found.start == [[0, 11, 42, 73], [11, 21, 42, 52]]


def test_the_last_backward_pass_may_take_longer() -> None:
    found = timetable(orders("gpipe", 1, 3), [Times(10, 20, last=50)])
    assert found.makespan == 3 * 10 + 2 * 20 + 50


@given(
    st.sampled_from([("1f1b", 1), ("gpipe", 1), ("interleaved", 2), ("interleaved", 3)]),
    st.integers(1, 6),
    st.integers(1, 5),
)
def test_bubble_of_parts_that_are_alike(kind: tuple[str, int], stages: int, rounds: int) -> None:
    schedule, chunks = kind
    microbatches = stages * rounds
    found = timetable(orders(schedule, stages, microbatches, chunks), [Times(70, 110)] * (stages * chunks))
    idle = Fraction(found.makespan - microbatches * chunks * 180, microbatches * chunks * 180)
    assert idle == Fraction(stages - 1, chunks * microbatches)
    assert found.bubble == pytest.approx(float(idle))


@given(st.integers(1, 8), st.integers(1, 20))
def test_microbatches_in_flight(stages: int, microbatches: int) -> None:
    assert [in_flight(order) for order in orders("gpipe", stages, microbatches)] == [microbatches] * stages
    expected = [min(microbatches, stages - rank) for rank in range(stages)]
    assert [in_flight(order) for order in orders("1f1b", stages, microbatches)] == expected


@given(st.integers(2, 6), st.integers(2, 4), st.integers(2, 4))
def test_interleaving_holds_what_the_paper_says(stages: int, chunks: int, rounds: int) -> None:
    # Korthikanti et al. (arXiv 2205.05198), eq. 5: (1 + (p - 1) / (p v)) of p microbatches of all layers of a rank
    order = orders("interleaved", stages, stages * rounds, chunks)[0]
    assert in_flight(order) == stages * chunks + stages - 1


TIME = st.integers(1, 50)
PART = st.builds(Times, TIME, TIME, st.one_of(st.none(), TIME), st.integers(0, 9), st.booleans())


@given(
    st.data(), st.sampled_from([("1f1b", 1), ("gpipe", 1), ("interleaved", 2)]), st.integers(1, 4), st.integers(1, 3)
)
def test_no_pass_begins_before_what_it_needs_nor_later(
    data: st.DataObject, kind: tuple[str, int], stages: int, rounds: int
) -> None:
    schedule, chunks = kind
    microbatches = stages * rounds
    parts = data.draw(st.lists(PART, min_size=stages * chunks, max_size=stages * chunks))
    found = timetable(orders(schedule, stages, microbatches, chunks), parts)
    assert found.makespan == _longest_path(found, parts, microbatches)


def _longest_path(found: Timetable, parts: list[Times], microbatches: int) -> int:
    """Length of the longest way through passes joined by their order on a rank and by what they send."""
    stages = len(found.orders)
    graph: nx.DiGraph[tuple[int, int, bool] | str] = nx.DiGraph()
    for rank, order in enumerate(found.orders):
        keys = [(work.chunk * stages + rank, work.microbatch, work.backward) for work in order]
        for position, (key, work) in enumerate(zip(keys, order, strict=True)):
            part, microbatch, backward = key
            took = parts[part].of(work, microbatches)
            target = part - 1 if backward else part + 1
            sent = parts[min(part, target)].send if stages > 1 and 0 <= target < len(parts) else 0
            ways: dict[tuple[int, int, bool] | str, int] = {"end": took}
            if position + 1 < len(keys):
                ways[keys[position + 1]] = took + (sent if parts[part].holds else 0)
            if not backward:  # a part's own backward pass
                ways.setdefault((part, microbatch, True), took)
            if 0 <= target < len(parts):
                ways[target, microbatch, backward] = took + sent  # with one stage also the next in order: as long
            graph.add_edges_from((key, other, {"ps": length}) for other, length in ways.items())
    return int(nx.dag_longest_path_length(graph, weight="ps"))


def test_who_waits_for_whom() -> None:
    wrong: list[Order] = [
        [Work(True, 0, 0), Work(False, 0, 0)],  # its backward pass first
        [Work(False, 0, 0), Work(True, 0, 0)],
    ]
    message = (
        "nothing can run any more: stage 0 waits at backward 0 of chunk 0 for forward 0 of chunk 0 on stage 0; "
        "stage 1 waits at forward 0 of chunk 0 for forward 0 of chunk 0 on stage 0"
    )
    with pytest.raises(DeadlockError) as error:
        timetable(wrong, [Times(1, 1)] * 2)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("1f1b ", 2, 2), "unknown schedule '1f1b '; did you mean '1f1b'? (known: 1f1b, gpipe, interleaved)"),
        (("1f1b", 0, 2), "0 stages, 2 microbatches, 1 chunks: each must be at least 1"),
        (("gpipe", 2, 2, 2), "schedule gpipe has one chunk a stage, got 2; interleaved has more"),
        (("interleaved", 4, 6, 2), "interleaved: 6 microbatches are no multiple of the 4 pipeline stages"),
    ],
)
def test_schedules_that_do_not_exist(arguments: tuple[str, int, int], message: str) -> None:
    with pytest.raises(UsageError) as error:
        orders(*arguments)
    assert str(error.value) == message


def test_the_work_does_not_grow_with_anything_but_parts_and_microbatches() -> None:
    plan = orders("1f1b", 8, 32)
    assert sum(map(len, plan)) == 2 * 8 * 32
