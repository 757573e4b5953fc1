"""Messages over links: times worked out by hand, contention, and one rank that stands for all."""

from collections.abc import Sequence

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import DeadlockError
from simulator.network import Network, Send, Wire, play

GB = 10**9
NS = 1_000


def wire(name: str, bandwidth: int = GB, latency: int = 0, overhead: int = 0) -> Wire:
    return Wire(name, "link", bandwidth, latency, overhead)


def test_a_message_cuts_through_two_links() -> None:
    # 1000 B at 1 GB/s take 1000 ns; the head is 100 ns on each link: 1000 + 2 x 100, not 2 x 1000 + 2 x 100
    way = (wire("a", latency=100 * NS), wire("b", latency=100 * NS))
    played = play({0: [Send(1, 1000)], 1: []}, lambda source, target: way)
    assert played.time == 1_200 * NS
    assert {name: (load.size, load.busy) for name, load in played.loads.items()} == {
        "a": (1000, 1_000 * NS),
        "b": (1000, 1_000 * NS),
    }


def test_the_slower_link_of_a_way_decides() -> None:
    # 1000 B: 1000 ns on the first, 2000 ns on the second
    way = (wire("fast"), wire("slow", bandwidth=GB // 2))
    assert play({0: [Send(1, 1000)], 1: []}, lambda source, target: way).time == 2_000 * NS


def test_overhead_holds_the_senders_port_only() -> None:
    # two messages of 1000 B: (50 + 1000) twice on the first link, and 10 ns on the way; the second link adds 10 ns
    way = (wire("a", latency=10 * NS, overhead=50 * NS), wire("b", latency=10 * NS, overhead=50 * NS))
    assert play({0: [Send(1, 1000), Send(1, 1000)], 1: []}, lambda source, target: way).time == 2_120 * NS


def test_a_link_serves_in_the_order_of_arrival() -> None:
    #   rank 0 |==1000==|                at 1000
    #   rank 1 | 300 ns of work |==500==| comes to the link at 300 and waits until 1000: 1500
    played = play({0: [Send(2, 1000)], 1: [Send(2, 500, delay=300 * NS)]}, lambda source, target: (wire("shared"),))
    assert played.arrived == {(0, 0): 1_000 * NS, (1, 0): 1_500 * NS}


def ring(n: int, size: int, first: int = 0) -> dict[int, list[Send]]:
    """n - 1 steps around ranks first, first + 1, ...: an all-gather."""
    return {
        first + rank: [
            Send(first + (rank + 1) % n, size, ((first + (rank - 1) % n, step - 1),) if step else ())
            for step in range(n - 1)
        ]
        for rank in range(n)
    }


def neighbours(source: int, target: int) -> Sequence[Wire]:
    return (wire(f"{source}>{target}"),)


def test_two_rings_that_share_one_link_take_turns_on_it() -> None:
    # Rings 0-1-2 and 3-4-5 of two steps of 100 ns; 2>0 and 5>3 are one link.  Step 1: the second ring's message waits
    # for the first's on the shared link, 3 has it at 200 and passes it on to 4: 300.  Step 2 of the shared link: 2 has
    # 1's message at 100 and is next, after 5's: 200 to 300; then 5's: 300 to 400.  Alone each would take 200.
    shared = wire("shared")

    def route(source: int, target: int) -> Sequence[Wire]:
        return (shared,) if (source, target) in ((2, 0), (5, 3)) else neighbours(source, target)

    assert play(ring(3, 100), route).time == 200 * NS
    assert play(ring(3, 100) | ring(3, 100, first=3), route).time == 400 * NS


def test_programs_started_at_different_times_share_links() -> None:
    # The first message holds the link until 1000 ns; the second program starts at 400 and ends at 1500.
    env = simpy.Environment()
    network = Network(env)
    ended = []

    def unit(start: int, size: int) -> simpy.events.ProcessGenerator:
        yield env.timeout(start)
        yield network.start({0: [Send(1, size)]}, neighbours)
        ended.append(env.now)

    env.process(unit(0, 1000))
    env.process(unit(400 * NS, 500))
    env.run()
    assert ended == [1_000 * NS, 1_500 * NS]


def test_work_on_a_rank_crosses_no_link() -> None:
    played = play({0: [Send(0, 0, delay=70 * NS), Send(0, 0, ((0, 0),), delay=5 * NS)]}, neighbours)
    assert (played.time, played.loads, played.busiest) == (75 * NS, {}, None)


def test_nothing_to_do_takes_no_time() -> None:
    assert play({0: []}, neighbours).time == 0


@pytest.mark.parametrize(
    ("programs", "message"),
    [
        ({0: [Send(1, 1, ((1, 3),))], 1: []}, "message 0 of rank 0 waits for message 3 of rank 1"),
        ({0: [Send(1, 1, ((1, 0),))], 1: [Send(0, 1, ((0, 0),))]}, "messages wait for each other in a circle"),
    ],
)
def test_who_waits_for_whom_is_said(programs: dict[int, list[Send]], message: str) -> None:
    with pytest.raises(DeadlockError, match=f"^nothing can be sent any more at 0 ps: {message}$"):
        play(programs, neighbours)


@given(st.integers(2, 9), st.integers(1, 10_000), st.integers(0, 1_000))
def test_one_rank_stands_for_all_of_a_ring(n: int, size: int, latency: int) -> None:
    every = play(ring(n, size), lambda source, target: (wire(f"{source}", latency=latency),))
    one = play({0: ring(n, size)[0]}, lambda source, target: (wire("next", latency=latency),), folded=True)
    assert one.time == every.time
    assert every.events == n * one.events


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 5_000)), min_size=1, max_size=30))
def test_no_schedule_beats_the_busiest_link(messages: list[tuple[int, int, int]]) -> None:
    programs: dict[int, list[Send]] = {rank: [] for rank in range(4)}
    for source, target, size in messages:
        programs[source].append(Send(target, size))
    played = play(programs, lambda source, target: (wire(f"up {source}"), wire(f"down {target}")))
    assert played.time >= max((load.busy for load in played.loads.values()), default=0)
    sent = sum(size for source, target, size in messages if source != target)
    assert sum(load.size for name, load in played.loads.items() if str(name).startswith("up")) == sent
