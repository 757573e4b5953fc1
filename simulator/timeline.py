"""Writes a run as a trace that ui.perfetto.dev and chrome://tracing open: one track a unit.

Times are whole nanoseconds, written in microseconds as the format wants them, and both ends of a span are rounded the
same way, so that spans that touch in the schedule touch in the trace and never overlap.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from simulator.costs import Unit
from simulator.output import write_text
from simulator.program import Mode
from simulator.result import OperatorResult, Result

_PS_PER_NS, _NS_PER_US = 10**3, 10**3
_PREFETCH = "weights ahead"  # the DMA unit fetches them beside the moves of its own queue
_TRACKS = {
    name: number for number, name in enumerate((Unit.HOST, Unit.MATRIX, Unit.VECTOR, Unit.DMA, _PREFETCH, Unit.LINK))
}


def write_timeline(result: Result, path: Path) -> None:
    """Write *result* to *path* in the Trace Event format; spans of one track never overlap."""
    events = [*_names(result), *_spans(result), *_memory(result)]
    write_text(path, json.dumps({"displayTimeUnit": "ns", "traceEvents": events}))


def _names(result: Result) -> Iterator[dict[str, object]]:
    title = f"{result.graph.workload.name} on {result.chip.name}"
    yield {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": title}}
    used = {str(cost.unit) for cost in result.costs}
    used |= {_PREFETCH} if result.schedule.prefetch else set()
    used |= {Unit.HOST} if _host_at_work(result) else set()
    for name, track in _TRACKS.items():
        if name in used:
            yield {"ph": "M", "pid": 0, "tid": track, "name": "thread_name", "args": {"name": str(name)}}
            yield {"ph": "M", "pid": 0, "tid": track, "name": "thread_sort_index", "args": {"sort_index": track}}


def _host_at_work(result: Result) -> bool:
    return result.mode is not Mode.GRAPH and result.chip.overheads.host_dispatch > 0


def _spans(result: Result) -> Iterator[dict[str, object]]:
    for each in result.operators:
        yield _span(_TRACKS[each.cost.unit], each.name, each.start, each.end) | {"args": _arguments(each)}
    operators = result.graph.operators
    for index, start, end in result.schedule.prefetch:
        yield _span(_TRACKS[_PREFETCH], f"weights of {operators[index].name}", start, end)
    if _host_at_work(result):
        before = 0
        for op, ready in zip(operators, result.schedule.ready, strict=True):
            yield _span(_TRACKS[Unit.HOST], f"dispatch {op.name}", before, ready)
            before = ready


def _span(track: int, name: str, start: int, end: int) -> dict[str, object]:
    begin, finish = _nanoseconds(start), _nanoseconds(end)
    times = {"ts": begin / _NS_PER_US, "dur": (finish - begin) / _NS_PER_US}
    return {"ph": "X", "pid": 0, "tid": track, "name": name, **times}


def _nanoseconds(picoseconds: int) -> int:
    return (picoseconds + _PS_PER_NS // 2) // _PS_PER_NS


def _arguments(each: OperatorResult) -> dict[str, object]:
    operator = each.operator
    return {
        "kind": operator.kind,
        "phase": operator.phase,
        "bound": each.bound,
        "flops": operator.flops,
        "bytes": operator.nbytes,
        "off-chip bytes": each.cost.traffic,
        "detail": each.cost.detail,
    }


def _memory(result: Result) -> Iterator[dict[str, object]]:
    """A counter track: bytes in use as each operator starts, by role."""
    timeline = result.memory
    used = {str(role): live.tolist() for role, live in timeline.live.items() if live.any()}
    for place, index in enumerate(timeline.order.tolist()):
        values = {role: live[place] for role, live in used.items()}
        time = _nanoseconds(result.schedule.start[index]) / _NS_PER_US
        yield {"ph": "C", "pid": 0, "name": "memory", "ts": time, "args": values}
