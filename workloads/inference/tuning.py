"""Finds the fastest tile of each product with packed weights on a CUDA device, and remembers it for `launch`."""
# mypy: disable-error-code="no-untyped-call"

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simulator.packing import GROUP, groups_of
from workloads.inference.launch import TUNED, Tile, bucket, linear, tiles_for

_COLD_BYTES = 2**28  # several times the second-level cache of any GPU: each call finds its weights in memory
_REPLAYS = 5
_MOST_COPIES = 64


@dataclass(frozen=True, slots=True)
class Timed:
    """A tile, and the microseconds of one product with it; None if it did not run, and then why."""

    tile: Tile
    us: float | None
    error: str = ""


def tune(bits: int, rows: int, outputs: int, inputs: int, dtype: torch.dtype) -> list[Timed]:
    """Time every tile of the list for one product; the fastest is used from now on."""
    sets = random_packed(bits, outputs, inputs)
    x = torch.randn(rows, inputs, device="cuda", dtype=dtype)
    timed = [_timed(tile, x, sets, bits) for tile in tiles_for(rows)]
    good = [each for each in timed if each.us is not None]
    if good:
        best = min(good, key=lambda each: each.us or 0.0)
        TUNED.found[bits, bucket(rows), outputs, inputs] = best.tile
    return timed


def _timed(tile: Tile, x: Tensor, sets: Sequence[tuple[Tensor, Tensor, Tensor]], bits: int) -> Timed:
    calls = [_call(tile, x, each, bits) for each in sets]
    try:
        return Timed(tile, cold_us(calls))
    except Exception as error:  # a tile may need more registers or shared memory than there are
        return Timed(tile, None, f"{type(error).__name__}: {str(error)[:200]}")


def _call(tile: Tile, x: Tensor, packed: tuple[Tensor, Tensor, Tensor], bits: int) -> Callable[[], Tensor]:
    return lambda: linear(x, *packed, bits, tile)


def random_packed(bits: int, outputs: int, inputs: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return so many random matrices that none is in the cache when its turn comes again."""
    groups = groups_of(inputs)
    nbytes = outputs * groups * GROUP * bits // 8
    copies = max(2, min(_MOST_COPIES, -(-_COLD_BYTES // nbytes)))
    size = (outputs, groups * GROUP * bits // 8)
    return [
        (
            torch.randint(256, size, device="cuda", dtype=torch.uint8),
            torch.rand(groups, outputs, device="cuda").half() / 100,
            torch.randn(groups, outputs, device="cuda").half() / 10,
        )
        for _ in range(copies)
    ]


def cold_us(calls: Sequence[Callable[[], object]]) -> float:
    """Return the microseconds of one of *calls*, which run in turn in one CUDA graph: the median of a few replays."""
    calls[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    times: list[float] = []
    for _ in range(_REPLAYS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1000 * float(start.elapsed_time(end)))
    return statistics.median(times) / len(calls)
