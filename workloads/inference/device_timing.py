"""How `device_run` times a step: replays of a captured graph, or eager launches; on a CPU, dry, one plain call."""
# mypy: disable-error-code="no-untyped-call"

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

Facts = dict[str, Any]
Call = Callable[[], object]
_SECONDS = 0.25  # of one measurement, about
_LEAST = 5
_MOST = 30


def graph_of(call: Call) -> Any:
    """Return *call* as a captured CUDA graph; it has run twice before, so that nothing is compiled in it."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def device_us(call: Call) -> Facts:
    """Median, least and most microseconds between two events around *call*, which follows another without a pause."""
    if not torch.cuda.is_available():
        return {"us": _wall_us(call, 1)[0]}
    first = _events_us(call)
    count = max(_LEAST, min(_MOST, int(_SECONDS * 1e6 / max(first, 1.0))))
    times = [_events_us(call) for _ in range(count)]
    return {"us": round(statistics.median(times), 2), "least": round(min(times), 2), "most": round(max(times), 2)}


def _events_us(call: Call) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call()  # hides the launch of the one that is timed
    start.record()
    call()
    end.record()
    end.synchronize()
    return 1000 * float(start.elapsed_time(end))


def eager_us(call: Call) -> float:
    """Median wall microseconds of *call* launched from Python and waited for."""
    call()
    return round(statistics.median(_wall_us(call, 1 if not torch.cuda.is_available() else _LEAST)), 2)


def _wall_us(call: Call, count: int) -> list[float]:
    times = []
    for _ in range(count):
        _wait()
        began = time.perf_counter()
        call()
        _wait()
        times.append((time.perf_counter() - began) * 1e6)
    return times


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def kernels_of(call: Call) -> Facts:
    """Kernels of one *call* by name and in order, with the microseconds of each, from torch's profiler."""
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415  loads a tracing library

    call()
    _wait()
    activity = ProfilerActivity.CUDA if torch.cuda.is_available() else ProfilerActivity.CPU
    with profile(activities=[activity]) as profiler:
        call()
        _wait()
    wanted = str(activity).rsplit(".", maxsplit=1)[-1]
    events = [each for each in profiler.events() if str(each.device_type).endswith(wanted)]
    events.sort(key=lambda each: each.time_range.start)
    return _summary([(each.name, each.time_range.start, each.time_range.elapsed_us()) for each in events])


def _summary(events: list[tuple[str, float, float]]) -> Facts:
    """By name: how often and how long; the span from first to last; and the first of them in order."""
    named: dict[str, list[float]] = {}
    for name, _, us in events:
        named.setdefault(name[:90], []).append(us)
    table = {name: {"count": len(times), "us": round(sum(times), 2)} for name, times in named.items()}
    span = events[-1][1] + events[-1][2] - events[0][1] if events else 0.0
    return {
        "span_us": round(span, 2),
        "busy_us": round(sum(us for _, _, us in events), 2),
        "by_name": dict(sorted(table.items(), key=lambda item: -item[1]["us"])),
        "first": [[name[:60], round(us, 2)] for name, _, us in events[:48]],
    }
