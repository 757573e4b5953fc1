"""Draws tokens/s against batch: simulated lines, measured points, the knee and the capacity limit."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.errors import OutputError
from simulator.units import PS_PER_SECOND
from workloads.inference.curve import Curve, Settings
from workloads.inference.curve_words import title
from workloads.inference.measured import MeasuredPoint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = ("#2b6cd4", "#dd7a0b", "#15936b", "#9a4fc1")


def save_plot(
    model: str, settings: Settings, curves: Sequence[Curve], measured: Sequence[MeasuredPoint], path: Path
) -> None:
    """Write the picture to *path*, in the format of its name; OutputError if that cannot be done."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  seconds that only a plot needs

    figure = draw(model, settings, curves, measured)
    FigureCanvasAgg(figure)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from None


def draw(model: str, settings: Settings, curves: Sequence[Curve], measured: Sequence[MeasuredPoint]) -> "Figure":
    """Return the picture."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    for colour, each in zip(_COLOURS, curves, strict=False):
        inside = [point for point in each.points if point.fits]
        outside = each.points[max(0, len(inside) - 1) :]
        axes.plot([p.batch for p in inside], [p.tokens_per_second for p in inside], "-", color=colour)
        axes.plot([p.batch for p in outside], [p.tokens_per_second for p in outside], ":", color=colour)
        axes.plot([], [], "-", color=colour, label=f"{each.name} (knee {each.knee:.0f}, fits {each.limit:,})")
        _marks(axes, each, colour)
        points = [point for point in measured if point.quant == each.quant]
        rates = [point.batch * PS_PER_SECOND / point.step for point in points]
        if points:
            axes.plot([p.batch for p in points], rates, "o", color=colour, label=f"{each.name}, measured")
    axes.set(xscale="log", yscale="log", xlabel="batch, sequences", ylabel="decode, tokens/s")
    axes.set_title(title(model, settings), fontsize=10)
    axes.plot([], [], "--", color="grey", linewidth=0.8, label="knee")
    axes.plot([], [], "-", color="grey", linewidth=0.8, label="KV cache is full")
    ticks = [point.batch for point in curves[0].points]
    axes.set_xticks(ticks, [str(each) for each in ticks])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9)
    return figure


def _marks(axes: object, curve: Curve, colour: str) -> None:
    """The knee as a dashed line and the capacity limit as a solid one, where the plot reaches them."""
    draw = getattr(axes, "axvline")  # noqa: B009  matplotlib has no types for a figure made by hand
    last = curve.points[-1].batch
    if curve.points[0].batch <= curve.knee <= last:
        draw(curve.knee, color=colour, linestyle="--", linewidth=0.8)
    if curve.points[0].batch <= curve.limit <= last:
        draw(curve.limit, color=colour, linestyle="-", linewidth=0.8, alpha=0.6)
