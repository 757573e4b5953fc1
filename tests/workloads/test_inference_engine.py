"""The engine says the same whatever the schedule: as the model without batch, cache, pages and preemption."""

from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import UsageError
from simulator.serving import Limits, Rejected
from tests.workloads.gpt_configs import FAMILIES, LLAMA, MOE, make
from workloads.gpt.model import Model
from workloads.inference.cache import make_pages
from workloads.inference.engine import Completion, Engine
from workloads.inference.model import Runner
from workloads.inference.sampling import Sampling, sample
from workloads.inference.steps import logits_of, ragged

BLOCK = 4
CONTEXT = 64  # of the small models


@cache
def model(name: str) -> Model:
    """In fp64, so that no two logits are closer than the rounding of another order; experts know fp32 only."""
    made = make(FAMILIES[name]).eval()
    return made if name == MOE.name else made.double()


@cache
def alone(name: str, prompt: tuple[int, ...], count: int) -> list[int]:
    """Greedy tokens of the model: every step reads the whole text again."""
    tokens = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            tokens.append(int(model(name)(torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[len(prompt) :]


def engine(name: str = LLAMA.name, **limits: Any) -> Engine:
    sizes = {"max_batch": 4, "max_tokens": 16, "context": CONTEXT, "block_size": BLOCK, "blocks": 64} | limits
    return Engine(Runner(model(name)), Limits(**sizes))


def prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(61, (length,), generator=generator).tolist())


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_says_what_it_says_alone(name: str) -> None:
    serving = engine(name, max_batch=3, max_tokens=7, blocks=18)
    asked = [(prompt(length, length), count) for length, count in ((1, 9), (30, 12), (17, 5), (8, 20), (3, 1))]
    for ids, count in asked:
        serving.add(ids, count)
    done = serving.run()
    serving.scheduler.check()
    assert [done[n].tokens for n in range(len(asked))] == [alone(name, *each) for each in asked]


REQUESTS = st.lists(
    st.tuples(st.integers(1, 24), st.integers(1, 12), st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=8
)


@settings(max_examples=30, deadline=None)
@given(
    requests=REQUESTS, max_batch=st.integers(1, 6), max_tokens=st.integers(1, 20), blocks=st.integers(9, 24),
    prefix_cache=st.booleans(),
)  # fmt: skip
def test_tokens_do_not_depend_on_the_schedule(
    requests: list[tuple[int, int, int, int]], max_batch: int, max_tokens: int, blocks: int, prefix_cache: bool
) -> None:
    """Prompts of three texts share beginnings; each request comes so many steps after the one before."""
    serving = engine(max_batch=max_batch, max_tokens=max_tokens, blocks=blocks, prefix_cache=prefix_cache)
    for length, count, text, wait in requests:
        serving.add(prompt(24, text)[:length], count)
        for _ in range(wait):
            serving.step()
            serving.scheduler.check()
    done = serving.run()
    serving.scheduler.check()
    assert serving.scheduler.pool.held == 0
    assert not serving.rejected
    for number, (length, count, text, _) in enumerate(requests):
        assert done[number].tokens == alone(LLAMA.name, prompt(24, text)[:length], count)


def test_preempted_then_prefix_hit() -> None:
    # Blocks of 4.  The first request grows to 12 + 12 = 24 positions, 6 blocks, the second to 8 + 12, 5; there are 7.
    # The younger is preempted; its full blocks stay known until they are needed, and it finds what is left of them.
    serving = engine(blocks=7)
    first, second = prompt(12, 1), prompt(8, 2)
    serving.add(first, 12)
    serving.add(second, 12)
    done = serving.run()
    serving.scheduler.check()
    assert serving.scheduler.preemptions >= 1
    assert done[1].preemptions >= 1
    assert done[1].cached >= BLOCK  # positions that were not computed again
    assert [done[0].tokens, done[1].tokens] == [alone(LLAMA.name, first, 12), alone(LLAMA.name, second, 12)]


def test_a_known_prompt_is_read_from_the_prefix_cache() -> None:
    serving = engine(blocks=64)
    for _ in range(2):
        serving.add(prompt(18), 3)
        serving.run()
    # 18 positions: four full blocks of 4, and the rest is computed again.
    assert (serving.done[0].cached, serving.done[1].cached) == (0, 16)
    assert serving.done[0].tokens == serving.done[1].tokens == alone(LLAMA.name, prompt(18), 3)
    starts = [record.slices[0][1:3] for record in serving.records if record.slices[0][0] == 1]
    assert starts[0] == (16, 2)


def test_records_say_what_each_step_computed() -> None:
    serving = engine(max_tokens=6)
    serving.add(prompt(8), 2)
    serving.run()
    # A prompt of 8 in chunks of 6 and 2; the second gives the first token, one decode step the other.
    assert [record.slices for record in serving.records] == [
        ((0, 0, 6, False),),
        ((0, 6, 2, True),),
        ((0, 8, 1, True),),
    ]
    assert all(record.seconds > 0 and not record.replayed for record in serving.records)


def test_a_stop_token_ends_a_request() -> None:
    said = alone(LLAMA.name, prompt(5), 8)
    stop = said[3]
    serving = engine()
    serving.add(prompt(5), 8, stop=[stop])
    (done,) = serving.run().values()
    assert (done.tokens, done.end) == (said[: said.index(stop) + 1], "stop")


def test_what_can_never_be_served_is_rejected_and_the_rest_goes_on() -> None:
    serving = engine(blocks=4)
    too_long = serving.add(prompt(60) + prompt(5), 1)
    too_many = serving.add(prompt(12), 8)  # 19 positions, 5 blocks
    good = serving.add(prompt(5), 2)
    assert serving.rejected == {too_long: Rejected.CONTEXT, too_many: Rejected.BLOCKS}
    assert serving.run() == {good: Completion(alone(LLAMA.name, prompt(5), 2), "length")}


def test_sampled_tokens_depend_on_the_seed_and_not_on_the_company() -> None:
    hot = [Sampling(temperature=1.5, top_p=0.9, seed=seed) for seed in range(4)]

    def said(**limits: Any) -> list[list[int]]:
        serving = engine(**limits)
        for way in hot:
            serving.add(prompt(9), 10, way)
        done = serving.run()
        return [done[n].tokens for n in range(len(hot))]

    together = said()
    assert together == said(max_batch=1) == said(max_tokens=3, blocks=9)
    assert len({tuple(tokens) for tokens in together}) > 1


def test_sampling_follows_the_distribution() -> None:
    # Probabilities 1/2, 1/4, 1/8, 1/8; the smallest set that holds 0.7 is the first two: 2/3 and 1/3 of it.
    logits = torch.tensor([0.5, 0.25, 0.125, 0.125]).log().repeat(3000, 1)
    free = sample(logits, [Sampling(1.0)] * 3000, range(3000))
    cut = sample(logits, [Sampling(1.0, top_p=0.7)] * 3000, range(3000))
    # Three standard deviations of a share of one half in 3000 draws: 3 sqrt(1 / 4 / 3000) = 0.027.
    assert [free.count(n) / 3000 for n in range(4)] == pytest.approx([0.5, 0.25, 0.125, 0.125], abs=0.028)
    assert [cut.count(n) / 3000 for n in range(4)] == pytest.approx([2 / 3, 1 / 3, 0, 0], abs=0.028)
    # Twice the temperature: square roots of the probabilities, 0.354, 0.25, 0.177, 0.177 over their sum.
    hot = sample(logits, [Sampling(2.0)] * 3000, range(3000))
    assert hot.count(0) / 3000 == pytest.approx(0.5**0.5 / (0.5**0.5 + 0.5 + 2 * 0.125**0.5), abs=0.028)
    assert sample(logits[:2], [Sampling(), Sampling(1e-6)], [0, 0]) == [0, 0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": -1.0}, "temperature -1: needs 0 or more"),
        ({"temperature": float("nan")}, "temperature nan: needs 0 or more"),
        ({"top_p": 0.0}, "top-p 0: needs more than 0 and at most 1"),
        ({"seed": -1}, "seed -1: needs 0 or more"),
    ],
)
def test_sampling_refuses(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Sampling(**wrong)
    assert str(caught.value) == message


def test_a_context_beyond_the_models_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        engine(context=65)
    assert str(caught.value) == "context 65: small-llama was built for 64"


def test_a_token_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        engine().add([3, 61], 1)
    assert str(caught.value) == "token 61 in the prompt: small-llama knows 0 to 60"


def test_no_blocks_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        make_pages(LLAMA, 0, 4, torch.float32, torch.device("cpu"))
    assert str(caught.value) == "KV cache: 0 blocks; at least 1 is needed"


def test_a_ragged_step_is_each_sequence_alone() -> None:
    """The compiled attention of a CPU, in fp32, and torch's, in fp64, over the same pages."""
    runners = [Runner(make(LLAMA)), Runner(make(LLAMA).double())]
    batch = ragged([(40, 1), (7, 1), (20, 1)], 40, 4, torch.device("cpu"), vocab=61)
    generator = torch.Generator().manual_seed(3)
    noise = [torch.randn(40, 4, 2, 8, generator=generator, dtype=torch.float64) for _ in range(4)]
    found = [
        runner(batch, [(noise[0].to(dtype), noise[1].to(dtype)), (noise[2].to(dtype), noise[3].to(dtype))])
        for runner, dtype in zip(runners, (torch.float32, torch.float64), strict=True)
    ]
    torch.testing.assert_close(found[0].double(), found[1], rtol=1e-4, atol=1e-4)


def test_logits_of_every_position() -> None:
    ids = torch.tensor(prompt(11))
    made = model(LLAMA.name)
    with torch.no_grad():
        wanted = made.train()(ids[None])[0]
        made.eval()
    torch.testing.assert_close(logits_of(Runner(made), ids), wanted)
