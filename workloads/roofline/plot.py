"""The roofline as a picture: roofs of each type, and the steps of a model on them."""

import math
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from simulator.units import decimal
from workloads.figure import save
from workloads.roofline.analysis import Analysis, Point
from workloads.roofline.words import machine_name, title

PREFILL, DECODE, ROOF, OTHER = "#c2410c", "#1d4ed8", "#111827", "#9ca3af"
_TEXT = {"textcoords": "offset points", "fontsize": 9}


def save_plot(found: Analysis, path: Path) -> None:
    """Write the picture; the suffix of *path* says in which format.  OutputError says why it cannot."""
    save(draw(found), path, dpi=150)


def draw(found: Analysis) -> Figure:
    """Return the figure."""
    figure = Figure(figsize=(9, 5.6), layout="constrained")
    axes = figure.add_subplot()
    points = [found.prefill, *found.decode]
    low = min(0.5, *(point.intensity / 2 for point in points))
    high = 4 * max(found.machine.ridge, *found.ridges.values(), *(point.intensity for point in points))
    _roofs(axes, found, low, high)
    _decode(axes, found)
    _mark(axes, found.prefill, PREFILL, "s")
    _note(axes, found.prefill, f"prefill, {found.prefill.tokens:,} tokens", PREFILL, (0, 9), "center")
    _axes(axes, found, low, high)
    return figure


def _roofs(axes: Any, found: Analysis, low: float, high: float) -> None:
    """The slope of the memory, and one ceiling for each type, the one in use in black."""
    at = found.machine
    ceilings: dict[float, list[str]] = {}
    for dtype, ridge in found.ridges.items():
        ceilings.setdefault(ridge, []).append(str(dtype))
    ceilings.setdefault(at.ridge, [str(found.math)])
    top = max(ceilings)
    axes.plot([at.ridge, top], [at.peak, top * at.bandwidth], color=OTHER, lw=1, zorder=1)
    axes.plot([low, at.ridge], [low * at.bandwidth, at.peak], color=ROOF, lw=2, zorder=2)
    for ridge, names in ceilings.items():
        colour, width = (ROOF, 2) if ridge == at.ridge else (OTHER, 1)
        peak = ridge * at.bandwidth
        axes.plot([ridge, high], [peak, peak], color=colour, lw=width, zorder=width)
        text = f"{', '.join(names)}\n{decimal(peak, 'FLOP/s')}"
        axes.annotate(text, (high, peak), xytext=(6, 0), va="center", color=colour, **_TEXT)
    axes.axvline(at.ridge, color=OTHER, lw=0.8, ls=":", zorder=0)
    axes.annotate(f"ridge {at.ridge:,.0f} FLOP/B", (at.ridge, 0), xycoords=("data", "axes fraction"), xytext=(5, 6),
                  color="#6b7280", **_TEXT)  # fmt: skip
    between = math.sqrt(found.decode[0].intensity * found.decode[1].intensity)
    memory = f"{found.chip.dram_name.upper()} {decimal(at.bandwidth, 'B/s')}"
    axes.annotate(memory, (between, between * at.bandwidth), xytext=(-8, 6), ha="right", color=ROOF, **_TEXT)


def _decode(axes: Any, found: Analysis) -> None:
    """Decode at each batch, hollow where it does not fit.  A label that would lie on the one before is left out."""
    last, full = 0.0, False
    for point in found.decode:
        _mark(axes, point, DECODE, "o")
        if point.batch == found.capacity:
            _note(axes, point, f"{point.batch:,}: memory is full", DECODE, (-10, 2), "right")
        elif point.intensity > 1.35 * last:
            label = f"decode, batch {point.batch:,}" if last == 0 else f"{point.batch:,}"
            ending = "" if point.fits or full else " (does not fit)"
            _note(axes, point, label + ending, DECODE, (9, -10), "left")
            last, full = point.intensity, not point.fits


def _mark(axes: Any, point: Point, colour: str, marker: str) -> None:
    face = colour if point.fits else "white"
    axes.plot(point.intensity, point.flops_per_second, marker, ms=8, mfc=face, mec=colour, mew=1.6, zorder=4)


def _note(axes: Any, point: Point, text: str, colour: str, offset: tuple[int, int], align: str) -> None:
    at = (point.intensity, point.flops_per_second)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
    axes.annotate(text, at, xytext=offset, ha=align, color=colour, bbox=box, zorder=3, **_TEXT)


def _axes(axes: Any, found: Analysis, low: float, high: float) -> None:
    axes.set(xscale="log", yscale="log", xlim=(low, high))
    axes.set_ylim(low * found.machine.bandwidth / 1.5, 3 * max(found.ridges.values()) * found.machine.bandwidth)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}" if x >= 1 else f"{x:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: decimal(y, "FLOP/s")))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("arithmetic intensity, FLOP per byte of off-chip memory (weights, keys and values once)")
    axes.set_ylabel(f"attainable on {machine_name(found)}, dense, multiply-add = 2 FLOP")
    axes.set_title(title(found), loc="left", fontsize=11, fontweight="bold")
    axes.grid(which="major", color="#e5e7eb", lw=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
