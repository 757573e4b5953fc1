"""Every parallel plan of a world of chips that divides a model and a batch."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from simulator.parallel.plan import Plan, Recompute, Shape

_MICROBATCHES = (1, 2, 4, 8)
_CHUNKS = (2, 3, 4, 5, 6, 8)
_RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")


def plans(shape: Shape, world: int, batch: int, zero: Sequence[int] = (0, 1, 2, 3)) -> Iterator[Plan]:
    """Every plan of *world* ranks that divides the model of *shape* and *batch* sequences.

    The sequence is divided wherever tp > 1 divides it: that sends as much, and holds and computes less.
    """
    for tp in _divisors(world):
        for pp in _divisors(world // tp):
            dp = world // tp // pp
            if pp > shape.layers or batch % dp or not _divides(shape, tp):
                continue
            for ep in _divisors(dp) if shape.experts else (1,):
                if not shape.experts or shape.experts % ep == 0:
                    yield from _variants(shape, Plan(dp=dp, tp=tp, pp=pp, ep=ep), batch, zero)


def _divides(shape: Shape, tp: int) -> bool:
    return shape.heads % tp == 0 and (not shape.kv_heads or shape.kv_heads % tp == 0 or tp % shape.kv_heads == 0)


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


def _variants(shape: Shape, base: Plan, batch: int, zero: Sequence[int]) -> Iterator[Plan]:
    for microbatch in _MICROBATCHES:
        count, rest = divmod(batch // base.dp, microbatch)
        if rest or not count:
            continue
        for schedule, chunks in _schedules(shape, base.pp, count):
            for stage in zero if base.dp > 1 else (0,):
                for recompute in _RECOMPUTE:
                    yield replace(
                        base, microbatch=microbatch, schedule=schedule, interleave=chunks, zero=stage,
                        sp=base.tp > 1 and shape.seq % base.tp == 0, recompute=recompute, precision="mixed",
                    )  # fmt: skip


def _schedules(shape: Shape, pp: int, microbatches: int) -> Iterator[tuple[str, int]]:
    yield "1f1b", 1
    if pp > 1:
        yield "gpipe", 1
        if microbatches % pp == 0:
            yield from (("interleaved", v) for v in _CHUNKS if shape.layers % (pp * v) == 0)
