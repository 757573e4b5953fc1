"""``xpusim array sweep``: how large array, scratchpad and bandwidth have to be for a traced program.

Runs TARGET on every combination of array size, SRAM and DRAM bandwidth, and recommends the smallest of each beyond
which a step more gains less than a threshold, with the reason.
"""

import argparse
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from simulator.cli.target import add_target, load_target
from simulator.dtypes import DType
from simulator.errors import UsageError, nearest
from simulator.units import decimal, quantity

if TYPE_CHECKING:
    from hw_models.array_model import Axes, Recommendation, Size, Sweep
    from hw_models.systolic import Dataflow
    from simulator.hardware import Chip

T = TypeVar("T")
_DATAFLOWS = ("ws", "os", "is")
_WIDTH = 120


def add_parser(subcommands: Any) -> None:
    """Register the command below ``xpusim array``."""
    parser = subcommands.add_parser("sweep", help="size array, SRAM and bandwidth for a model", description=__doc__)
    add_target(parser)
    parser.add_argument(
        "--chip", default="edge-npu", metavar="CHIP", help="base: a chip with an array, or a YAML file (edge-npu)"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="PATH=VALUE", help="override a field of the base: cores=1"
    )
    parser.add_argument(
        "--sizes", metavar="N,RxC,...", help="arrays: rows and columns of cells (a quarter to four times the chip's)"
    )
    parser.add_argument(
        "--sram", metavar="BYTES,...", help="scratchpad of each core (a quarter to sixteen times the chip's)"
    )
    parser.add_argument(
        "--bandwidth", metavar="RATE,...", help="of the DRAM, all cores together (half to eight times the chip's)"
    )
    parser.add_argument(
        "--dataflow", metavar="ws|os|is|best", help="what stays in the cells; best: the fastest (the chip's)"
    )
    parser.add_argument("--clock", metavar="RATE", help="of array and vector unit, such as 1GHz (the chip's)")
    parser.add_argument(
        "--threshold", default="10%", metavar="PERCENT", help="a step that gains less is not worth taking (10%%)"
    )
    parser.add_argument("--json", metavar="FILE", help="write every point and the recommendation as one JSON object")
    parser.add_argument("--plot", metavar="FILE", help="draw curves and heat maps: .png, .svg or .pdf")
    parser.add_argument("--html", metavar="FILE", help="write a page with picture and tables")
    parser.set_defaults(run=run_sweep)


def run_sweep(options: argparse.Namespace) -> int:
    """Check everything, trace, sweep, print, write what was asked for."""
    from hw_models import load_chip
    from hw_models.array_model import Program, recommend, sweep

    _check_foreign(options)
    _check_outputs(options)
    threshold = _percent(options.threshold)
    chip = _clocked(load_chip(options.chip, options.set), options.clock)
    dtype = _dtype(options, chip)
    axes = _axes(options, chip, dtype)
    found = sweep(Program(load_target(options), chip), axes)
    best, every = recommend(found, threshold)
    _write(options, found, best, every)
    _print(found, best, every)
    return 0


def _check_foreign(options: argparse.Namespace) -> None:
    """Refuse options of ``xpusim array`` itself that were given before ``sweep``."""
    foreign = ("gemm", "data", "scalesim", "rows", "cols", "dram_bandwidth", "cores", "depth", "convention")
    given = [name.replace("_", "-") for name in foreign if getattr(options, name, None) is not None]
    if given:
        raise UsageError(f"--{given[0]} does not go with array sweep, which runs a TARGET; leave out one of the two")


def _check_outputs(options: argparse.Namespace) -> None:
    from simulator.output import check_writable

    for path in (options.json, options.plot, options.html):
        if path:
            check_writable(Path(path))
    if options.plot:
        from workloads.accelerator.plot import check_format

        check_format(Path(options.plot))


def _percent(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", text)
    if match is None or not 0 < float(match[1]) < 100:
        raise UsageError(f"--threshold {text}: wanted a percentage above 0% and below 100%, such as 10%")
    return float(match[1]) / 100


def _clocked(chip: "Chip", text: str | None) -> "Chip":
    if text is None:
        return chip
    clock = _quantity("clock", "Hz", text)
    from dataclasses import replace

    return replace(chip, matrix=replace(chip.matrix, clock=clock), vector=replace(chip.vector, clock=clock))


def _axes(options: argparse.Namespace, chip: "Chip", dtype: DType) -> "Axes":
    """What was asked for, and around the chip what was not."""
    from hw_models.array_model import Axes
    from workloads.accelerator.grid import axes_around

    around = axes_around(chip, dtype)
    return Axes(
        sizes=_values("sizes", options.sizes, "64 or 64x128", _size) or around.sizes,
        srams=_values("sram", options.sram, "1MiB", partial(_quantity, "sram", "B")) or around.srams,
        bandwidths=_values("bandwidth", options.bandwidth, "64GB/s", partial(_quantity, "bandwidth", "B/s"))
        or around.bandwidths,
        dataflows=around.dataflows if options.dataflow is None else _dataflows(options.dataflow),
    )


def _dtype(options: argparse.Namespace, chip: "Chip") -> DType:
    """The type to be traced; that of a saved graph, or of an unknown name, is found out later."""
    saved = options.target.endswith(".json")
    return DType(options.dtype) if options.dtype in list(DType) and not saved else next(iter(chip.matrix.dtypes))


def _values(option: str, text: str | None, example: str, read: Callable[[str], T]) -> tuple[T, ...]:
    """The values of a list; none if it was not given."""
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise UsageError(f"--{option} {text!r}: an empty value; wanted values such as {example}, with commas between")
    return tuple(read(part) for part in parts)


def _size(text: str) -> "Size":
    from hw_models.array_model import Size

    match = re.fullmatch(r"(\d+)(?:x(\d+))?", text)
    if match is None:
        raise UsageError(f"--sizes {text}: wanted a number of rows and columns, such as 64 or 64x128")
    size = Size(int(match[1]), int(match[2] or match[1]))
    if min(size.rows, size.columns) < 1:
        raise UsageError(f"--sizes {text}: must be at least 1")
    return size


def _quantity(option: str, unit: str, text: str) -> int:
    try:
        value = quantity(text, unit)
    except ValueError as error:
        raise UsageError(f"--{option}: {error}") from None
    if value < 1:
        raise UsageError(f"--{option} {text}: must be more than 0")
    return value


def _dataflows(name: str) -> "tuple[Dataflow, ...]":
    from hw_models.systolic import Dataflow

    known = (*_DATAFLOWS, "best")
    if name not in known:
        raise UsageError(f"--dataflow {name}: unknown{nearest(name, known)} (known: {', '.join(known)})")
    return tuple(Dataflow(each) for each in (_DATAFLOWS if name == "best" else (name,)))


def _write(options: argparse.Namespace, found: "Sweep", best: "Recommendation", every: "list[Recommendation]") -> None:
    if options.json:
        from simulator.output import write_text
        from workloads.accelerator.data import as_data, dumps

        write_text(Path(options.json), dumps(as_data(found, best, every)))
    if options.plot:
        from workloads.accelerator.plot import save_plot

        save_plot(found, best, Path(options.plot))
    if options.html:
        from workloads.accelerator.page import write_page

        write_page(found, best, every, Path(options.html))


def _print(found: "Sweep", best: "Recommendation", every: "list[Recommendation]") -> None:
    from rich.console import Console
    from rich.text import Text

    from simulator.cli.lab import rich_table
    from simulator.terminal import COLOURS
    from workloads.accelerator import tables, words

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH)
    program, point = found.program, best.point
    chip = program.chip
    cores = f"{chip.cores} core{'s' * (chip.cores > 1)}"
    console.print(Text(f"{words.name_of(program.graph.workload)} on arrays of {chip.name}, {cores}", style="bold"))
    console.print(Text(f"{len(found.points):,} points. {words.CONVENTIONS}", style="dim"))
    if found.without_fold:
        console.print(Text(f"{found.without_fold:,} more left out: the SRAM cannot hold one fold of the array"))
    console.print(_room(found))
    console.print(Text.assemble(("enough: ", "bold"), f"{words.sizes(point)}: {words.outcome(point)}."))
    for choice in best.choices:
        console.print(Text(f"- {words.reason(choice, best, program)}"))
    resource = words.resource(point)
    console.print(Text(f"{resource} bound", style=f"bold {COLOURS[resource]}"))
    shown = (tables.by_bandwidth(every), tables.array_by_sram(found, point), tables.array_by_bandwidth(found, point))
    for table in shown:
        console.print()
        console.print(Text(table.title, style="bold"))
        console.print(rich_table(table))


def _room(found: "Sweep") -> str:
    """Whether what the program keeps fits in the memory of the base chip."""
    program = found.program
    chip, kept = program.chip, sum(storage.nbytes for storage in program.graph.storages if storage.role.resident)
    room = chip.dram.capacity
    state = "fit in" if kept <= room else f"exceed by {decimal(kept - room, 'B')}"
    return f"weights, cache and input, {decimal(kept, 'B')}, {state} the {decimal(room, 'B')} of its {chip.dram_name}"
