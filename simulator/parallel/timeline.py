"""Writes a step as a trace for ui.perfetto.dev: one track a pipeline stage, forward and backward passes."""

import json
from collections.abc import Iterator
from pathlib import Path

from simulator.output import write_text
from simulator.parallel.result import Run

_PS_PER_US = 10**6


def write_timeline(run: Run, path: Path) -> None:
    """Write *run* to *path* in the Trace Event format; OutputError if that cannot be done."""
    events = [*_names(run), *_spans(run)]
    write_text(path, json.dumps({"displayTimeUnit": "ms", "traceEvents": events}))


def _names(run: Run) -> Iterator[dict[str, object]]:
    title = f"{run.workload.name} on {run.system.name}"
    yield {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": title}}
    for stage in range(run.plan.pp):
        yield {"ph": "M", "pid": 0, "tid": stage, "name": "thread_name", "args": {"name": f"stage {stage}"}}
        yield {"ph": "M", "pid": 0, "tid": stage, "name": "thread_sort_index", "args": {"sort_index": stage}}


def _spans(run: Run) -> Iterator[dict[str, object]]:
    table = run.step.table
    for stage, order in enumerate(table.orders):
        for work, start, end in zip(order, table.start[stage], table.end[stage], strict=True):
            yield _span(stage, work.name, start, end, "backward" if work.backward else "forward")
        done, end = table.end[stage][-1], run.step.ends[stage]
        if end > done:
            yield _span(stage, "gradients and optimizer", done, end, "optimizer")


def _span(stage: int, name: str, start: int, end: int, kind: str) -> dict[str, object]:
    times = {"ts": start / _PS_PER_US, "dur": (end - start) / _PS_PER_US}
    return {"ph": "X", "pid": 0, "tid": stage, "name": name, "cat": kind, **times}
