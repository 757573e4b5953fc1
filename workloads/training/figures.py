"""Pictures of a measured file: the loss of its runs, and predicted memory with the measured points on it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from simulator.units import PS_PER_SECOND
from workloads.training.compare import Compared
from workloads.training.forecast import Forecast

_GB, _MS = 1e9, 1e3
_COLOURS = {
    "parameters": "#1e3a8a", "optimizer": "#3b82f6", "gradients": "#f59e0b", "batch": "#111827",
    "saved activations": "#10b981", "temporaries": "#a7f3d0", "library workspace": "#9ca3af",
}  # fmt: skip
_MEASURED = "#b91c1c"


def draw_memory(rows: Sequence[Compared]) -> Figure:
    """Return predicted bytes by owner over the predicted time of a step, with the measured points of each row."""
    figure = Figure(figsize=(11, 3.4 * -(-len(rows) // 2) + 0.5), layout="constrained")
    for at, row in enumerate(rows, 1):
        axes = figure.add_subplot(-(-len(rows) // 2), min(2, len(rows)), at)
        _timeline(axes, row.found)
        _points(axes, row)
        axes.set_title(f"{row.name}, {row.found.chip.name}", fontsize=10, loc="left")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    return figure


def draw_forecast(found: Forecast) -> Figure:
    """Return the predicted memory of one run, with the capacity of the chip where it is near."""
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    axes = figure.add_subplot()
    _timeline(axes, found)
    capacity = found.chip.dram.capacity / _GB
    if capacity < 2.5 * found.peak_bytes / _GB:
        axes.axhline(capacity, color=_MEASURED, lw=1)
        axes.annotate(f"{found.chip.name} has {capacity:.3g} GB", (0, capacity), xytext=(4, 4),
                      textcoords="offset points", color=_MEASURED, fontsize=9)  # fmt: skip
        axes.set_ylim(0, 1.1 * max(capacity, found.peak_bytes / _GB))
    axes.set_title(f"one step of {found.run.model} on {found.chip.name}, predicted", fontsize=10, loc="left")
    axes.legend(loc="upper right", frameon=False, fontsize=9)
    return figure


def _timeline(axes: Any, found: Forecast) -> None:
    """Stack the owners, what stays longest at the bottom."""
    starts = np.array([each.start for each in found.result.operators]) * _MS / PS_PER_SECOND
    layers = {"library workspace": np.full(len(starts), found.workspace), **found.memory.during}
    shown = {owner: size / _GB for owner, size in layers.items() if size.max() > 0}
    axes.stackplot(
        starts, list(shown.values()), labels=list(shown), colors=[_COLOURS[owner] for owner in shown], step="post"
    )
    axes.set_xlim(0, starts[-1])
    axes.set_xlabel("ms since the start of the step")
    axes.set_ylabel("GB in use")
    axes.spines[["top", "right"]].set_visible(False)


def _points(axes: Any, row: Compared) -> None:
    starts = [each.end * _MS / PS_PER_SECOND for each in row.found.result.operators]
    peak = row.point("peak_bytes").measured / _GB
    axes.axhline(peak, color=_MEASURED, lw=1, ls="--", label="measured peak")
    moments = row.found.memory.moments()
    times = [0.0, *(starts[moments[each]] for each in ("forward", "loss", "backward"))]
    names = ("resident_bytes", "after_forward_bytes", "after_loss_bytes", "after_backward_bytes")
    values = [row.point(name).measured / _GB for name in names]
    axes.plot(times, values, "o", color=_MEASURED, mec="white", ms=6, clip_on=False,
              label="measured: before, after forward, loss, backward", zorder=5)  # fmt: skip
    axes.set_ylim(0, 1.12 * max(peak, row.found.peak_bytes / _GB))


def draw_losses(measured: Mapping[str, Any]) -> Figure:
    """Return loss over steps of pre-training and of fine-tuning, on training and on held-out text."""
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    for at, (stage, title) in enumerate((("pretrain", "pre-training"), ("sft", "fine-tuning")), 1):
        axes = figure.add_subplot(1, 2, at)
        log = measured[stage]["log"]
        axes.plot([line["step"] for line in log], [line["loss"] for line in log], color="#1d4ed8", label="training")
        held = [(0, measured[stage]["validation_loss_before"])]
        held += [(line["step"], line["validation_loss"]) for line in log if "validation_loss" in line]
        axes.plot(*zip(*held, strict=True), "o-", color="#c2410c", lw=1, ms=4, label="held out")
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xlabel("optimizer step")
        axes.set_ylabel("loss, nats a byte")
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
    return figure
