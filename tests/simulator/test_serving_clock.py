"""The simulated clock beside queueing theory and schedules worked out by hand, with step times that are trivial."""

import random
from dataclasses import dataclass

import pytest

from simulator.serving import End, Limits, Request, Step
from simulator.serving.clock import Link, Server
from simulator.serving.metrics import figures, quantile
from simulator.serving.records import Log
from simulator.units import PS_PER_SECOND

LIMITS = Limits(max_batch=8, max_tokens=64, context=1000, block_size=4, blocks=1000)


@dataclass
class Constant:
    """Every step takes *step* picoseconds; *several*: take many at once where that is allowed."""

    step: int
    several: bool = True

    def time(self, step: Step) -> int:
        assert step.tokens
        return self.step

    def run(self, step: Step, most: int, until: int) -> tuple[int, int]:
        count = min(most, max(1, -(-until // self.step))) if self.several else 1
        return count, count * self.time(step)


class Growing(Constant):
    """A step takes longer with its tokens and contexts, so that runs of many steps are put to the test."""

    def time(self, step: Step) -> int:
        return self.step + 3 * step.tokens + sum(each.computed for each in step.decodes)

    def run(self, step: Step, most: int, until: int) -> tuple[int, int]:
        count, total = 0, 0
        while count < (most if self.several else 1) and (not count or total < until):
            total += self.time(step) + count * len(step.decodes)
            count += 1
        return count, total


def serve(limits: Limits, timer: Constant, requests: list[Request], **how: object) -> Log:
    return Server(limits, timer, **how).serve(requests)  # type: ignore[arg-type]


def test_one_request_alone() -> None:
    # 10 ps a step: the first token after one, each of the other four after one more.
    log = serve(LIMITS, Constant(10), [Request(0, 7, 20, 5)])
    (only,) = log.served
    assert (only.ttft, only.tpot, only.latency, only.end, only.reason) == (10, 10.0, 50, 57, End.LENGTH)
    assert log.tracks[0].busy == 50


def test_a_long_prompt_takes_as_many_steps_as_it_has_chunks() -> None:
    # 150 tokens in chunks of 64: 64 + 64 + 22, three steps to the first token.
    log = serve(LIMITS, Constant(10), [Request(0, 0, 150, 2)])
    assert [each.ttft for each in log.served] == [30]


def test_a_server_of_one_request_at_a_time_is_an_m_d_1_queue() -> None:
    # One step a request of S = 1 s at rate 0.6/s: load rho = 0.6, wait rho S / (2 (1 - rho)) = 0.75 s in the mean.
    draw, clock, requests = random.Random(3), 0.0, []
    for id in range(40_000):
        clock += draw.expovariate(0.6)
        requests.append(Request(id, round(clock * PS_PER_SECOND), 1, 1))
    limits = Limits(max_batch=1, max_tokens=1, context=8, block_size=4, blocks=4)
    log = serve(limits, Constant(PS_PER_SECOND), requests)
    mean = sum(each.ttft for each in log.served) / len(log.served) / PS_PER_SECOND
    assert mean == pytest.approx(1.75, rel=0.03)
    assert figures(log, limits).busy == pytest.approx(0.6, rel=0.02)


def test_littles_law() -> None:
    # Requests in the system = rate of arrivals x mean time in it; seen at the starts of steps of 1 ms.
    draw, clock, requests = random.Random(5), 0.0, []
    for id in range(3000):
        clock += draw.expovariate(40)
        requests.append(Request(id, round(clock * PS_PER_SECOND), draw.randint(1, 60), draw.randint(1, 200)))
    log = serve(LIMITS, Constant(10**9), requests)
    track, end = log.tracks[0], log.end
    inside = sum(t * (w + r) for t, w, r in zip(track.duration, track.waiting, track.running, strict=True)) / end
    mean = sum(each.latency for each in log.served) / len(log.served)
    assert inside == pytest.approx(len(log.served) / end * mean, rel=0.03)


def test_saturated_throughput_is_batch_over_step_time() -> None:
    # 80 requests of 10 tokens in batches of 8: ten waves of ten steps, 800 tokens in 100 steps of 1 ms.
    log = serve(LIMITS, Constant(10**9), [Request(id, 0, 1, 10) for id in range(80)])
    found = figures(log, LIMITS)
    assert found.steps == 100
    assert found.tokens_per_second == pytest.approx(8 / 1e-3)
    assert found.requests_per_second == pytest.approx(8 / 1e-3 / 10)
    assert found.batch == pytest.approx(8)


@pytest.mark.parametrize("seed", range(6))
def test_many_steps_at_once_serve_every_request_at_the_same_moment(seed: int) -> None:
    draw = random.Random(seed)
    limits = Limits(draw.randint(2, 8), draw.randint(8, 64), 300, draw.randint(1, 8), 120, bool(seed % 2))
    requests, clock = [], 0
    for id in range(200):
        clock += draw.randint(0, 3000)
        requests.append(Request(id, clock, draw.randint(1, 90), draw.randint(1, 90), prefix=("p", 20)))
    logs = [serve(limits, Growing(100, several), requests) for several in (True, False)]
    assert logs[0].served == logs[1].served
    assert (logs[0].preemptions, logs[0].rejected) == (logs[1].preemptions, logs[1].rejected)
    assert len(logs[0].tracks[0].start) < len(logs[1].tracks[0].start)


def test_nothing_is_lost_when_blocks_are_short() -> None:
    limits = Limits(max_batch=8, max_tokens=32, context=100, block_size=4, blocks=20)
    draw = random.Random(1)
    requests = [Request(id, id, draw.randint(1, 120), draw.randint(1, 60)) for id in range(300)]
    log = serve(limits, Constant(10), requests)
    assert log.preemptions > 0
    assert len(log.served) + sum(log.rejected.values()) == 300
    for each in log.served:
        asked = requests[each.id]
        assert each.generated == min(asked.output, 100 - asked.prompt + 1)


def test_two_pools_and_the_link_between() -> None:
    # Reading takes one step of 10 ps.  20 positions of 3 B cross at 4 B/ps = 15 ps, after 5 ps of latency: the second
    # pool starts at 30 and gives the other two tokens at 40 and 50.  The KV cache of request 1, read in the same step,
    # follows on the same link: 45 ps after the step, so it arrives at 60 with its 20 more positions.
    link = Link(bandwidth=4 * PS_PER_SECOND, latency=5, position=3)
    requests = [Request(0, 0, 20, 3), Request(1, 0, 40, 3)]
    log = serve(LIMITS, Constant(10), requests, readers=1, writers=1, link=link)
    found = {each.id: each for each in log.served}
    assert (found[0].first, found[0].end) == (10, 50)
    assert (found[1].first, found[1].end) == (10, 80)
    assert log.transferred == 60 * 3
    assert log.crossing == 15 + 30
    assert list(log.waits) == [15 + 5, 15 + 30 + 5]  # the second waits for the first to cross
    assert [track.name for track in log.tracks] == ["prefill 0", "decode 0"]
    assert log.interconnect == 20 + 10  # before the first decode, and between the end of request 0 and the second


def test_a_request_of_one_token_needs_no_second_pool() -> None:
    link = Link(bandwidth=1, latency=0, position=1)
    log = serve(LIMITS, Constant(10), [Request(0, 0, 20, 1)], readers=1, writers=1, link=link)
    assert (log.served[0].end, log.transferred) == (10, 0)


def test_requests_go_to_the_engine_with_less_to_do() -> None:
    log = serve(LIMITS, Constant(10), [Request(id, 0, 4, 5) for id in range(4)], readers=2)
    assert [max(track.running) for track in log.tracks] == [2, 2]


def test_accepted_proposals_shorten_the_output() -> None:
    # 11 tokens: one from the prompt, then two steps of 4 accepted proposals and the model's own token.
    limits = Limits(max_batch=8, max_tokens=64, context=1000, block_size=4, blocks=1000, draft=4)
    log = serve(limits, Constant(10), [Request(0, 0, 4, 11)], gains=lambda step: [5] * len(step.decodes))
    assert [(each.end, each.generated) for each in log.served] == [(30, 11)]


def test_rejected_requests_are_counted_by_reason() -> None:
    log = serve(LIMITS, Constant(10), [Request(0, 0, 1001, 1), Request(1, 0, 1000, 1)])
    assert dict(log.rejected) == {"its prompt is longer than the context": 1}
    assert [each.id for each in log.served] == [1]


def test_quantiles_between_neighbours() -> None:
    assert quantile([10, 20], 50) == 15
    assert quantile([], 99) == 0
