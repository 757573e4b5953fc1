"""Timing on a CUDA device: many calls in one captured graph, median of replays, operands not in the cache."""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

REPLAYS = 15
_COLD_BYTES = 256 * 2**20  # four times the L2 of an H200
_TARGET_US = 2000.0  # of one replay: long against the clock's resolution

Call = Callable[[], object]


def copies_needed(nbytes: int, most: int) -> int:
    """Sets of operands of *nbytes* so that, used in turn, none is still cached when it comes round again."""
    return max(2, min(most, -(-_COLD_BYTES // max(nbytes, 1))))


def is_cold(nbytes: int, copies: int) -> bool:
    """Say whether that many sets of operands are larger than the L2."""
    return copies * nbytes > int(torch.cuda.get_device_properties(0).L2_cache_size)


def kernel_us(calls: Sequence[Call]) -> float:
    """Return the microseconds of one call: each of *calls* in turn, in one CUDA graph, median of the replays."""
    for call in calls[:3]:
        call()
    torch.cuda.synchronize()
    once = replay_us(_capture(calls, 1))
    rounds = max(1, min(20, round(_TARGET_US / max(once, 1.0))))
    return (once if rounds == 1 else replay_us(_capture(calls, rounds)) / rounds) / len(calls)


def _capture(calls: Sequence[Call], rounds: int) -> Any:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for call in calls:
                call()  # its result is freed at once, and the next call may write to the same memory
    return graph


def replay_us(graph: Any) -> float:
    """Return the median microseconds of one replay of a captured graph; an earlier one hides its launch."""
    times: list[float] = []
    for _ in range(REPLAYS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        graph.replay()
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1000 * start.elapsed_time(end))
    return statistics.median(times)


def eager_us(call: Call, kernel: float) -> float:
    """Return the wall microseconds of one call launched from Python, queue kept full; *kernel*: those on the GPU."""
    repeats = max(5, min(100, int(30_000 / max(kernel, 1.0))))
    call()
    return min(_wall(call, repeats) for _ in range(3)) / repeats * 1e6


def _wall(call: Call, repeats: int) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def say(text: str) -> None:
    """Write a line of progress."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
