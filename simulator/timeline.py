"""Writes a run as a trace that ui.perfetto.dev and chrome://tracing open: one track a unit."""

import json
from collections.abc import Iterator
from pathlib import Path

from simulator.costs import Unit
from simulator.output import write_text
from simulator.program import Mode
from simulator.result import OperatorResult, Result

_PS_PER_US = 10**6  # the format counts in microseconds
_TRACKS = {unit: number for number, unit in enumerate((Unit.HOST, Unit.MATRIX, Unit.VECTOR, Unit.DMA, Unit.LINK))}


def write_timeline(result: Result, path: Path) -> None:
    """Write *result* to *path* in the Trace Event format; spans of one track never overlap."""
    events = [*_names(result), *_spans(result), *_memory(result)]
    write_text(path, json.dumps({"displayTimeUnit": "ns", "traceEvents": events}))


def _names(result: Result) -> Iterator[dict[str, object]]:
    title = f"{result.graph.workload.name} on {result.chip.name}"
    yield {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": title}}
    used = {cost.unit for cost in result.costs}
    used |= {Unit.DMA} if result.schedule.prefetch else set()
    used |= {Unit.HOST} if _host_bound(result) else set()
    for unit, track in _TRACKS.items():
        if unit in used:
            yield {"ph": "M", "pid": 0, "tid": track, "name": "thread_name", "args": {"name": str(unit)}}
            yield {"ph": "M", "pid": 0, "tid": track, "name": "thread_sort_index", "args": {"sort_index": track}}


def _host_bound(result: Result) -> bool:
    return result.mode is Mode.EAGER and result.chip.overheads.host_dispatch > 0


def _spans(result: Result) -> Iterator[dict[str, object]]:
    for each in result.operators:
        yield _span(_TRACKS[each.cost.unit], each.name, each.start, each.end) | {"args": _arguments(each)}
    names = [op.name for op in result.graph]
    for index, start, end in result.schedule.prefetch:
        yield _span(_TRACKS[Unit.DMA], f"prefetch for {names[index]}", start, end)
    if _host_bound(result):
        before = 0
        for index, ready in enumerate(result.schedule.ready):
            yield _span(_TRACKS[Unit.HOST], f"dispatch {names[index]}", before, ready)
            before = ready


def _span(track: int, name: str, start: int, end: int) -> dict[str, object]:
    times = {"ts": start / _PS_PER_US, "dur": (end - start) / _PS_PER_US}
    return {"ph": "X", "pid": 0, "tid": track, "name": name, **times}


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
    used = {role: live for role, live in timeline.live.items() if live.any()}
    for place, index in enumerate(timeline.order.tolist()):
        values = {str(role): int(live[place]) for role, live in used.items()}
        yield {
            "ph": "C", "pid": 0, "name": "memory", "ts": result.schedule.start[index] / _PS_PER_US, "args": values,
        }  # fmt: skip
