"""Collectives as a whole on shared links: alone, side by side, and on links of different kinds."""

import simpy
from hypothesis import given
from hypothesis import strategies as st

from simulator.links import Demand, Links


def ends(*demands: tuple[int, Demand]) -> list[int]:
    """When each of (start, demand) is done."""
    env = simpy.Environment()
    links, done = Links(env), [0] * len(demands)

    def unit(number: int, start: int, demand: Demand) -> simpy.events.ProcessGenerator:
        yield env.timeout(start)
        yield from links.carry(demand)
        done[number] = int(env.now)

    for number, (start, demand) in enumerate(demands):
        env.process(unit(number, start, demand))
    env.run()
    return done


def test_alone_a_demand_takes_its_fixed_time_and_its_busiest_link() -> None:
    assert ends((0, Demand(50, {"up": 100, "down": 80}))) == [150]
    assert ends((0, Demand(50))) == [50]


def test_two_on_one_link_share_it() -> None:
    # The first has the link to itself from 0 to 50 and half of it from then on: 50 left take 100.  The second then has
    # 50 left as well, alone: 200.
    assert ends((0, Demand(0, {"up": 100})), (40, Demand(10, {"up": 100}))) == [150, 200]


def test_latency_holds_no_link_and_other_links_are_not_shared() -> None:
    assert ends((0, Demand(0, {"up": 100})), (0, Demand(100, {"up": 100}))) == [100, 200]
    assert ends((0, Demand(0, {"nvlink": 100})), (0, Demand(0, {"infiniband": 100}))) == [100, 100]


@given(st.integers(0, 10**9), st.dictionaries(st.sampled_from("abc"), st.integers(1, 10**12)))
def test_alone_is_what_it_takes(fixed: int, busy: dict[str, int]) -> None:
    demand = Demand(fixed, busy)
    (end,) = ends((0, demand))
    assert abs(end - demand.alone) <= 1  # a channel's clock is a float
