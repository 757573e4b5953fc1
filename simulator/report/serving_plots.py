"""Plots of a served run: a state over time, and how latencies are distributed."""

from collections.abc import Sequence

from simulator.report.axes import Linear
from simulator.report.markup import Markup, figure, join, tag
from simulator.serving.metrics import quantile
from simulator.serving.records import Track
from simulator.units import seconds

_WIDTH, _HEIGHT = 960, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 20, 26, 42
_BUCKETS = 440  # stretches of time that a screen can tell apart
_BINS = 60
_TIMES = (("s", 10**12), ("ms", 10**9), ("us", 10**6), ("ns", 10**3), ("ps", 1))


def state(name: str, track: Track, values: Sequence[int], end: int, colour: str, limit: int | None = None) -> Markup:
    """*values* of *track* from the start to *end*, the highest in each stretch; *limit* is drawn where it is near."""
    highest = _highest(track, values, max(1, end))
    most = max(highest, default=0)
    near = limit is not None and 2 * most >= limit
    top = 1.15 * max(1, most, limit if near and limit else 0)
    x_axis, y_axis = Linear(0, max(1, end), _LEFT, _WIDTH - _RIGHT), Linear(0, top, _HEIGHT - _BOTTOM, _TOP)
    width = (x_axis.end - x_axis.start) / _BUCKETS
    points = [f"{x_axis.start:.1f},{y_axis.start}"]
    for index, value in enumerate(highest):
        left, y = x_axis.start + index * width, y_axis.place(value)
        points += [f"{left:.1f},{y}", f"{left + width:.1f},{y}"]
    points.append(f"{x_axis.end:.1f},{y_axis.start}")
    parts = [_frame(x_axis, y_axis), tag("polygon", points=" ".join(points), class_=f"area {colour}")]
    if near and limit is not None:
        y = y_axis.place(limit)
        parts.append(tag("line", x1=x_axis.start, x2=x_axis.end, y1=y, y2=y, class_="limit"))
    return figure(f"{name} over time", _WIDTH, _HEIGHT, [*parts, _title(f"{name}, at most {most:,}")])


def _highest(track: Track, values: Sequence[int], end: int) -> list[int]:
    """The highest of *values* in each of _BUCKETS stretches; 0 where nothing ran."""
    found = [0] * _BUCKETS
    for start, lasting, value in zip(track.start, track.duration, values, strict=True):
        first = start * _BUCKETS // end
        last = (start + lasting - 1) * _BUCKETS // end
        for bucket in range(first, min(last, _BUCKETS - 1) + 1):
            found[bucket] = max(found[bucket], value)
    return found


def distribution(name: str, times: Sequence[float], slo: int | None) -> Markup:
    """How many requests took how long, up to the 99.5th percentile, with p50, p95, p99 and the service level."""
    if not times:
        return tag("p", f"No request has a {name}.", class_="note")
    top = max(quantile(times, 99.5), 1.05 * slo if slo and slo < 4 * quantile(times, 99) else 0, 1) * 1.001
    counts = [0] * _BINS
    for time in times:
        if time < top:
            counts[int(time * _BINS / top)] += 1
    x_axis = Linear(0, top, _LEFT, _WIDTH - _RIGHT)
    y_axis = Linear(0, 1.15 * max(1, *counts), _HEIGHT - _BOTTOM, _TOP)
    width = (x_axis.end - x_axis.start) / _BINS
    bars = [
        tag(
            "rect",
            x=round(x_axis.start + index * width, 1),
            y=y_axis.place(count),
            width=round(width - 1, 1),
            height=round(y_axis.start - y_axis.place(count), 1),
            class_="area compute",
        )
        for index, count in enumerate(counts)
        if count
    ]
    marks = [_marked(x_axis, quantile(times, each), f"p{each}", "ridge") for each in (50, 95, 99)]
    if slo is not None and slo < top:
        marks.append(_marked(x_axis, slo, "SLO", "slo"))
    label = f"{name}: {len(times):,} requests, longest {seconds(max(times), 3)}"
    return figure(f"distribution of {name}", _WIDTH, _HEIGHT, [_frame(x_axis, y_axis), *bars, *marks, _title(label)])


def _marked(x_axis: Linear, value: float, name: str, kind: str) -> Markup:
    x = x_axis.place(min(value, x_axis.high))
    line = tag("line", x1=x, x2=x, y1=_TOP, y2=_HEIGHT - _BOTTOM, class_=kind)
    return join([line, tag("text", name, x=x + 3, y=_TOP + 10, class_="tick")])


def _title(text: str) -> Markup:
    return tag("text", text, x=_LEFT, y=15, class_="axis")


def _frame(x_axis: Linear, y_axis: Linear) -> Markup:
    unit, scale = next(((name, size) for name, size in _TIMES if x_axis.high >= size), _TIMES[-1])
    in_unit = Linear(0, x_axis.high / scale, x_axis.start, x_axis.end)
    parts = []
    for tick in in_unit.ticks(8):
        x = in_unit.place(tick)
        parts.append(tag("line", x1=x, x2=x, y1=y_axis.start, y2=y_axis.start + 5, class_="mark"))
        parts.append(tag("text", f"{tick:g}", x=x, y=y_axis.start + 18, class_="tick mid"))
    for tick in y_axis.ticks(3):
        y = y_axis.place(tick)
        parts.append(tag("line", x1=x_axis.start, x2=x_axis.end, y1=y, y2=y, class_="grid"))
        parts.append(tag("text", f"{tick:,.0f}", x=x_axis.start - 8, y=y + 4, class_="tick end"))
    middle = (x_axis.start + x_axis.end) / 2
    parts.append(tag("text", f"time, {unit}", x=middle, y=y_axis.start + 36, class_="axis mid"))
    return join(parts)
