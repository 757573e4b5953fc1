"""The two figures of the chapter: what each pass leaves of a step, and what the fused kernel gains on a GPU."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from simulator.units import PS_PER_SECOND
from workloads.compiler.passes import ModelPasses
from workloads.compiler.predicted import Compared

_APART, _FUSED, _INDUCTOR, _GRID = "#f59e0b", "#1e3a8a", "#9ca3af", "#e5e7eb"
_BOUND = {"compute": "#c2410c", "bandwidth": "#1d4ed8", "launch": "#9ca3af", "capacity": "#7c3aed"}


def passes(found: Sequence[ModelPasses]) -> Figure:
    """Return the time of each step before the passes and after each that changed it, coloured by what binds."""
    figure = Figure(figsize=(11, 2.6 * -(-len(found) // 2) + 0.6), layout="constrained")
    for at, run in enumerate(found, 1):
        axes = figure.add_subplot(-(-len(found) // 2), 2, at)
        steps = [("as traced", run.reports[0].before)]
        steps += [(each.name, each.after) for each in run.reports if each.before != each.after]
        times = [each.time * 1e3 / PS_PER_SECOND for _, each in steps]
        axes.barh([name for name, _ in steps], times, color=[_BOUND[each.bound] for _, each in steps])
        for row, (_, each) in enumerate(steps):
            axes.annotate(f"{each.kernels:,} kernels", (0, row), xytext=(4, 0), textcoords="offset points", va="center",
                          fontsize=8, color="white")  # fmt: skip
        axes.invert_yaxis()
        axes.set_title(f"{run.model} {run.phase}", fontsize=10, loc="left")
        axes.set_xlabel("ms")
        axes.spines[["top", "right"]].set_visible(False)
    handles = [Patch(color=colour, label=f"{name} bound") for name, colour in _BOUND.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(_BOUND), frameon=False)
    return figure


def kernels(found: Sequence[Compared]) -> Figure:
    """Return microseconds over bytes: three kernels, the fused one, torch.compile's; points measured, lines not."""
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    modules = list(dict.fromkeys(each.measured["module"] for each in found))
    panels = figure.subplots(1, len(modules), sharey=True, squeeze=False)[0]
    titles = {"SwiGLU": "residual + silu(gate) * up", "Modulated": "relu(x * scale + shift), scale and shift a row"}
    for axes, module in zip(panels, modules, strict=True):
        rows = [each for each in found if each.measured["module"] == module and each.measured["dtype"] == "bf16"]
        rows.sort(key=lambda each: int(each.measured["bytes"]))
        size = [each.measured["bytes"] / 1e6 for each in rows]
        axes.plot(size, [each.apart for each in rows], color=_APART)
        axes.plot(size, [each.fused for each in rows], color=_FUSED)
        _points(axes, size, rows, "eager_us", _APART, "three kernels of PyTorch")
        _points(axes, size, rows, "triton_us", _FUSED, "generated, one kernel")
        _points(axes, size, rows, "torch_compile_us", _INDUCTOR, "torch.compile", marker="+")
        axes.set(xscale="log", yscale="log", xlabel="MB that one kernel moves")
        axes.set_title(f"{titles.get(module, module)}, bf16", fontsize=10, loc="left")
        axes.grid(color=_GRID)
    panels[0].set_ylabel("us; lines predicted, points measured")
    panels[0].legend(frameon=False, fontsize=9)
    return figure


def _points(
    axes: Axes, size: Sequence[float], rows: Sequence[Compared], key: str, colour: str, label: str, marker: str = "o"
) -> None:
    values: list[Any] = [each.measured[key] for each in rows]
    axes.plot(size, values, marker, color=colour, label=label, ms=8 if marker == "+" else 5)
