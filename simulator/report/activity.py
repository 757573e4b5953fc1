"""What each unit of the chip did over the run, as one strip a unit: a thumbnail of the timeline."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from simulator.costs import Unit
from simulator.headline import percent
from simulator.program import Mode
from simulator.report.markup import Markup, figure, join, tag
from simulator.result import Result

_WIDTH, _LEFT, _RIGHT, _STRIP, _GAP = 960, 78, 66, 30, 10
_BUCKETS = 320
_LEVELS = 12  # heights of a bar
_LEAST = 0.01  # part of a stretch from which a unit counts as busy in it
_ORDER = (Unit.HOST, Unit.MATRIX, Unit.VECTOR, Unit.DMA, Unit.LINK)

Span = tuple[Unit, str, int, int]  # unit, class of its colour, start and end in picoseconds


def activity(result: Result) -> Markup:
    """Draw how busy each unit was in each stretch of the run, in the colour of what bound it there."""
    end = int(result.schedule.makespan)
    if not end:
        return tag("p", "No operator took time.", class_="note")
    busy: defaultdict[Unit, int] = defaultdict(int)
    filled: defaultdict[tuple[Unit, int], defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for unit, colour, start, stop in spans(result):
        busy[unit] += stop - start
        for bucket, part in _buckets(start, stop, end):
            filled[unit, bucket][colour] += part
    units = [unit for unit in _ORDER if busy[unit]]
    strips = [_strip(unit, place, filled, busy[unit] / end) for place, unit in enumerate(units)]
    return figure("units over time", _WIDTH, len(units) * (_STRIP + _GAP) + 4, strips)


def spans(result: Result) -> Iterator[Span]:
    """Everything that kept a unit busy."""
    for each in result.operators:
        yield each.cost.unit, str(each.bound), each.start, each.end
    for _, start, end in result.schedule.prefetch:
        yield Unit.DMA, "bandwidth", start, end
    if result.mode is not Mode.GRAPH and result.chip.overheads.host_dispatch:
        before = 0
        for ready in result.schedule.ready:
            yield Unit.HOST, "launch", before, ready
            before = ready


def _buckets(start: int, stop: int, end: int) -> Iterator[tuple[int, float]]:
    """The stretches of the run that a span touches, each with the part that it fills."""
    first, last = start * _BUCKETS / end, min(stop * _BUCKETS / end, _BUCKETS)
    bucket = int(first)
    while bucket < last:
        yield bucket, min(last, bucket + 1) - max(first, bucket)
        bucket += 1


def _strip(
    unit: Unit, place: int, filled: defaultdict[tuple[Unit, int], defaultdict[str, float]], share: float
) -> Markup:
    top = place * (_STRIP + _GAP) + 2
    right = _WIDTH - _RIGHT
    parts = [
        tag("rect", x=_LEFT, y=top, width=right - _LEFT, height=_STRIP, class_="track"),
        tag("text", str(unit), x=_LEFT - 8, y=top + 19, class_="tick end"),
        tag("text", percent(share), x=right + 8, y=top + 19, class_="tick"),
    ]
    width = (right - _LEFT) / _BUCKETS
    for start, stop, level, colour in _runs(unit, filled):
        height = _STRIP * level / _LEVELS
        x, y = round(_LEFT + start * width, 1), round(top + _STRIP - height, 1)
        size = {"width": round((stop - start) * width + 0.1, 1), "height": round(height, 1)}
        parts.append(tag("rect", x=x, y=y, class_=f"busy {colour}", **size))
    return join(parts)


def _runs(
    unit: Unit, filled: defaultdict[tuple[Unit, int], defaultdict[str, float]]
) -> Iterator[tuple[int, int, int, str]]:
    """Neighbouring stretches that look alike as one bar: where it starts and stops, its height and its colour."""
    start, before = 0, (0, "")
    for bucket in range(_BUCKETS + 1):
        parts: Mapping[str, float] = filled.get((unit, bucket), {})
        part = sum(parts.values())
        level = min(_LEVELS, max(1, round(part * _LEVELS))) if part >= _LEAST else 0
        look = (level, max(parts, key=lambda colour: parts[colour])) if level else (0, "")
        if look != before:
            if before[0]:
                yield start, bucket, *before
            start, before = bucket, look
