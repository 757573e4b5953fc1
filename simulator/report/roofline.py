"""The roofline plot: every operator as a dot under the roofs of the chip."""

from collections import defaultdict
from dataclasses import dataclass
from math import atan2, degrees, sqrt

from simulator.dtypes import DType
from simulator.graph import MATRIX_KINDS
from simulator.headline import number, percent
from simulator.report.axes import Log, log_range
from simulator.report.labels import Labels, around
from simulator.report.markup import Markup, figure, join, tag
from simulator.result import Result
from simulator.tables import Row, operator_rows
from simulator.units import decimal, seconds
from simulator.variants import Resource

_WIDTH, _HEIGHT = 960, 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 20, 18, 50
_RADIUS = 42.0  # of a dot that takes all the time
_LABELS = 8
_NAMED = 0.01  # share of the time from which a dot has its name beside it
_SMALL = 0.005  # share of the time below which a dot need not be inside the frame
_LEAST = 0.01  # FLOP per byte: what lies further out would squeeze everything else


@dataclass(frozen=True, slots=True)
class _Dot:
    """Operators that lie at one place: *rows* of one bound, with their share of the time together."""

    x: float
    y: float
    rows: tuple[Row, ...]

    @property
    def share(self) -> float:
        return sum(row.share for row in self.rows)

    @property
    def radius(self) -> float:
        return round(max(3.0, _RADIUS * sqrt(self.share)), 1)

    @property
    def label(self) -> str:
        more = f" +{len(self.rows) - 1}" if len(self.rows) > 1 else ""
        return shortened(self.rows[0].name, 38) + more


def roofline(result: Result) -> Markup:
    """Draw the operators that compute and move something; says what it leaves out."""
    rows = operator_rows(result)
    drawable = [row for row in rows if row.flops and row.traffic and row.time]
    if not drawable:
        return tag("p", "No operator both computes and moves data off the chip.", class_="note")
    x_axis, y_axis = _axes(result, drawable)
    dots = _dots(drawable, x_axis, y_axis)
    shown = sum(len(dot.rows) for dot in dots)
    free = Labels(_LEFT, _TOP - 12, _WIDTH - 4, _HEIGHT - _BOTTOM)
    for dot in dots:
        if dot.share >= _NAMED:
            free.block(dot.x - dot.radius, dot.y - dot.radius, dot.x + dot.radius, dot.y + dot.radius)
    parts = [
        _frame(x_axis, y_axis),
        _roofs(result, x_axis, y_axis, free),
        join(_circle(dot) for dot in sorted(dots, key=lambda dot: -dot.share)),
        _names(dots, free),
    ]
    return join(
        [
            figure("roofline plot", _WIDTH, _HEIGHT, parts),
            _left_out(rows, shown, sum(dot.share for dot in dots)),
            prefetch_note(result),
        ]
    )


def prefetch_note(result: Result) -> Markup:
    """Why an operator can seem faster than the memory, where that happens."""
    if not result.schedule.prefetch:
        return Markup()
    text = (
        "The DMA unit fetches weights while other operators run: the time of an operator is then shorter than that of "
        "its own traffic, and it can lie above the roof of the memory."
    )
    return tag("p", text, class_="note")


def shortened(name: str, length: int) -> str:
    """Keep the end of a name that is too long: it tells more than the beginning.

    >>> shortened("model.layers.0.attn", 9), shortened("head", 9)
    ('…s.0.attn', 'head')
    """
    return name if len(name) <= length else "…" + name[1 - length :]


def _axes(result: Result, rows: list[Row]) -> tuple[Log, Log]:
    chip = result.chip
    large = [row for row in rows if row.share >= _SMALL and row.intensity >= _LEAST] or rows
    peaks = [float(peak) for peak in _peaks(result).values()]
    ridge = max(peaks) / chip.dram_bandwidth
    x_low, x_high = log_range([row.intensity for row in large] + [3 * ridge])  # room for a name right of the ridge
    y_low, y_high = log_range([row.flops_per_second for row in large] + [min(peaks), max(peaks)])
    return Log(x_low, x_high, _LEFT, _WIDTH - _RIGHT), Log(y_low, y_high, _HEIGHT - _BOTTOM, _TOP)


def _peaks(result: Result) -> dict[str, int]:
    """The roofs that the operators of this run live under: matrix units by type, and the vector units."""
    chip, dtype = result.chip, result.graph.workload.dtype
    used = {op.dtype for op in result.graph if op.kind in MATRIX_KINDS} | {dtype}
    peaks = {}
    for each in sorted(used):
        peak = chip.matrix_peak(each)
        if peak is not None:
            peaks[f"{each} matrix"] = peak
    vector = next((each for each in (DType.FP32, dtype) if each in chip.vector.flops_per_cycle), dtype)
    peaks[f"{vector} vector"] = chip.vector_peak(vector)
    return peaks


def _dots(rows: list[Row], x_axis: Log, y_axis: Log) -> list[_Dot]:
    places: defaultdict[tuple[float, float, Resource], list[Row]] = defaultdict(list)
    for row in rows:
        inside_x = x_axis.low <= row.intensity <= x_axis.high
        if inside_x and y_axis.low <= row.flops_per_second <= y_axis.high:
            x, y = x_axis.place(row.intensity), y_axis.place(row.flops_per_second)
            places[round(x), round(y), row.bound].append(row)
    return [_Dot(x, y, tuple(members)) for (x, y, _), members in places.items()]


def _circle(dot: _Dot) -> Markup:
    lines = [
        f"{row.name}{f' x{row.repeats}' if row.repeats > 1 else ''}: {percent(row.share)} of the time, "
        f"{seconds(row.time)}, {number(row.intensity)} FLOP/B, {decimal(row.flops_per_second, 'FLOP/s')}, "
        f"bound by {row.bound}"
        for row in dot.rows[:8]
    ]
    if len(dot.rows) > 8:
        lines.append(f"and {len(dot.rows) - 8} more")
    title = tag("title", "\n".join(lines))
    return tag("circle", title, cx=dot.x, cy=dot.y, r=dot.radius, class_=f"dot {dot.rows[0].bound}")


def _frame(x_axis: Log, y_axis: Log) -> Markup:
    left, right, top, bottom = _LEFT, _WIDTH - _RIGHT, _TOP, _HEIGHT - _BOTTOM
    parts = []
    for tick in x_axis.ticks():
        x = x_axis.place(tick)
        parts.append(tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="grid"))
        parts.append(tag("text", f"{tick:,.12g}", x=x, y=bottom + 18, class_="tick mid"))
    for tick in y_axis.ticks():
        y = y_axis.place(tick)
        parts.append(tag("line", x1=left, x2=right, y1=y, y2=y, class_="grid"))
        parts.append(tag("text", decimal(tick, ""), x=left - 8, y=y + 4, class_="tick end"))
    middle = (top + bottom) / 2
    parts.append(tag("text", "FLOP per off-chip byte", x=(left + right) / 2, y=_HEIGHT - 8, class_="axis mid"))
    turn = f"rotate(-90 16 {middle})"
    parts.append(tag("text", "FLOP/s reached", x=16, y=middle, transform=turn, class_="axis mid"))
    return join(parts)


def _roofs(result: Result, x_axis: Log, y_axis: Log, free: Labels) -> Markup:
    bandwidth = result.chip.dram_bandwidth
    peaks = _peaks(result)
    parts = []
    for name, peak in peaks.items():
        start = x_axis.place(max(peak / bandwidth, x_axis.low))
        y = y_axis.place(peak)
        kind = "roof" if peak == max(peaks.values()) else "roof lower"
        parts.append(tag("line", x1=start, x2=_WIDTH - _RIGHT, y1=y, y2=y, class_=kind))
        places = [(start - 10, y, "end"), (_WIDTH - _RIGHT - 4, y - 6, "end")]  # nothing can lie over the slope
        parts.append(free.text(f"{decimal(peak, 'FLOP/s')} {name}", places, "roofname", needed=True))
        free.block(start, y - 2, _WIDTH - _RIGHT, y + 2)
    slope = _slope(result, x_axis, y_axis, max(peaks.values()), free)
    return join([*parts, slope, _ridge(result, x_axis, y_axis, free)])


def _slope(result: Result, x_axis: Log, y_axis: Log, highest: int, free: Labels) -> Markup:
    """The roof of the off-chip memory, up to the highest peak, with its name along it."""
    chip, bandwidth = result.chip, result.chip.dram_bandwidth
    start = max(x_axis.low, y_axis.low / bandwidth)
    x1, y1 = x_axis.place(start), y_axis.place(start * bandwidth)
    x2, y2 = x_axis.place(highest / bandwidth), y_axis.place(highest)
    angle = degrees(atan2(y2 - y1, x2 - x1))
    places = [(x1 + part * (x2 - x1), y1 + part * (y2 - y1) - 8, "start") for part in (0.3, 0.08, 0.55, 0.75, 0.9)]
    name = f"{chip.dram_name.upper()} {decimal(bandwidth, 'B/s')}"
    line = tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_="roof")
    label = free.text(name, places, "roofname", needed=True, angle=angle)
    for step in range(48):  # from here on no name may lie on the line
        x, y = x1 + (step + 0.5) / 48 * (x2 - x1), y1 + (step + 0.5) / 48 * (y2 - y1)
        free.block(x - 6, y - 4, x + 6, y + 4)
    return join([line, label])


def _ridge(result: Result, x_axis: Log, y_axis: Log, free: Labels) -> Markup:
    """The intensity at which the chip is balanced for the type of the workload's weights."""
    peak = result.chip.peak(result.graph.workload.dtype)
    ridge = peak / result.chip.dram_bandwidth
    x, bottom = x_axis.place(ridge), _HEIGHT - _BOTTOM
    line = tag("line", x1=x, x2=x, y1=y_axis.place(peak), y2=bottom, class_="ridge")
    places = [(x - 6, bottom - 8, "end"), (x + 6, bottom - 8, "start"), (x - 6, bottom - 40, "end")]
    return join([line, free.text(f"ridge {number(ridge)} FLOP/B", places, "roofname", needed=True)])


def _names(dots: list[_Dot], free: Labels) -> Markup:
    """Names beside the largest dots, as far as they find a free place."""
    largest = sorted((dot for dot in dots if dot.share >= _NAMED), key=lambda dot: -dot.share)[:_LABELS]
    return join(free.text(dot.label, around(dot.x, dot.y, dot.radius), "name") for dot in largest)


def _left_out(rows: list[Row], shown: int, share: float) -> Markup:
    work = sum(row.share for row in rows)
    rest = max(0.0, work - share)
    text = "Area of a dot is its share of the time; point at one to see what it is."
    if shown < len(rows):
        text += f" Not drawn: operators without arithmetic or traffic, or far outside ({percent(rest)} of the time)."
    return tag("p", text, class_="note")
