"""Many identical decode steps at once, with exactly the result of taking them one by one.

Between two arrivals or ends a batch only decodes: each step adds one position to each sequence.  What the steps change
beyond that are a block that becomes full and a block that is taken, both every *block_size* steps; these are applied
in the order in which single steps would.
"""

from simulator.serving.scheduler import Scheduler
from simulator.serving.sequence import Sequence, Step


def repeats(scheduler: Scheduler, step: Step) -> int:
    """How many steps like *step*, itself included, follow one another if nothing arrives.

    The last of them may end sequences.  One, where a prompt is read, a draft is checked or a waiting sequence
    could enter.
    """
    may_enter = scheduler.waiting and len(scheduler.running) < scheduler.batch
    if step.chunks or step.preempted or step.width > 1 or may_enter:
        return 1
    decodes = step.decodes
    most = min([each.most - each.generated for each in decodes])
    if _blocks(decodes, most, scheduler.limits.block_size) <= scheduler.pool.available:
        return most
    return _within_blocks(scheduler, decodes, most)


def _blocks(decodes: list[Sequence], steps: int, size: int) -> int:
    """Blocks that *steps* steps of *decodes* take beyond those of the first, which are there already."""
    return sum(
        [-((each.room - each.computed - steps) // size) for each in decodes if each.computed + steps > each.room]
    )


def _within_blocks(scheduler: Scheduler, decodes: list[Sequence], most: int) -> int:
    """The largest number of steps below *most* whose blocks are there, by bisection; the first one's are."""
    enough, lacking = 1, most
    while lacking - enough > 1:
        middle = (enough + lacking) // 2
        if _blocks(decodes, middle, scheduler.limits.block_size) <= scheduler.pool.available:
            enough = middle
        else:
            lacking = middle
    return enough


def finish_many(scheduler: Scheduler, step: Step, count: int) -> list[Sequence]:
    """Finish *step* and take *count* - 1 more like it; returns the sequences that ended with the last.

    *count* is at most `repeats(scheduler, step)`.
    """
    if count == 1:
        return scheduler.finish(step)
    start = [each.computed for each in step.decodes]
    for _, taken, index, when in sorted(_changes(step.decodes, count, scheduler.limits.block_size)):
        each = step.decodes[index]
        if taken:
            each.blocks += scheduler.pool.allocate(1)
            each.room += scheduler.limits.block_size
        else:
            each.computed = when
            scheduler.publish(each)
    ended = []
    for each, computed in zip(step.decodes, start, strict=True):
        each.computed = computed + count
        each.generated += count
        if each.generated == each.most:
            ended.append(each)
    return scheduler.retire(ended) if ended else ended


def _changes(decodes: list[Sequence], count: int, size: int) -> list[tuple[int, bool, int, int]]:
    """(step, block taken or else filled, index of the sequence, its positions then).

    A block is taken when a step is scheduled, which is after the blocks of the step before were published.
    """
    found = []
    for index, each in enumerate(decodes):
        start = each.computed
        for at in range(each.full, start + count + 1, size):
            if each.next_full(at // size - 1, size) == at:
                found.append((at - start, False, index, at))  # noqa: PERF401  most often there is none
        found += [(at - start, True, index, at) for at in range(each.room, start + count, size)]
    return found
