"""Memory in use over the time of the run, by role, under the capacity of the device."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.graph import Role
from simulator.report.axes import Linear
from simulator.report.markup import Markup, figure, join, tag
from simulator.result import Result
from simulator.units import PS_PER_SECOND, decimal, seconds

_WIDTH, _HEIGHT, _LOW = 960, 300, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 20, 26, 44
_BUCKETS = 900  # steps of time that a screen can tell apart
ROLES = (  # from the bottom up: what lies there for the whole run first
    Role.WEIGHT,
    Role.BUFFER,
    Role.OPTIMIZER,
    Role.WORKSPACE,
    Role.INPUT,
    Role.CACHE,
    Role.GRADIENT,
    Role.ACTIVATION,
)


@dataclass(frozen=True, slots=True)
class Curve:
    """Bytes by role from each moment in *time* (picoseconds) to the next one."""

    time: NDArray[np.int64]
    live: dict[Role, NDArray[np.int64]]

    @property
    def total(self) -> NDArray[np.int64]:
        return sum(self.live.values(), start=np.zeros_like(self.time))


def curve(result: Result, buckets: int = _BUCKETS) -> Curve:
    """Return what *buckets* steps of time can show: in each of them its highest point and its last one."""
    memory = result.memory
    start = np.asarray(result.schedule.start, dtype=np.int64)[memory.order]
    whole = Curve(start, {role: memory.live[role] for role in ROLES if role in memory.live})
    if len(start) <= 2 * buckets:
        return whole
    span = max(1, int(result.schedule.makespan))
    bucket = np.minimum(start * float(buckets) / span, buckets - 1).astype(np.int64)
    first = np.flatnonzero(np.diff(bucket, prepend=-1))
    last = np.append(first[1:], len(start)) - 1
    total = whole.total
    highest = [low + int(np.argmax(total[low : high + 1])) for low, high in zip(first, last, strict=True)]
    kept = np.unique(np.concatenate([highest, last])).astype(np.int64)
    return Curve(start[kept], {role: live[kept] for role, live in whole.live.items()})


def memory_plot(result: Result) -> Markup:
    """Draw the roles on top of each other under the capacity; what comes and goes once more if it is thin."""
    if result.memory.peak_operator is None:
        return tag("p", "No operator ran.", class_="note")
    points = curve(result)
    passing = Curve(points.time, {role: live for role, live in points.live.items() if not role.resident})
    plots = [_whole(result, points), _legend(points)]
    if 0 < int(passing.total.max()) < result.memory.peak / 4:
        plots += [tag("p", "Of these, what comes and goes:", class_="note"), _transient(result, passing)]
    return join(plots)


def _whole(result: Result, points: Curve) -> Markup:
    capacity, peak = result.chip.dram.capacity, max(1, result.memory.peak)
    top = 1.1 * max(peak, capacity) if 4 * peak >= capacity else 1.3 * peak
    x_axis, y_axis = _axes(result, top, _HEIGHT)
    parts = [_frame(x_axis, y_axis), _areas(points, x_axis, y_axis), _capacity(capacity, y_axis)]
    return _plot("memory over time", _HEIGHT, [*parts, _peak(result, x_axis, y_axis)])


def _transient(result: Result, points: Curve) -> Markup:
    x_axis, y_axis = _axes(result, 1.15 * int(points.total.max()), _LOW)
    parts = [_frame(x_axis, y_axis), _areas(points, x_axis, y_axis)]
    return _plot("activations and gradients over time", _LOW, parts)


def _axes(result: Result, top: float, height: int) -> tuple[Linear, Linear]:
    end = max(1, int(result.schedule.makespan))
    return Linear(0, end, _LEFT, _WIDTH - _RIGHT), Linear(0, top, height - _BOTTOM, _TOP)


def _plot(name: str, height: int, parts: list[Markup]) -> Markup:
    return figure(name, _WIDTH, height, parts)


def _frame(x_axis: Linear, y_axis: Linear) -> Markup:
    parts = []
    unit, scale = _unit(x_axis.high)
    in_unit = Linear(0, x_axis.high / scale, x_axis.start, x_axis.end)
    for tick in in_unit.ticks(8):
        x = in_unit.place(tick)
        parts.append(tag("line", x1=x, x2=x, y1=y_axis.start, y2=y_axis.start + 5, class_="mark"))
        parts.append(tag("text", f"{tick:g}", x=x, y=y_axis.start + 18, class_="tick mid"))
    for tick in y_axis.ticks(4):
        y = y_axis.place(tick)
        parts.append(tag("line", x1=x_axis.start, x2=x_axis.end, y1=y, y2=y, class_="grid"))
        parts.append(tag("text", decimal(tick, "B"), x=x_axis.start - 8, y=y + 4, class_="tick end"))
    label = f"time, {unit}"
    parts.append(tag("text", label, x=(x_axis.start + x_axis.end) / 2, y=y_axis.start + 38, class_="axis mid"))
    return join(parts)


def _unit(picoseconds: float) -> tuple[str, float]:
    for unit, scale in (("s", PS_PER_SECOND), ("ms", 10**9), ("us", 10**6), ("ns", 10**3)):
        if picoseconds >= scale:
            return unit, scale
    return "ps", 1


def _areas(points: Curve, x_axis: Linear, y_axis: Linear) -> Markup:
    floor = np.zeros_like(points.time)
    xs = [x_axis.place(time) for time in [*points.time.tolist()[1:], x_axis.high]]
    parts = []
    for role, live in points.live.items():
        if not live.any():
            continue
        roof = floor + live
        forth = _steps(x_axis.place(0), xs, [y_axis.place(y) for y in roof.tolist()])
        back = _steps(x_axis.place(0), xs, [y_axis.place(y) for y in floor.tolist()])
        path = " ".join(f"{x:g},{y:g}" for x, y in [*forth, *reversed(back)])
        parts.append(tag("polygon", points=path, class_=f"area {role}"))
        floor = roof
    return join(parts)


def _steps(start: float, xs: list[float], ys: list[float]) -> list[tuple[float, float]]:
    """Corners of a curve that holds each of *ys* until the matching one of *xs*; straight stretches in one piece."""
    corners: list[tuple[float, float]] = []
    x = start
    for until, y in zip(xs, ys, strict=True):
        if corners and corners[-1][1] == y:
            corners[-1] = (until, y)
        else:
            corners += [(x, y), (until, y)]
        x = until
    return corners


def _capacity(capacity: int, y_axis: Linear) -> Markup:
    name = f"capacity {decimal(capacity, 'B')}"
    inside = capacity <= y_axis.high
    y = y_axis.place(capacity) if inside else y_axis.end
    if not inside:
        name += ", above this axis"
    line = tag("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, class_="limit")
    return join([line, tag("text", name, x=_WIDTH - _RIGHT - 4, y=y - 6, class_="roofname end")])


def _peak(result: Result, x_axis: Linear, y_axis: Linear) -> Markup:
    operator = result.memory.peak_operator
    assert operator is not None  # memory_plot has seen to it
    x = x_axis.place(result.schedule.start[operator])
    y = y_axis.place(result.memory.peak)
    side = "start" if x < (_LEFT + _WIDTH) / 2 else "end"
    label = f"peak {decimal(result.memory.peak, 'B')} at {seconds(result.schedule.start[operator])}"
    shift = 8 if side == "start" else -8
    above = y - 8 if y - 8 > _TOP + 6 else y + 16
    title = tag("title", result.graph.operators[operator].name)
    dot = tag("circle", title, cx=x, cy=y, r=4, class_="peak")
    return join([dot, tag("text", label, x=x + shift, y=above, class_=f"name {side}")])


def _legend(points: Curve) -> Markup:
    used = [role for role, live in points.live.items() if live.any()]
    items = [tag("span", tag("i", "", class_=f"key {role}"), str(role)) for role in used]
    return tag("p", *items, class_="legend")
