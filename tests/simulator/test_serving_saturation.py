"""The saturation point of engines and of the link between two pools, worked out by hand."""

import pytest

from simulator.serving import Request
from simulator.serving.clock import Link
from simulator.serving.saturation import Saturation, engine_rate, link_rate
from simulator.units import PS_PER_SECOND
from tests.simulator.test_serving_clock import LIMITS, Constant, serve


def test_engines_are_counted_while_requests_wait() -> None:
    # 80 requests in waves of 8, one every 10 ms: 800/s.  The last that waits does so until 80 ms, after 8 waves; of
    # their 64 ends the first 6 are left out, so 57 more follow the first one counted (at 10 ms) until 80 ms.
    log = serve(LIMITS, Constant(10**9), [Request(id, 0, 1, 10) for id in range(80)])
    rate, least = engine_rate(log)
    assert rate == pytest.approx(57 / 70e-3)
    assert not least


def test_too_few_requests_give_a_lower_bound() -> None:
    # Five of them fit into one batch: done after ten steps of 1 ms, and three more would have been as well.
    log = serve(LIMITS, Constant(10**9), [Request(id, 0, 1, 10) for id in range(5)])
    rate, least = engine_rate(log)
    assert rate == pytest.approx(500)
    assert least


def test_a_link_carries_its_bandwidth_over_the_bytes_of_a_request() -> None:
    # 20 and 40 positions of 3 B: 90 B a request at 4 B/ps.
    link = Link(bandwidth=4 * PS_PER_SECOND, latency=5, position=3)
    requests = [Request(0, 0, 20, 3), Request(1, 0, 40, 3)]
    assert link_rate(serve(LIMITS, Constant(10), requests, writers=1, link=link), link) == pytest.approx(4e12 / 90)
    alone = serve(LIMITS, Constant(10), [Request(0, 0, 20, 1)], writers=1, link=link)
    assert link_rate(alone, link) is None
    assert link_rate(alone, None) is None


@pytest.mark.parametrize(
    ("found", "rate", "told", "limits"),
    [
        (Saturation(30.0), 30.0, True, False),
        (Saturation(30.0, least=True), 30.0, False, False),
        (Saturation(30.0, link=7.0), 7.0, True, True),
        (Saturation(30.0, least=True, link=7.0), 7.0, True, True),  # engines do more than that, however many it is
        (Saturation(3.0, least=True, link=7.0), 3.0, False, False),
        (Saturation(30.0, link=29.0), 29.0, True, False),
    ],
)
def test_the_slower_part_is_the_limit(found: Saturation, rate: float, told: bool, limits: bool) -> None:
    assert (found.rate, found.told, found.link_limits) == (rate, told, limits)
    assert found.keeps_up(0.94 * rate)
    assert not found.keeps_up(0.96 * rate)


def test_what_can_never_be_served() -> None:
    assert Saturation(3.0).never(4)
    assert not Saturation(3.0, least=True).never(4)
    assert not Saturation(3.0, least=True, link=7.0).never(5)
    assert Saturation(3.0, least=True, link=7.0).never(8)
