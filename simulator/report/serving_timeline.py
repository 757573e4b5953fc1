"""A served run as a trace for ui.perfetto.dev: steps of each engine, counters of queue, batch and KV blocks."""

import json
from collections.abc import Iterator
from pathlib import Path

from simulator.output import write_text
from simulator.serving.records import Track
from simulator.serving.summary import Summary

_PS_PER_US = 10**6


def write_serving_timeline(summary: Summary, path: Path) -> None:
    """Write *summary* to *path* in the Trace Event format."""
    events: list[dict[str, object]] = [_name("process_name", 0, f"{summary.model} on {summary.chip.name}")]
    for number, track in enumerate(summary.log.tracks):
        events.append(_name("thread_name", number, track.name))
        events += _spans(number, track)
        events += _counters(track)
    write_text(path, json.dumps({"displayTimeUnit": "ms", "traceEvents": events}))


def _name(kind: str, track: int, name: str) -> dict[str, object]:
    return {"ph": "M", "pid": 0, "tid": track, "name": kind, "args": {"name": name}}


def _spans(number: int, track: Track) -> Iterator[dict[str, object]]:
    """One span for each run of equal steps."""
    columns = (track.start, track.duration, track.steps, track.tokens, track.decodes, track.reading)
    for start, duration, steps, tokens, decodes, reading in zip(*columns, strict=True):
        kind = ("prefill and decode" if decodes else "prefill") if reading else f"decode x{steps}"
        yield {
            "ph": "X",
            "pid": 0,
            "tid": number,
            "name": kind,
            "ts": start / _PS_PER_US,
            "dur": duration / _PS_PER_US,
            "args": {"steps": steps, "tokens of a step": tokens, "decodes": decodes},
        }


def _counters(track: Track) -> Iterator[dict[str, object]]:
    for start, waiting, running, held in zip(track.start, track.waiting, track.running, track.held, strict=True):
        for name, value in (("waiting", waiting), ("running", running), ("KV blocks held", held)):
            args = {track.name: value}
            yield {"ph": "C", "pid": 0, "name": f"{name} ({track.name})", "ts": start / _PS_PER_US, "args": args}
