"""The two figures of the chapter: the ladder on the roofline, and what bytes on a core buy."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.hardware import Chip
from workloads.gemm.compare import Row
from workloads.gemm.curve import KIB, Point, storage
from workloads.gemm.predict import float_type
from workloads.gemm.steps import Config
from workloads.gemm.traffic import intensity

_SIDES = (16, 32, 64, 128, 256)
_INK, _GRID, _PREDICTED, _MEASURED = "#111827", "#e5e7eb", "#2563eb", "#c2410c"


def roofline(chip: Chip, found: Sequence[Row]) -> Figure:
    """Return the steps over their DRAM intensity and over their L2 intensity, under the chip's roofs."""
    figure = Figure(figsize=(11, 5), layout="constrained")
    dram, l2 = figure.subplots(1, 2, sharey=True)
    peak = chip.peak(float_type(chip)) / 1e12
    cache = max((level.bandwidth or 0 for level in chip.memory.values() if level.scope == "chip"), default=0)
    size = found[0].prediction.sizes[0]
    figure.suptitle(f"The ladder on the roofline of {chip.name}, {size} x {size} x {size} in bf16")
    for axes, bandwidth, name in ((dram, chip.dram_bandwidth, "DRAM"), (l2, cache, "L2")):
        values = [getattr(row.prediction.traffic, name.lower()) for row in found]
        at = [intensity(row.prediction.sizes, value) for row, value in zip(found, values, strict=True)]
        span = [min(at) / 3, max(at) * 6]
        if bandwidth:
            ridge = peak * 1e12 / bandwidth
            xs = sorted([*span, min(max(ridge, span[0]), span[1])])
            axes.plot(xs, [min(peak, bandwidth * x / 1e12) for x in xs], color=_INK, lw=1.5)
        axes.plot(
            at, [row.prediction.flops_per_second / 1e12 for row in found], "o", color=_PREDICTED, label="predicted"
        )
        counted = [getattr(row, name.lower()) for row in found]  # bytes; where nobody counted, those predicted
        own = [
            intensity(row.prediction.sizes, own or value)
            for row, own, value in zip(found, counted, values, strict=True)
        ]
        timed = [(x, row) for x, row in zip(own, found, strict=True) if row.seconds]
        axes.plot(
            [x for x, _ in timed], [2 * size**3 / (row.seconds or 1) / 1e12 for _, row in timed], "x", color=_MEASURED,
            ms=8, label="measured",
        )  # fmt: skip
        _label_steps(axes, at, found)
        axes.set(xscale="log", yscale="log", xlabel=f"FLOP per byte of {name}")
        axes.grid(color=_GRID)
    dram.set_ylabel("TFLOP/s")
    dram.legend(loc="lower right")
    return figure


def _label_steps(axes: Axes, at: Sequence[float], found: Sequence[Row]) -> None:
    """Name the steps; those that lie on each other share a label."""
    groups: list[tuple[float, float, list[str]]] = []
    for x, row in zip(at, found, strict=True):
        y = row.prediction.flops_per_second / 1e12
        near = next((g for g in groups if abs(g[0] / x - 1) < 0.5 and abs(g[1] / y - 1) < 0.3), None)
        if near:
            near[2].append(row.prediction.step.name)
        else:
            groups.append((x, y, [row.prediction.step.name]))
    for x, y, names in groups:
        text = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        axes.annotate(text, (x, y), xytext=(8, -3), textcoords="offset points", fontsize=8, va="top")


def onchip(chip: Chip, points: Sequence[Point], measured: Sequence[dict[str, Any]] = ()) -> Figure:
    """Return tile, traffic and time over the KiB of a core; *measured* are the tiles of a device run."""
    figure = Figure(figsize=(9, 9), layout="constrained")
    sides, bytes_, times = figure.subplots(3, 1, sharex=True)
    size = points[0].prediction.sizes[0]
    figure.suptitle(f"On-chip KiB -> best tile -> traffic -> time: {size} x {size} x {size} in bf16 on {chip.name}")
    xs = [point.capacity / KIB for point in points]
    cells = [point.config.block_m * point.config.block_n for point in points]
    sides.plot(xs, [each**0.5 for each in cells], "o-", color=_PREDICTED)
    for x, point in zip(xs, points, strict=True):
        text = f"{point.config.block_m}x{point.config.block_n}"
        sides.annotate(text, (x, (point.config.block_m * point.config.block_n) ** 0.5), xytext=(5, -11),
                       textcoords="offset points", fontsize=8)  # fmt: skip
    sides.set(ylabel="side of the tile (root of its cells)", yscale="log")
    bytes_.plot(xs, [p.prediction.traffic.asked / 1e9 for p in points], "o-", color=_PREDICTED, label="to the cores")
    bytes_.plot(xs, [p.prediction.traffic.dram / 1e9 for p in points], "s-", color=_INK, label="DRAM")
    bytes_.axhline(points[0].prediction.traffic.least / 1e9, color=_INK, ls=":", label="each matrix once")
    bytes_.set(ylabel="GB", yscale="log")
    bytes_.legend()
    times.plot(xs, [p.prediction.time / 1e9 for p in points], "o-", color=_PREDICTED, label="best tile, predicted")
    for x, point in zip(xs, points, strict=True):
        times.annotate(str(point.prediction.bound), (x, point.prediction.time / 1e9), xytext=(5, 4),
                       textcoords="offset points", fontsize=8)  # fmt: skip
    done = [
        (storage(Config(**each["config"]), 2) / KIB, each["seconds"] * 1e3) for each in measured if "seconds" in each
    ]
    if done:
        times.plot(*zip(*done, strict=True), "x", color=_MEASURED, ms=8, label="tiles as measured, several a core")
    peak = 2 * size**3 / chip.peak(float_type(chip)) * 1e3
    times.axhline(peak, color=_INK, ls=":", label="peak of the matrix units")
    times.set(ylabel="ms", yscale="log", xlabel="KiB of one core for slices and sums", xscale="log")
    times.set_xticks(xs, [f"{x:g}" for x in xs])
    times.set_xlim(xs[0] / 1.5, xs[-1] * 2)
    times.minorticks_off()
    sides.set_yticks(_SIDES, [str(each) for each in _SIDES])
    sides.minorticks_off()
    times.legend()
    for axes in (sides, bytes_, times):
        axes.grid(color=_GRID)
    return figure
