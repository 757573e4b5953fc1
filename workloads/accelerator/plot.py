"""A sweep as a picture: what each bandwidth does with larger arrays, and where larger sizes stop to pay."""

from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, PercentFormatter

from hw_models.array_model import Point, Recommendation, Sweep
from simulator.errors import OutputError
from simulator.units import PS_PER_SECOND, binary, decimal, seconds
from workloads.accelerator.words import name_of, outcome, resource, sizes
from workloads.figure import save

_FORMATS = (".png", ".svg", ".pdf")
INK, GRID, MARK = "#111827", "#e5e7eb", "#c2410c"


def save_plot(sweep: Sweep, found: Recommendation, path: Path) -> None:
    """Write the picture; the suffix of *path* says in which format.  OutputError says why it cannot."""
    save(draw(sweep, found), path)


def check_format(path: Path) -> None:
    """Raise OutputError unless the suffix of *path* is that of a picture."""
    if path.suffix not in _FORMATS:
        raise OutputError(f"cannot write {path}: wanted a name that ends in {', '.join(_FORMATS)}")


def svg(sweep: Sweep, found: Recommendation) -> str:
    """Return the picture as an SVG element, for a page."""
    text = StringIO()
    draw(sweep, found).savefig(text, format="svg")
    written = text.getvalue()
    return written[written.index("<svg") :]


def draw(sweep: Sweep, found: Recommendation) -> Figure:
    """Return the figure: two curves above, two heat maps below, the verdict on top."""
    point = found.point
    figure = Figure(figsize=(12, 9), layout="constrained")
    chip, cores = sweep.program.chip.name, sweep.program.chip.cores
    where = f"{chip}, {cores} core{'s' * (cores > 1)}"
    figure.suptitle(
        f"{name_of(sweep.program.graph.workload)}: enough are {sizes(point)}\n"
        f"{resource(point)} bound: {outcome(point)}; on {where}",
        x=0.01, ha="left", fontsize=12, fontweight="bold",
    )  # fmt: skip
    (used, reached), (room, speed) = figure.subplots(2, 2)
    _curves(used, sweep, point, lambda each: each.utilisation)
    used.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    used.set_ylim(0, 1.05)
    used.set_ylabel("share of the arrays' peak that is used")
    used.set_title(f"Utilisation with {binary(point.sram)} of SRAM", loc="left", fontsize=11)
    _curves(reached, sweep, point, lambda each: each.achieved)
    reached.set_yscale("log")
    reached.set_yticks(sweep.axes.bandwidths, [decimal(each, "B/s") for each in sweep.axes.bandwidths])
    reached.minorticks_off()
    reached.set_ylabel("achieved DRAM bandwidth, average of the run")
    reached.set_title("Bandwidth reached (dashed: what there is)", loc="left", fontsize=11)
    _ceilings(reached, sweep)
    _array_by_sram(figure, room, sweep, point)
    _array_by_bandwidth(figure, speed, sweep, point)
    return figure


def draw_sizes(found: Mapping[str, Sequence[Recommendation]], weights_a_second: float) -> Figure:
    """Return the figure of what each run needs at each bandwidth: side of the array, SRAM, and the time with them.

    weights_a_second  bytes of weights that enter one column of all arrays in a second: the line that decode follows.
    """
    figure = Figure(figsize=(13, 4.8), layout="constrained")
    figure.suptitle("Array and SRAM that are enough, by DRAM bandwidth: a step more saves less than "
                    f"{next(iter(found.values()))[0].threshold:.0%}",
                    x=0.01, ha="left", fontsize=13, fontweight="bold")  # fmt: skip
    side, sram, time = figure.subplots(1, 3)
    for (name, every), (colour, marker, size) in zip(found.items(), _LOOKS, strict=False):
        points = [each.point for each in every]
        xs = [point.bandwidth for point in points]
        style = {"color": colour, "marker": marker, "ms": size, "lw": 1.8, "label": name}
        side.plot(xs, [point.size.columns for point in points], **style)
        sram.plot(xs, [point.sram for point in points], **style)
        time.plot(xs, [point.seconds for point in points], **style)
    side.plot(
        xs, [each / weights_a_second for each in xs], color=INK, ls=":", label="weights enter as fast as they come"
    )
    side.set_title("Columns of the array", loc="left", fontsize=11)
    sram.set_title("SRAM", loc="left", fontsize=11)
    time.set_title("Time with them", loc="left", fontsize=11)
    time.set_yscale("log")
    time.yaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds(value * PS_PER_SECOND, 3)))
    for axes in (side, sram):
        axes.set_yscale("log", base=2)
    side.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    sram.yaxis.set_major_formatter(FuncFormatter(lambda value, _: binary(value)))
    for axes in (side, sram, time):
        axes.set_xscale("log", base=2)
        axes.set_xticks(xs, [decimal(each, "B/s") for each in xs], fontsize=8)
        axes.set_xlabel("DRAM bandwidth")
        _quiet(axes)
    side.legend(fontsize=8, frameon=False)
    return figure


_LOOKS = (
    ("#9ca3af", "s", 9),
    ("#93c5fd", "o", 12),
    ("#c2410c", "s", 6),
    ("#1d4ed8", "o", 6),
)  # the first may lie under


def _ticks(sweep: Sweep) -> list[str]:
    return [str(size) for size in sweep.axes.sizes]


def _colours(sweep: Sweep) -> list[Any]:
    return [colormaps["viridis"](share) for share in np.linspace(0.05, 0.85, len(sweep.axes.bandwidths))]


def _curves(axes: Any, sweep: Sweep, at: Point, value: Callable[[Point], float]) -> None:
    """One line a bandwidth over the sizes of the array, with the scratchpad of *at*, which is ringed."""
    column = sweep.axes.srams.index(at.sram)
    for depth, (bandwidth, colour) in enumerate(zip(sweep.axes.bandwidths, _colours(sweep), strict=True)):
        line = [sweep.at.get((row, column, depth)) for row in range(len(sweep.axes.sizes))]
        ys = [nan if each is None else value(each) for each in line]
        axes.plot(range(len(ys)), ys, "o-", color=colour, ms=5, lw=1.8, label=decimal(bandwidth, "B/s"))
    axes.plot(sweep.axes.sizes.index(at.size), value(at), "o", ms=13, mfc="none", mec=MARK, mew=2.2, label="enough")
    axes.set_xticks(range(len(sweep.axes.sizes)), _ticks(sweep))
    axes.set_xlabel("cells of each array, rows x columns")
    axes.legend(title="DRAM bandwidth", fontsize=8, title_fontsize=8, frameon=False, loc="best")
    _quiet(axes)


def _ceilings(axes: Any, sweep: Sweep) -> None:
    for bandwidth, colour in zip(sweep.axes.bandwidths, _colours(sweep), strict=True):
        axes.axhline(bandwidth, color=colour, lw=0.9, ls="--", zorder=1)


def _array_by_sram(figure: Figure, axes: Any, sweep: Sweep, at: Point) -> None:
    depth = sweep.axes.bandwidths.index(at.bandwidth)
    columns = [binary(sram) for sram in sweep.axes.srams]
    points = _table(sweep, len(columns), lambda row, column: (row, column, depth))
    _heat(figure, axes, points, columns, sweep, at)
    axes.set_xlabel("SRAM of each core")
    axes.set_title(f"Time at {decimal(at.bandwidth, 'B/s')}", loc="left", fontsize=11)


def _array_by_bandwidth(figure: Figure, axes: Any, sweep: Sweep, at: Point) -> None:
    column = sweep.axes.srams.index(at.sram)
    columns = [decimal(bandwidth, "B/s") for bandwidth in sweep.axes.bandwidths]
    points = _table(sweep, len(columns), lambda row, depth: (row, column, depth))
    _heat(figure, axes, points, columns, sweep, at)
    axes.set_xlabel("DRAM bandwidth")
    axes.set_title(f"Time with {binary(at.sram)} of SRAM", loc="left", fontsize=11)


def _table(sweep: Sweep, columns: int, index: Callable[[int, int], tuple[int, int, int]]) -> list[list[Point | None]]:
    return [[sweep.at.get(index(row, column)) for column in range(columns)] for row in range(len(sweep.axes.sizes))]


def _heat(
    figure: Figure, axes: Any, points: Sequence[Sequence[Point | None]], columns: Sequence[str], sweep: Sweep, at: Point
) -> None:
    """Times as colours on a log scale and as text, *at* framed; grey where no fold fits."""
    shown = np.array([[nan if point is None else point.seconds for point in row] for row in points])
    scale = LogNorm(float(np.nanmin(shown)), 1.0001 * float(np.nanmax(shown)))
    image = axes.imshow(shown, colormaps["YlGnBu"].with_extremes(bad="#d1d5db"), scale, aspect="auto", origin="lower")
    for row, line in enumerate(points):
        for column, point in enumerate(line):
            text = "no fold" if point is None else seconds(point.time, 3)
            dark = point is not None and scale(point.seconds) > 0.5
            axes.text(column, row, text, ha="center", va="center", fontsize=8, color="white" if dark else INK)
            if point == at:
                axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, ec=MARK, lw=2.6))
    axes.set_xticks(range(len(columns)), columns, fontsize=8)
    axes.set_yticks(range(len(points)), _ticks(sweep))
    axes.set_ylabel("cells of each array")
    written = FuncFormatter(lambda value, _: seconds(value * PS_PER_SECOND, 2))
    bar = figure.colorbar(image, ax=axes, shrink=0.85, ticks=LogLocator(subs=(1, 2, 5)), format=written)
    bar.minorticks_off()
    bar.set_label("time (less is better)")


def _quiet(axes: Any) -> None:
    axes.grid(which="major", color=GRID, lw=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
