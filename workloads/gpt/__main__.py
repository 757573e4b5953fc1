"""``python -m workloads.gpt table llama-8b --phase decode`` and ``python -m workloads.gpt generate``."""

import argparse
import sys
import time
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from simulator.dtypes import DType
from simulator.errors import UsageError, XpuError, nearest
from simulator.units import decimal
from workloads.gpt.parameters import parameters
from workloads.gpt.presets import preset, preset_names
from workloads.gpt.request import step_length
from workloads.gpt.table import Row, step, table


def parser() -> argparse.ArgumentParser:
    """Return the parser of both commands."""
    top = argparse.ArgumentParser(prog="python -m workloads.gpt", description="Parameters, work and text of GPT models")
    commands = top.add_subparsers(dest="command", required=True)
    sizes = commands.add_parser("table", help="parameters, multiply-adds and bytes of every operator, by closed form")
    sizes.add_argument("name", metavar="MODEL", help=", ".join(preset_names()))
    sizes.add_argument("--phase", default="prefill", metavar="prefill|decode|train", help="train: its forward pass")
    sizes.add_argument("--batch", type=int, default=1, metavar="B")
    sizes.add_argument("--seq", type=int, metavar="S", help="tokens of a prompt (512)")
    sizes.add_argument("--context", type=int, metavar="C", help="positions in decode, the new one included (1024)")
    sizes.add_argument("--dtype", default="bf16", help="of weights, activations and cache (bf16)")
    sizes.set_defaults(run=run_table)
    text = commands.add_parser("generate", help="train a tiny model on a sentence and let it continue")
    text.add_argument("name", nargs="?", metavar="MODEL", help="a preset with random weights instead, timed")
    text.add_argument("--tokens", type=int, default=60, metavar="N", help="to generate (60)")
    text.add_argument("--steps", type=int, default=200, metavar="N", help="of training (200)")
    text.add_argument("--device", default="cpu", metavar="cpu|mps|cuda", help="(cpu)")
    text.set_defaults(run=run_generate)
    return top


def run_table(options: argparse.Namespace, console: Console) -> None:
    """Print the operators of one step."""
    config = preset(options.name)
    known = [str(dtype) for dtype in DType]
    if options.dtype not in known:
        raise UsageError(f"unknown dtype {options.dtype!r}{nearest(options.dtype, known)} (known: {', '.join(known)})")
    length = step_length(config, options.phase, options.batch, options.seq, options.context)
    rows = table(config, step(options.phase, options.batch, length, DType(options.dtype)))
    what = f"context {length:,}" if options.phase == "decode" else f"{length:,} tokens"
    shown = Table(
        title=f"{config.name}, {options.phase}, batch {options.batch}, {what}, {options.dtype}",
        title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, header_style="dim", show_footer=True,
        pad_edge=False,
    )  # fmt: skip
    cells = [_cells(row) for row in rows]
    total = _total(rows)
    for at, name in enumerate(("operator", "times", "parameters", "MACs", "read", "written", "FLOP/B")):
        shown.add_column(name, total[at], justify="left" if at == 0 else "right", no_wrap=True)
    for line in cells:
        shown.add_row(*line)
    console.print(shown)
    console.print("All of a row's operators together. 1 MAC = 2 FLOP; every operand moved once.", style="dim")
    console.print(f"{config.source}: {parameters(config).total:,} parameters", style="dim")


def _cells(row: Row) -> tuple[str, ...]:
    times, moved = row.count, row.reads + row.writes
    return (
        row.module,
        str(times),
        f"{times * row.parameters:,}" if row.parameters else "",
        decimal(times * row.macs, "") if row.macs else "",
        decimal(times * row.reads, "B"),
        decimal(times * row.writes, "B"),
        f"{row.flops / moved:,.2f}" if row.macs else "",
    )


def _total(rows: Sequence[Row]) -> tuple[str, ...]:
    reads, writes = sum(row.count * row.reads for row in rows), sum(row.count * row.writes for row in rows)
    macs = sum(row.count * row.macs for row in rows)
    stored = sum(row.count * row.parameters for row in rows)
    intensity = f"{2 * macs / (reads + writes):,.2f}"
    return ("all", "", f"{stored:,}", decimal(macs, ""), decimal(reads, "B"), decimal(writes, "B"), intensity)


def run_generate(options: argparse.Namespace, console: Console) -> None:
    """Train and continue a sentence, or time a preset with random weights."""
    import torch  # noqa: PLC0415  the table needs none of it

    from workloads.gpt.generate import TEXT, generate, tiny, train  # noqa: PLC0415
    from workloads.gpt.model import Model  # noqa: PLC0415

    config = preset(options.name) if options.name else tiny()
    prompt = TEXT[:32].encode()
    if not 1 <= options.tokens <= config.context - len(prompt):
        raise UsageError(f"--tokens {options.tokens}: needs 1 to {config.context - len(prompt)} for {config.name}")
    torch.manual_seed(0)
    with torch.device(options.device):
        model = Model(config, context=len(prompt) + options.tokens if options.name else None)
        ids = torch.tensor([list(prompt)])
    if not options.name:
        started = time.perf_counter()
        loss = train(model, TEXT.encode(), options.steps) if options.steps else float("nan")
        console.print(f"{config.name}: {options.steps} steps in {time.perf_counter() - started:.1f} s, loss {loss:.3f}")
    started = time.perf_counter()
    new = generate(model, ids, options.tokens)[0, len(prompt) :].tolist()
    rate = options.tokens / (time.perf_counter() - started)
    said = repr(bytes(new).decode(errors="replace")) if not options.name else f"{new[:8]} ... (random weights)"
    console.print(f"{TEXT[:32]!r} -> {said}", markup=False)
    console.print(f"{options.tokens} tokens, {rate:,.0f} tokens/s on {options.device}, prompt included")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = parser().parse_args(arguments)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=110)
    try:
        options.run(options, console)
    except XpuError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
