"""Pictures of lab 8: bytes over the length with the counters on them, SRAM against traffic, and speed as measured."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hw_models import load_chip
from simulator.dims import AttentionDims
from workloads.figure import save
from workloads.flash_attention import traffic
from workloads.flash_attention.chips import HEAD, HEADS, LENGTH, by_sram
from workloads.flash_attention.compare import Row

_WRITTEN, _FUSED, _MEASURED, _GREY = "#f59e0b", "#1e3a8a", "#b91c1c", "#9ca3af"
_SIZE = 2
_CHIPS = ("h200", "tpu-v5e", "edge-npu")


def write(folder: Path, library: Sequence[Row], facts: Mapping[str, Any] | None) -> list[Path]:
    """Write the pictures that there is data for into *folder* and return their paths."""
    paths = []
    for name, figure in draw(library, facts):
        paths.append(folder / f"{name}.png")
        save(figure, paths[-1])
    return paths


def draw(library: Sequence[Row], facts: Mapping[str, Any] | None) -> Iterator[tuple[str, Figure]]:
    """Yield the name and the figure of each picture that there is data for."""
    yield "lab08_traffic", _traffic(library)
    yield "lab08_sram", _sram()
    if facts is not None and isinstance(facts.get("forward"), list) and facts["forward"]:
        yield "lab08_speed", _speed(facts["forward"])


def _traffic(rows: Sequence[Row]) -> Figure:
    """DRAM bytes of a head over the length: lines by formula, points by the counters."""
    figure = Figure(figsize=(7.5, 4.4), layout="constrained")
    axes = figure.add_subplot()
    lengths = [2**power for power in range(8, 16)]
    for head, style in ((64, "--"), (128, "-")):
        dims = [AttentionDims(1, 1, 1, length, length, head, head) for length in lengths]
        written = [sum(kernel.total for kernel in traffic.naive(each, _SIZE)) / 1e6 for each in dims]
        fused = [traffic.flash(each, _SIZE, 128, cache=2**40).total / 1e6 for each in dims]
        axes.plot(lengths, written, style, color=_WRITTEN, label=f"written out, head {head}")
        axes.plot(lengths, fused, style, color=_FUSED, label=f"fused, head {head}")
    counted: dict[str, float] = {}
    for row in rows:
        counted[row.case] = counted.get(row.case, 0.0) + row.counted
    for index, (case, nbytes) in enumerate(counted.items()):
        length, heads, _ = (int(word) for word in case.split()[1::2])
        label = "counters, H200 (PyTorch)" if index == 0 else None
        axes.plot(length, nbytes / heads / 1e6, "o", color=_MEASURED, label=label)
    _logarithmic(axes, "positions", "DRAM bytes of one head, MB")
    axes.set_title("What crosses the memory for one head of attention, fp16, no mask", fontsize=10, loc="left")
    axes.legend(fontsize=8)
    return figure


def _sram() -> Figure:
    """Traffic and time of fused attention over the SRAM of a core, for chips without a shared cache behind it."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, colour in zip(_CHIPS, (_FUSED, _WRITTEN, "#10b981"), strict=True):
        found = [(each.sram / 1024, each.result) for each in by_sram(load_chip(name)) if each.result is not None]
        least = min(result.seconds for _, result in found)
        kib = [size for size, _ in found]
        right.plot(kib, [result.seconds / least for _, result in found], "o-", color=colour, label=name)
        if name == _CHIPS[0]:
            left.plot(
                kib, [result.traffic / 1e9 for _, result in found], "o-", color=_FUSED, label="keys again each block"
            )
    dims = AttentionDims(1, HEADS, HEADS, LENGTH, LENGTH, HEAD, HEAD)
    once = traffic.flash(dims, _SIZE, 128, cache=2**40).total / 1e9
    left.axhline(once, color=_GREY, linestyle=":", label="keys once")
    left.axhline(sum(each.total for each in traffic.naive(dims, _SIZE)) / 1e9, color=_WRITTEN, label="written out")
    _logarithmic(left, "SRAM of a core, KiB", "DRAM traffic, GB")
    _logarithmic(right, "SRAM of a core, KiB", "time over the least")
    for axes, title in ((left, f"{HEADS} heads of {HEAD}, {LENGTH:,} positions"), (right, "The same, on three chips")):
        axes.set_title(title, fontsize=10, loc="left")
        axes.legend(fontsize=8)
    return figure


def _speed(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """TFLOP/s over the length: the kernels of this lab and PyTorch's."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    names = (
        ("triton", "this lab, Triton", _FUSED),
        ("flash", "PyTorch, flash", _WRITTEN),
        ("default", "PyTorch, default", _GREY),
    )
    for axes, causal in zip(panels, (True, False), strict=True):
        mine = sorted((row for row in rows if row["causal"] is causal), key=lambda row: int(row["length"]))
        for name, label, colour in names:
            points = [(row["length"], row[f"{name}_tflops"]) for row in mine if f"{name}_tflops" in row]
            axes.plot([x for x, _ in points], [y for _, y in points], "o-", color=colour, label=label)
        axes.set_xscale("log", base=2)
        axes.set_xlabel("positions")
        axes.set_title("causal" if causal else "no mask", fontsize=10, loc="left")
        axes.grid(alpha=0.3)
    panels[0].set_ylim(0, 1.1 * max(row.get(f"{name}_tflops", 0.0) for row in rows for name, _, _ in names))
    panels[0].set_ylabel("TFLOP/s, bf16, head 128")
    panels[0].legend(fontsize=8)
    return figure


def _logarithmic(axes: Axes, x: str, y: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
