"""Scheduler, blocks and prefix cache: worked by hand, and under random schedules."""

from typing import Any

import pytest

from simulator.errors import UsageError
from simulator.serving import BlockPool, End, Limits, Rejected, Request, Scheduler, Sequence, Step


def drain(scheduler: Scheduler) -> list[Sequence]:
    ended: list[Sequence] = []
    while step := scheduler.schedule():
        ended += scheduler.finish(step)
        scheduler.check()
    return ended


def shape(step: Step | None) -> list[tuple[int, int, int, bool]]:
    assert step is not None
    return [(piece.sequence.id, piece.start, piece.count, piece.samples) for piece in step.slices]


def test_decodes_first_then_chunks_within_the_budget() -> None:
    # Budget 8.  Request 0 reads its 3, request 1 the first 5 of its 10; then 0 decodes (1) and 1 reads the other 5;
    # then both decode, and 2, which came later, is read with what is left: 6 of its 7.
    scheduler = Scheduler(Limits(max_batch=4, max_tokens=8, context=64, block_size=4, blocks=16))
    for id, prompt in ((0, 3), (1, 10)):
        assert scheduler.add(Request(id, 0, prompt, output=9)) is None
    shapes = []
    for turn in range(3):
        step = scheduler.schedule()
        shapes.append(shape(step))
        assert step is not None
        scheduler.finish(step)
        if turn == 1:
            scheduler.add(Request(2, 0, 7, output=9))
    assert shapes == [
        [(0, 0, 3, True), (1, 0, 5, False)],
        [(0, 3, 1, True), (1, 5, 5, True)],
        [(0, 4, 1, True), (1, 10, 1, True), (2, 0, 6, False)],
    ]


def test_an_output_of_n_tokens_takes_one_prefill_and_n_less_one_decodes() -> None:
    scheduler = Scheduler(Limits(context=64, block_size=4, blocks=8))
    scheduler.add(Request(0, 0, prompt=5, output=4))
    counts = []
    while step := scheduler.schedule():
        counts.append(step.tokens)
        ended = scheduler.finish(step)
    assert counts == [5, 1, 1, 1]
    (only,) = ended
    assert (only.generated, only.end, only.computed) == (4, End.LENGTH, 8)
    assert scheduler.idle


def test_the_context_ends_a_sequence() -> None:
    # 8 positions: a prompt of 6 leaves two; the token after the last position needs none: 3 tokens.
    scheduler = Scheduler(Limits(context=8, block_size=4, blocks=8))
    assert scheduler.add(Request(0, 0, prompt=9, output=1)) is Rejected.CONTEXT
    assert scheduler.add(Request(1, 0, prompt=6, output=10)) is None
    assert scheduler.add(Request(2, 0, prompt=8, output=10)) is None
    assert [(each.id, each.generated, each.end) for each in drain(scheduler)] == [
        (2, 1, End.CONTEXT),
        (1, 3, End.CONTEXT),
    ]


def test_a_request_that_all_blocks_cannot_hold_is_rejected() -> None:
    # 2 blocks of 4: 8 positions; 6 + 3 tokens need 8, since the last is not stored, 6 + 4 need 9.
    scheduler = Scheduler(Limits(context=64, block_size=4, blocks=2))
    assert scheduler.add(Request(0, 0, prompt=6, output=3)) is None
    assert scheduler.add(Request(1, 0, prompt=6, output=4)) is Rejected.BLOCKS
    assert str(Rejected.BLOCKS) == "it needs more KV blocks than there are"


def test_a_stop_token_ends_a_sequence_of_the_real_engine() -> None:
    scheduler = Scheduler(Limits(context=64, block_size=4, blocks=8))
    scheduler.add(Request(0, 0, 2, 10, tokens=(5, 6), stop=frozenset({99})))
    ended: list[Sequence] = []
    for token in (7, 8, 99):
        step = scheduler.schedule()
        assert step is not None
        ended = scheduler.finish(step, tokens=[token])
    assert [(each.tokens, each.end) for each in ended] == [([5, 6, 7, 8, 99], End.STOP)]
    assert scheduler.idle


def test_preempted_then_prefix_hit() -> None:
    # 5 blocks of 4.  Requests 0 and 1 of 7 tokens take two blocks each.  At its 9th position request 0 takes the fifth;
    # 1 finds none for its own, and being the younger gives way with 7 + 2 tokens known.  Its two full blocks stay idle.
    # When 0 has ended, 1 comes back and finds both again: of its 9 tokens only the last is computed.
    scheduler = Scheduler(Limits(max_batch=2, max_tokens=32, context=64, block_size=4, blocks=5))
    scheduler.add(Request(0, 0, 7, 5, tokens=tuple(range(10, 17))))
    scheduler.add(Request(1, 0, 7, 5, tokens=tuple(range(20, 27))))
    preempted, hits = [], []
    while step := scheduler.schedule():
        preempted += [each.id for each in step.preempted]
        hits += [(piece.sequence.id, piece.start, piece.count) for piece in step.chunks]
        scheduler.finish(step, tokens=[100 + piece.sequence.id for piece in step.slices])
        scheduler.check()
    assert preempted == [1]
    assert hits == [(0, 0, 7), (1, 0, 7), (1, 8, 1)]
    assert scheduler.preemptions == 1


def test_requests_with_the_same_beginning_share_blocks() -> None:
    scheduler = Scheduler(Limits(context=64, block_size=4, blocks=16))
    common = tuple(range(8))
    scheduler.add(Request(0, 0, 9, 4, tokens=(*common, 50)))
    step = scheduler.schedule()
    assert step is not None
    scheduler.finish(step, tokens=[1])
    scheduler.add(Request(1, 0, 10, 4, tokens=(*common, 60, 61)))
    step = scheduler.schedule()
    assert shape(step) == [(0, 9, 1, True), (1, 8, 2, True)]
    first, second = scheduler.running
    assert first.blocks[:2] == second.blocks[:2]
    assert first.blocks[2] != second.blocks[2]


def test_a_whole_prompt_in_the_cache_still_computes_one_position() -> None:
    scheduler = Scheduler(Limits(context=64, block_size=4, blocks=16))
    for id in (0, 1):
        scheduler.add(Request(id, 0, 8, 1, tokens=tuple(range(8))))
        step = scheduler.schedule()
        assert step is not None
        assert [chunk.start for chunk in step.chunks] == [0 if id == 0 else 4]
        scheduler.finish(step, tokens=[3])


def test_a_shared_prefix_without_token_ids() -> None:
    scheduler = Scheduler(Limits(context=64, block_size=4, blocks=16))
    scheduler.add(Request(0, 0, 12, 1, prefix=("system prompt", 9)))
    drain(scheduler)
    scheduler.add(Request(1, 0, 12, 1, prefix=("system prompt", 9)))
    scheduler.add(Request(2, 0, 12, 1, prefix=("another", 9)))
    assert shape(scheduler.schedule()) == [(1, 8, 4, True), (2, 0, 12, True)]


def test_the_least_recently_used_block_is_evicted_first() -> None:
    pool = BlockPool(2, 4)
    first, second = pool.allocate(1), pool.allocate(1)
    pool.publish(first[0], "first")
    pool.publish(second[0], "second")
    pool.release(first)
    pool.release(second)
    pool.acquire(pool.match(["first"]))  # used again, so that "second" is now the older
    pool.release(first)
    pool.allocate(1)
    assert (pool.match(["first"]), pool.match(["second"])) == (first, [])


def test_a_block_released_twice_is_noticed() -> None:
    pool = BlockPool(2, 4)
    block = pool.allocate(1)
    pool.release(block)
    with pytest.raises(AssertionError, match=r"^block 0 is released twice"):
        pool.release(block)


def test_kv_cache_that_another_pool_computed_is_not_computed_again() -> None:
    scheduler = Scheduler(Limits(context=64, block_size=4, blocks=8))
    scheduler.add(Request(0, 0, 10, 5), sent=10, generated=1)
    step = scheduler.schedule()
    assert shape(step) == [(0, 10, 1, True)]
    assert step is not None
    scheduler.finish(step)
    (ended,) = drain(scheduler)
    assert (ended.generated, ended.cached) == (5, 10)


def test_an_abort_in_the_middle_of_a_step() -> None:
    scheduler = Scheduler(Limits(context=64, block_size=4, blocks=8))
    for id in (0, 1, 2):
        scheduler.add(Request(id, 0, 3, 2))
    step = scheduler.schedule()
    assert step is not None
    scheduler.finish(step)
    step = scheduler.schedule()
    assert step is not None
    assert scheduler.abort(1)
    assert not scheduler.abort(7)
    assert [each.id for each in scheduler.finish(step)] == [0, 2]
    scheduler.check()
    assert scheduler.pool.held == 0


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"blocks": 0}, "blocks 0: must be at least 1"),
        ({"max_batch": 0}, "max_batch 0: must be at least 1"),
        ({"draft": 8, "max_tokens": 8}, "draft 8: must be at least 0 and below max_tokens, 8"),
    ],
)
def test_limits_that_make_no_sense(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        Limits(**limits)
    assert str(error.value) == message


def test_requests_that_make_no_sense() -> None:
    with pytest.raises(UsageError) as error:
        Request(3, 0, prompt=0, output=1)
    assert str(error.value) == "request 3: 0 prompt and 1 output tokens; wanted 1 or more"
    with pytest.raises(UsageError) as error:
        Request(3, 0, prompt=2, output=1, tokens=(1,))
    assert str(error.value) == "request 3: 1 token ids for a prompt of 2"
