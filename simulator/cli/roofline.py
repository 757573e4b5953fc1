"""``xpusim roofline``: which resource binds a model on a chip, from sizes alone.

For a preset, prefill and decode by closed form: ridge points, verdicts, the ceiling of tokens per second, the batch
from which decode is compute bound, and the batch that fits.  Any other TARGET is traced, and its one run is judged.
"""

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.cli.target import add_chip, add_target, load_target
from simulator.dtypes import DType
from simulator.errors import UsageError, nearest
from simulator.units import PS_PER_SECOND, decimal, seconds

if TYPE_CHECKING:
    from rich.console import Console

    from simulator.hardware import Chip
    from workloads.roofline.analysis import Analysis, Point
    from workloads.roofline.traced import Traced

_CONVENTIONS = (
    "multiply-add = 2 FLOP; peaks and bandwidth of the data sheet, dense, fully overlapped; "
    "every weight, key and value moved once: times are floors"
)
_WIDTH = 100


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("roofline", help="say which resource binds a model on a chip", description=__doc__)
    add_target(parser)
    add_chip(parser)
    parser.add_argument("--kv-dtype", metavar="DTYPE", help="type of keys and values in the cache (that of --dtype)")
    parser.add_argument("--chips", type=int, default=1, metavar="N", help="chips, split evenly at no cost (1)")
    parser.add_argument("--json", metavar="FILE", help="write everything as one JSON object")
    parser.add_argument("--plot", metavar="FILE", help="draw the roofline: .png, .svg or .pdf")
    parser.set_defaults(run=run_roofline)


def run_roofline(options: argparse.Namespace) -> int:
    """Work it out, print it, write what was asked for."""
    from hw_models import load_chip
    from workloads import preset_names

    if options.chips < 1:
        raise UsageError(f"--chips {options.chips}: must be at least 1")
    chip = load_chip(options.chip, options.set)
    if options.target in preset_names() or not _is_traced(options.target):
        _preset(options, chip)
    else:
        _traced(options, chip)
    return 0


def _is_traced(target: str) -> bool:
    return ".py:" in target or target.startswith("hf:") or target.endswith(".json")


def _preset(options: argparse.Namespace, chip: "Chip") -> None:
    from workloads.gpt import preset
    from workloads.roofline.analysis import analyse

    config = preset(options.target)
    found = analyse(
        config,
        chip,
        dtype=_dtype("dtype", options.dtype),
        kv_dtype=_dtype("kv-dtype", options.kv_dtype) if options.kv_dtype else None,
        context=_positive("context", options.context, min(1024, config.context)),
        seq=_positive("seq", options.seq, min(512, config.context)),
        batch=_positive("batch", options.batch, 1),
        count=options.chips,
    )
    _print(found, _console())
    if options.json:
        _write(options.json, as_json(found))
    if options.plot:
        from workloads.roofline.plot import save_plot

        save_plot(found, Path(options.plot))


def _dtype(option: str, name: str) -> DType:
    known = [str(dtype) for dtype in DType]
    if name not in known:
        raise UsageError(f"--{option} {name}: unknown{nearest(name, known)} (known: {', '.join(known)})")
    return DType(name)


def _positive(option: str, value: int | None, default: int) -> int:
    if value is not None and value < 1:
        raise UsageError(f"--{option} {value}: must be at least 1")
    return default if value is None else value


def _console() -> "Console":
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH)


def _seconds(value: float) -> str:
    return seconds(value * PS_PER_SECOND)


def _facts(rows: list[tuple[str, str]]) -> Any:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for row in rows:
        table.add_row(*row)
    return table


def _print(found: "Analysis", console: "Console") -> None:
    from workloads.roofline import words

    model = found.model
    console.print(f"[bold]{model.name}[/] on [bold]{words.machine_name(found)}[/], weights in {found.dtype}", end="")
    console.print(f", cache in {found.kv_dtype}, multiplied in {found.math}")
    console.print(f"[dim]{_CONVENTIONS}[/]\n")
    one, best = found.decode[0], found.best
    ceiling = f"{one.tokens_per_second:,.1f} tokens/s at batch {one.batch}"
    if best is not None and best.batch > one.batch:
        ceiling += f"; {best.tokens_per_second:,.0f} tokens/s at batch {best.batch:,}, the most that fit"
    rows = [
        ("ridge", _ridges(found.ridges)),
        ("prefill", words.prefill_verdict(found)),
        ("decode", words.decode_verdict(found)),
        ("ceiling", ceiling),
        ("crossover", words.crossover_verdict(found)),
        ("capacity", words.capacity_verdict(found)),
    ]
    console.print(_facts(rows))
    console.print(_steps(found))


def _ridges(ridges: Any) -> str:
    return ", ".join(f"{dtype} {ridge:,.1f}" for dtype, ridge in ridges.items()) + " FLOP/B"


def _steps(found: "Analysis") -> Any:
    from rich import box
    from rich.table import Table

    prompt = found.prefill.tokens // found.prefill.batch
    title = f"Steps: prefill of {prompt:,} tokens each, decode at {found.context:,} positions"
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, header_style="dim")
    table.add_column("step", no_wrap=True)
    for name in ("batch", "FLOP", "bytes", "FLOP/B", "least time", "tokens/s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    table.add_column("in memory", justify="right", no_wrap=True)
    for name, point in [("prefill", found.prefill), *(("decode", point) for point in found.decode)]:
        table.add_row(name, *_cells(point, found.machine.capacity))
    return table


def _cells(point: "Point", room: float) -> tuple[str, ...]:
    return (
        f"{point.batch:,}",
        decimal(point.flops, ""),
        decimal(point.nbytes, "B"),
        f"{point.intensity:,.2f}",
        _seconds(point.seconds),
        decimal(point.tokens_per_second, ""),
        point.bound,
        decimal(point.resident, "B")
        if point.fits
        else f"[red]{decimal(point.resident, 'B')} > {decimal(room, 'B')}[/]",
    )


def as_json(found: "Analysis") -> dict[str, Any]:
    """Return the analysis as the object that ``--json`` writes; the keys are stable."""
    best = found.best
    return {
        "version": 1,
        "model": found.model.name,
        "chip": found.chip.name,
        "chips": found.count,
        "dtype": found.dtype,
        "kv_dtype": found.kv_dtype,
        "math_dtype": found.math,
        "conventions": _CONVENTIONS,
        "ridge_flop_per_byte": {str(dtype): ridge for dtype, ridge in found.ridges.items()},
        "context": found.context,
        "prefill": _point(found.prefill),
        "prefill_compute_bound_from_tokens": found.prefill_turn,
        "decode": [_point(point) for point in found.decode],
        "decode_tokens_per_second_ceiling": found.decode[0].tokens_per_second,
        "decode_tokens_per_second_at_capacity": best.tokens_per_second if best else None,
        "crossover_batch": math.ceil(found.crossover) if found.crossover is not None else None,
        "crossover_context_limit": found.crossover_limit,
        "capacity_batch": found.capacity,
        "weight_bytes": found.weights,
        "kv_bytes_per_sequence": found.kv_each,
        "chips_for_weights": math.ceil(found.chips),
    }


def _point(point: "Point") -> dict[str, Any]:
    return {
        "batch": point.batch,
        "tokens": point.tokens,
        "flops": point.flops,
        "bytes": point.nbytes,
        "resident_bytes": point.resident,
        "flop_per_byte": point.intensity,
        "seconds": point.seconds,
        "tokens_per_second": point.tokens_per_second,
        "bound": point.bound,
        "fits": point.fits,
    }


def _write(path: str, content: dict[str, Any]) -> None:
    from simulator.output import write_text

    write_text(Path(path), json.dumps(content, indent=2) + "\n")


def _traced(options: argparse.Namespace, chip: "Chip") -> None:
    from workloads.roofline.analysis import ridge_points
    from workloads.roofline.traced import analyse_graph

    if options.plot:
        raise UsageError("--plot: only for a preset; 'xpusim run TARGET --html FILE' draws the operators of any target")
    found = analyse_graph(load_target(options), chip, options.chips)
    name = chip.name if options.chips == 1 else f"{options.chips} x {chip.name}"
    console = _console()
    console.print(f"[bold]{found.name}[/] on [bold]{name}[/], {found.dtype}\n[dim]{_CONVENTIONS}[/]\n")
    console.print(_facts([("ridge", _ridges(ridge_points(chip))), *_traced_rows(found)]))
    if options.json:
        fields = ("name", "dtype", "flops", "least", "unfused", "intensity", "bound", "seconds", "unfused_seconds")
        _write(options.json, {"version": 1, "chip": chip.name} | {field: getattr(found, field) for field in fields})


def _traced_rows(found: "Traced") -> list[tuple[str, str]]:
    against = f"{found.intensity:,.2f} FLOP/B against a ridge of {found.machine.ridge:,.0f}"
    least, unfused = decimal(found.least, "B"), decimal(found.unfused, "B")
    return [
        ("verdict", f"{found.bound} bound: {against}"),
        ("work", f"{decimal(found.flops, 'FLOP')} in products and attention"),
        ("least time", f"{_seconds(found.seconds)} with {least}: what is there before the run once, the rest on chip"),
        ("unfused", f"{_seconds(found.unfused_seconds)} with {unfused}: every operator through memory"),
    ]
