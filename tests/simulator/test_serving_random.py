"""Random schedules: nothing is lost, and many steps at once are the same steps."""

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.serving import End, Limits, Request, Scheduler, Sequence, Step
from simulator.serving.steady import finish_many, repeats


class _Random:
    """A client that adds, steps and aborts at random, and keeps its own account of what was asked for."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        draw = self.random.randint
        self.limits = Limits(
            max_batch=draw(1, 6),
            max_tokens=draw(4, 24),
            context=draw(8, 40),
            block_size=draw(1, 5),
            blocks=draw(4, 24),
            prefix_cache=self.random.random() < 0.7,
            draft=self.random.choice((0, 0, 0, 2)),
        )
        self.scheduler = Scheduler(self.limits)
        self.asked: dict[int, Request] = {}
        self.fate: Counter[int] = Counter()
        self.tokens = self.steps = 0

    def add(self) -> None:
        draw, id = self.random.randint, len(self.asked)
        prompt = draw(1, 44)
        ids = tuple(draw(0, 1) for _ in range(prompt)) if not self.limits.draft and self.random.random() < 0.5 else None
        prefix = (self.random.choice("ab"), draw(1, 20)) if self.random.random() < 0.5 else None
        self.asked[id] = Request(id, 0, prompt, draw(1, 20), ids, frozenset({7}), prefix)
        sent = prompt if ids is None and self.random.random() < 0.1 else 0
        if self.scheduler.add(self.asked[id], sent=sent, generated=1 if sent and self._has_more(id) else 0):
            self.fate[id] += 1

    def _has_more(self, id: int) -> bool:
        return min(self.asked[id].output, self.limits.context - self.asked[id].prompt + 1) > 1

    def step(self) -> None:
        step = self.scheduler.schedule()
        if step is None:
            return
        self.steps += 1
        assert step.tokens <= self.limits.max_tokens
        assert len(list(step.slices)) <= self.limits.max_batch
        if self.random.random() < 0.05 and self.scheduler.running:
            self._abort(self.random.choice(self.scheduler.running).id)
        ended = self._finish(step)
        for each in ended:
            self.fate[each.id] += 1
            self._check_end(each)
        self.scheduler.check()

    def _finish(self, step: Step) -> list[Sequence]:
        slices = list(step.slices)
        if self.limits.draft:
            return self.scheduler.finish(step, gained=[self.random.randint(1, 3) for _ in step.decodes])
        if any(piece.sequence.tokens is None for piece in slices):
            for piece in slices:  # lengths only for this step's bookkeeping; ids appended as the engine would
                if piece.samples and piece.sequence.tokens is not None:
                    piece.sequence.tokens.append(self.random.randint(0, 1))
            return self.scheduler.finish(step)
        return self.scheduler.finish(step, [self.random.choice((0, 0, 1, 1, 7)) for each in slices if each.samples])

    def _abort(self, id: int) -> None:
        assert self.scheduler.abort(id)
        self.fate[id] += 1

    def _check_end(self, each: Sequence) -> None:
        request = each.request
        self.tokens += each.generated
        if each.end is End.LENGTH:
            assert each.generated == request.output
        elif each.end is End.CONTEXT:
            assert each.generated == self.limits.context - request.prompt + 1 < request.output
        else:
            assert each.end is End.STOP
            assert each.tokens is not None
            assert each.tokens[-1] == 7
        if each.tokens is not None:
            assert len(each.tokens) == each.length


def test_random_schedules_lose_no_request_no_token_and_no_block() -> None:
    steps = 0
    for seed in range(10_000):
        client = _Random(seed)
        for _ in range(80):
            client.add() if client.random.random() < 0.4 else client.step()
        while not client.scheduler.idle:
            client.step()
        assert client.scheduler.pool.held == 0
        assert client.fate == dict.fromkeys(client.asked, 1)
        steps += client.steps
        if steps >= 10_000:
            break
    assert steps >= 10_000


def _state(scheduler: Scheduler) -> object:
    pool = scheduler.pool
    sequences = [
        (each.id, each.computed, each.generated, each.blocks, each.room, each.full, each.end)
        for each in (*scheduler.running, *scheduler.waiting)
    ]
    return sequences, pool._references, pool._blank, list(pool._idle), pool._name, pool._block


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 2**32), st.booleans())
def test_many_steps_at_once_are_the_same_steps(seed: int, cache: bool) -> None:
    draw = random.Random(seed).randint
    limits = Limits(draw(1, 6), draw(4, 24), draw(20, 80), draw(1, 5), draw(20, 40), cache)
    one, many = Scheduler(limits), Scheduler(limits)
    for id in range(draw(1, 12)):
        request = Request(id, 0, draw(1, 20), draw(1, 30), prefix=("p", draw(1, 12)) if draw(0, 1) else None)
        assert one.add(request) == many.add(request)
    while step := many.schedule():
        most = repeats(many, step)
        count = draw(1, most)
        ended = [each.id for each in finish_many(many, step, count)]
        alone = []
        for _ in range(count):
            single = one.schedule()
            assert single is not None
            alone += [each.id for each in one.finish(single)]
        assert ended == alone
        assert _state(one) == _state(many)
        many.check()
    assert one.idle
