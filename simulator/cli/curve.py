"""``xpusim curve``: decode tokens/s against batch for bf16, w8 and w4 weights, the roofline's knee, and what fits."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.cli.serving_options import (
    add_model,
    cache_type,
    check_common,
    context_of,
    load_family,
)
from simulator.errors import UsageError

if TYPE_CHECKING:
    from workloads.inference.curve import Curve, Settings
    from workloads.inference.measured import MeasuredPoint

_WIDTH = 110
_MOST_BATCH = 4096


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("curve", help="decode rate against batch and quantisation", description=__doc__)
    add_model(parser)
    parser.add_argument("--quant", default="none,w8,w4", metavar="Q,Q,...", help="weights (none,w8,w4)")
    parser.add_argument("--batches", metavar="B,B,...", help="sequences (1,2,4,... 256)")
    parser.add_argument("--context", type=int, metavar="C", help="positions in each KV cache (2048)")
    parser.add_argument(
        "--measured", metavar="FILE", help="JSON or CSV with quant, batch, seconds of a step: beside it"
    )
    parser.add_argument("--json", metavar="FILE", help="write everything as one JSON object")
    parser.add_argument("--plot", metavar="FILE", help="draw it: .png, .svg or .pdf")
    parser.set_defaults(run=run_curve)


def run_curve(options: argparse.Namespace) -> int:
    """Check, trace, time, write what was asked for, print."""
    from hw_models import load_chip
    from workloads.inference.curve import Settings
    from workloads.inference.measured import read_measured

    quants, batches = _check(options)
    measured = read_measured(Path(options.measured), options.target, options.context) if options.measured else []
    chip = load_chip(options.chip, options.set)
    settings = Settings(
        chip,
        options.context,
        batches,
        _mode(options),
        options.fidelity,
        cache_type(options),
        options.memory_fraction,
        options.block_size,
    )
    curves = _curves(options, settings, quants)
    _write(options, settings, curves, measured)
    _print(options.target, settings, curves, measured)
    return 0


def _check(options: argparse.Namespace) -> tuple[list[str], tuple[int, ...]]:
    """Kinds of weights and batches; UsageError for what cannot be."""
    from simulator.output import check_writable
    from simulator.packing import bits_of
    from workloads.inference.curve import BATCHES

    check_common(options)
    quants = list(dict.fromkeys(options.quant.split(",")))
    for each in quants:
        bits_of(each)
    if options.context is not None and options.context < 1:
        raise UsageError(f"--context {options.context}: must be at least 1")
    options.context = options.context or min(2048, context_of(options, 2048))
    context_of(options, 2048)
    for path in (options.json, options.plot):
        if path:
            check_writable(Path(path))
    if options.plot and Path(options.plot).suffix not in (".png", ".svg", ".pdf"):
        raise UsageError(f"--plot {options.plot}: wanted a name that ends with .png, .svg or .pdf")
    return quants, _batches(options.batches) if options.batches else BATCHES


def _batches(text: str) -> tuple[int, ...]:
    try:
        found = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        found = (0,)
    if found[0] < 1 or found[-1] > _MOST_BATCH:
        raise UsageError(f"--batches {text}: wanted numbers from 1 to {_MOST_BATCH}, such as 1,8,64")
    return found


def _mode(options: argparse.Namespace) -> Any:
    from simulator.program import mode_of

    return mode_of(options.mode)


def _curves(options: argparse.Namespace, settings: "Settings", quants: list[str]) -> "list[Curve]":
    from workloads.inference.curve import curve
    from workloads.inference.families import packed
    from workloads.inference.speculate import SpeculativeTimes, speculation
    from workloads.inference.times import StepTimes

    how = speculation(options.speculate) if options.speculate else None
    family = load_family(options)
    draft = load_family(options, how.draft) if how else None
    found = []
    for quant in quants:
        made = packed(family, quant)
        if how is None or draft is None:
            found.append(curve(made, quant, settings))
            continue
        one, two = (
            StepTimes(each, settings.chip, settings.mode, settings.fidelity, settings.cache) for each in (made, draft)
        )
        times = SpeculativeTimes(one, two, how.tokens)
        found.append(curve(made, quant, settings, times.decode, how.gain))
    return found


def _write(
    options: argparse.Namespace, settings: "Settings", curves: "list[Curve]", measured: "list[MeasuredPoint]"
) -> None:
    if options.json:
        from simulator.output import write_text
        from workloads.inference.curve import as_data

        write_text(Path(options.json), json.dumps(as_data(options.target, settings, curves, measured), indent=1) + "\n")
    if options.plot:
        from workloads.inference.curve_plot import save_plot

        save_plot(options.target, settings, curves, measured, Path(options.plot))


def _print(target: str, settings: "Settings", curves: "list[Curve]", measured: "list[MeasuredPoint]") -> None:
    from rich.console import Console
    from rich.text import Text

    from simulator.cli.lab import rich_table
    from simulator.terminal import COLOURS
    from workloads.inference import curve_words

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH)
    console.print(Text(curve_words.title(target, settings), style="bold"))
    for table in curve_words.tables(settings, curves, measured):
        console.print()
        console.print(Text(table.title, style="bold"))
        console.print(rich_table(table))
        if table.note:
            console.print(Text(table.note, style="dim"))
    console.print()
    bound, words = curve_words.verdict(settings, curves)
    console.print(Text.assemble((f"{bound} bound. ", f"bold {COLOURS[bound]}"), words))
