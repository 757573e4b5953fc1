"""Draws every figure of the chapters from docs/data and from the simulator, and holds the numbers in them.

python docs/figures.py              # draws docs/images/*.png and writes what they show to docs/data/figures/*.json
python docs/figures.py 7 8          # those of labs 7 and 8
python docs/figures.py --check      # draws nothing: exit 1 if a figure would show other numbers than those kept

A picture cannot be compared between versions of matplotlib; the numbers of its lines, bars, areas and images can.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.figure import Figure

DOCS = Path(__file__).parent
IMAGES, DATA = DOCS / "images", DOCS / "data"
KEPT = DATA / "figures"
Figures = Iterator[tuple[str, Figure]]
_DIGITS = 6  # that are kept of a number
_CLOSE = 1e-4  # relative: sums in another order, other versions of numpy


def lab04() -> Figures:
    """Memory of a training step over its time, and the losses of the runs."""
    from workloads.training.commands import DRAWN
    from workloads.training.compare import compare, read_measured
    from workloads.training.figures import draw_losses, draw_memory

    measured = read_measured(DATA / "lab04_h200.json")
    yield "lab04_memory", draw_memory([row for row in compare(measured, _chip()) if row.name in DRAWN])
    yield "lab04_loss", draw_losses(measured)


def lab06() -> Figures:
    """Decode against batch in bf16, w8 and w4: simulated lines, measured points."""
    from workloads.inference.curve import Settings
    from workloads.inference.curve_plot import draw
    from workloads.inference.lab import CONTEXT, MODEL, curves_of, measured_on, unpacked_for_nothing

    settings = Settings(_chip(), CONTEXT, (1, 2, 4, 8, 16, 32, 64, 96, 128, 256, 512))
    curves = [*curves_of(settings), unpacked_for_nothing(settings)]
    yield "lab06_curve", draw(MODEL, settings, [each for each in curves if each], measured_on(settings.chip))


def lab07() -> Figures:
    """The ladder on the roofline, and on-chip KiB -> tile -> traffic -> time."""
    from workloads.gemm.compare import SIZES, load, rows
    from workloads.gemm.curve import curve
    from workloads.gemm.plot import onchip, roofline

    chip, measured = _chip(), load(DATA / "lab07_h200.json")
    yield "lab07_roofline", roofline(chip, rows(chip, SIZES[0], measured))
    yield "lab07_onchip", onchip(chip, curve(chip, (SIZES[0],) * 3), measured.get("tiles", []))


def lab08() -> Figures:
    """Bytes over the length, SRAM against traffic, and speed as measured."""
    from workloads.flash_attention import compare, figures, page

    yield from figures.draw(compare.library_rows(), page.load(DATA / "lab08_h200.json"))


def lab09() -> Figures:
    """What each pass leaves of a step, and what the generated kernel gains on the GPU."""
    from workloads.compiler import plot
    from workloads.compiler.passes import every
    from workloads.compiler.predicted import compared

    yield "lab09_passes", plot.passes(list(every(_chip())))
    yield "lab09_kernels", plot.kernels(compared(_chip()))


def lab10() -> Figures:
    """What a rank sends over its degree, and the time lost over the bandwidth of its links."""
    from workloads.distributed import plot

    yield "lab10_sent", plot.draw_sent(plot.training_graph(plot.SENT_MODEL))
    yield "lab10_links", plot.draw_lost(plot.lost())


def lab11() -> Figures:
    """Utilisation and time over array, SRAM and bandwidth."""
    from workloads.accelerator.__main__ import figures
    from workloads.accelerator.grid import base_chip
    from workloads.accelerator.lab import runs

    yield from figures(list(runs(base_chip(_chip()))))


LABS: dict[str, Callable[[], Figures]] = {
    "4": lab04, "6": lab06, "7": lab07, "8": lab08, "9": lab09, "10": lab10, "11": lab11,
}  # fmt: skip


def _chip() -> Any:
    from hw_models import load_chip

    return load_chip("h200")


def shown(figure: Figure) -> list[dict[str, Any]]:
    """Return the numbers that *figure* shows: of each axes its title, labels and series."""
    return [_axes(axes) for axes in figure.axes]


def _axes(axes: Axes) -> dict[str, Any]:
    series: list[dict[str, Any]] = [
        {"line": str(line.get_label()), "x": _kept(line.get_xdata()), "y": _kept(line.get_ydata())}
        for line in axes.lines
    ]
    for bars in axes.containers:
        boxes = [patch.get_bbox().bounds for patch in bars.patches] if hasattr(bars, "patches") else []
        series.append({"bars": str(bars.get_label()), "bounds": _kept(boxes)})
    for area in axes.collections:
        if isinstance(area, PathCollection):
            series.append({"points": str(area.get_label()), "at": _kept(area.get_offsets())})
        elif isinstance(area, PolyCollection):  # the outline of a large area is a list of thousands: its bounds
            corners = np.concatenate([path.vertices for path in area.get_paths()])
            bounds = [*corners.min(axis=0), *corners.max(axis=0), float(np.mean(corners[:, 1]))]
            series.append({"area": str(area.get_label()), "bounds": _kept(bounds)})
    series += [{"image": _kept(image.get_array())} for image in axes.images]
    return {"title": axes.get_title(loc="left"), "x": axes.get_xlabel(), "y": axes.get_ylabel(), "series": series}


def _kept(values: Any) -> list[Any]:
    """Numbers with so many digits as are kept; words as they are; where there is nothing, null."""
    found = np.ma.filled(np.ma.asarray(values), np.nan) if not isinstance(values, list) else np.asarray(values)
    if found.dtype.kind in "US":
        return [str(each) for each in found]
    flat = [None if not np.isfinite(each) else float(f"{each:.{_DIGITS}g}") for each in found.astype(float).ravel()]
    return flat if found.ndim < 2 else np.array(flat, dtype=object).reshape(found.shape).tolist()


def differences(was: Any, now: Any, where: str = "") -> Iterator[str]:
    """Yield a line for every number or word that is not what it was."""
    if isinstance(was, Mapping) and isinstance(now, Mapping) and was.keys() == now.keys():
        for key in was:
            yield from differences(was[key], now[key], f"{where} {key}")
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for index, (one, other) in enumerate(zip(was, now, strict=True)):
            yield from differences(one, other, f"{where}[{index}]")
    elif isinstance(was, int | float) and isinstance(now, int | float):
        if abs(was - now) > _CLOSE * max(abs(was), abs(now)):
            yield f"{where}: was {was:g}, now {now:g}"
    elif was != now:
        yield f"{where}: was {str(was)[:60]}, now {str(now)[:60]}"


def check(name: str, figure: Figure) -> list[str]:
    """Return in what *figure* differs from what is kept of it."""
    path = KEPT / f"{name}.json"
    if not path.exists():
        return [f"{name}: nothing is kept of it; run docs/figures.py"]
    return [f"{name} {line}" for line in differences(json.loads(path.read_text()), shown(figure))]


def write(name: str, figure: Figure) -> None:
    """Write the picture and what it shows."""
    figure.savefig(IMAGES / f"{name}.png", dpi=130)
    KEPT.mkdir(exist_ok=True)
    (KEPT / f"{name}.json").write_text(json.dumps(shown(figure)) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Draw or check; 1 if a figure shows other numbers than those kept, 2 for a lab without figures."""
    parser = argparse.ArgumentParser(
        prog="python docs/figures.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("labs", nargs="*", metavar="LAB", help=f"of {', '.join(LABS)} (all)")
    parser.add_argument("--check", action="store_true", help="compare with what is kept, and draw nothing")
    options = parser.parse_args(arguments)
    unknown = [each for each in options.labs if each not in LABS]
    if unknown:
        parser.error(f"lab {', '.join(unknown)}: has no figures (those that have: {', '.join(LABS)})")
    found: list[str] = []
    for lab in options.labs or LABS:
        for name, figure in LABS[lab]():
            if options.check:
                found += check(name, figure)
            else:
                write(name, figure)
            sys.stdout.write(f"{name}\n")
    for line in found[:40]:
        sys.stderr.write(line + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
