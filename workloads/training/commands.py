"""What the commands do: run, print, write."""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from simulator.errors import UsageError
from simulator.hardware import Chip
from simulator.output import check_writable, write_text
from simulator.units import decimal, quantity
from workloads.figure import save
from workloads.training import checkpoint
from workloads.training.arguments import run_of
from workloads.training.chat import prompt
from workloads.training.compare import TARGETS, Compared, as_json, compare, mean_errors, read_measured
from workloads.training.config import LARGEST_SEED, Run, model_config
from workloads.training.forecast import Forecast, check_fits, device_memory, forecast
from workloads.training.metrics import FLOP_CONVENTION, Peak
from workloads.training.network import Network
from workloads.training.runs import start
from workloads.training.sampling import sample
from workloads.training.tokens import END, decode, encode

DRAWN = ("base, 32 rows", "base, 32 rows, checkpointing", "base, 4 x 8 rows", "gpt2, 16 rows")
_COLDEST = 1e-6  # logits divided by less overflow


class Bar:
    """A bar on a terminal, and a line for each entry of the log everywhere."""

    def __init__(self, console: Console, steps: int) -> None:
        columns = (TextColumn("step"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self.progress.add_task("", total=steps)
        self._console = console

    def advance(self, step: int, said: dict[str, Any]) -> None:
        """Move the bar to *step* and print what was *said*."""
        self.progress.update(self._task, completed=step)
        if said:
            self._console.print(_line(said))


def _line(said: dict[str, Any]) -> str:
    text = (
        f"step {said['step']:6}  loss {said['loss']:.4f}  lr {said['lr']:.2e}  norm {said['gradient_norm']:.2f}  "
        f"{said['step_seconds'] * 1e3:.1f} ms  {said['tokens_per_second']:,.0f} tokens/s  "
        f"{decimal(said['memory_bytes'], 'B')}"
    )
    if said["mfu"] is not None:
        text += f"  MFU {said['mfu']:.1%}"
    return text + (f"  held out {said['validation_loss']:.4f}" if "validation_loss" in said else "")


def train(options: argparse.Namespace, console: Console) -> None:
    """Start or continue a run, after a look at whether it fits."""
    run = run_of(options)
    peak = _peak(options.peak, run)
    _check_device(run.device)
    check_fits(run, *device_memory(run.device))
    trainer, journal = start(run, options.out, resume=options.resume, base=options.base, peak=peak)
    header = journal.header
    console.print(f"{header['parameters']:,} parameters; {header['rows']:,} rows of {header['text']}")
    console.print(f"MFU of {peak}: {FLOP_CONVENTION}" if peak else "no MFU: --peak names the rate it refers to")
    console.print(f"memory: {header['memory']}")
    bar = Bar(console, run.steps)
    trainer.progress = bar
    with bar.progress:
        trainer.train(journal)
    console.print(f"done: {checkpoint.found(options.out)[-1]}")


def _peak(text: str | None, run: Run) -> Peak | None:
    if text is None:
        return None
    try:
        return Peak(quantity(text, "FLOP/s"), run.precision, run.device)
    except ValueError as error:
        raise UsageError(f"--peak: {error}") from None


def _check_device(device: str) -> None:
    missing = {"cuda": not torch.cuda.is_available(), "mps": not torch.backends.mps.is_available()}
    if missing.get(device, False):
        raise UsageError(f"--device {device}: this machine has none that torch can use")


def predict(options: argparse.Namespace, console: Console) -> None:
    """Print what one step takes on a chip, and who holds its memory."""
    for path in (options.json, options.plot):
        if path:
            check_writable(path)
    found = forecast(run_of(options), load(options))
    if options.json:
        write_text(options.json, json.dumps(found.as_json()) + "\n")
    if options.plot:
        from workloads.training.figures import draw_forecast  # noqa: PLC0415  matplotlib loads slowly

        save(draw_forecast(found), options.plot)
    _print_forecast(found, console)


def load(options: argparse.Namespace) -> Chip:
    """Return the chip that the options name."""
    from hw_models import load_chip  # noqa: PLC0415  training alone needs no chips

    return load_chip(options.chip, options.set)


def _print_forecast(found: Forecast, console: Console) -> None:
    run, capacity = found.run, found.chip.dram.capacity
    console.print(
        f"{run.model} on {found.chip.name}, {run.accumulate} x {run.batch} rows of {run.seq} tokens, {run.precision}"
        f"{', checkpointing' if run.checkpointing else ''}: {found.step_seconds * 1e3:.2f} ms a step, "
        f"{found.tokens_per_second:,.0f} tokens/s, MFU {found.mfu:.1%} of {found.peak}, {found.result.bound} bound"
    )
    share = f"{found.peak_bytes / capacity:.1%} of {decimal(capacity, 'B')}"
    fits = "" if found.fits else f": out of memory by {decimal(found.peak_bytes - capacity, 'B')}"
    console.print(f"peak memory {decimal(found.peak_bytes, 'B', 4)}, {share}{fits}")
    memory = found.memory
    at_peak = memory.graph.operators[memory.peak_at].name
    rows = [(owner, decimal(size, "B")) for owner, size in _owners(found).items()]
    _print_table(console, f"Who holds it at the peak, in {at_peak}", ("owner", ">bytes"), rows)
    saved = [(each.name, f"{each.count}", decimal(each.nbytes, "B")) for each in memory.saved[:20]]
    _print_table(console, "Kept by the forward pass for the backward pass", ("made in", ">tensors", ">bytes"), saved)
    steps = [(moment, decimal(found.after(moment), "B", 4)) for moment in ("forward", "loss", "backward")]
    moments = [("between steps", decimal(found.resident_bytes, "B", 4)), *((f"after {m}", size) for m, size in steps)]
    _print_table(console, "Memory over a step", ("moment", ">bytes"), moments)


def _owners(found: Forecast) -> dict[str, int]:
    return {**found.memory.at_peak(), "library workspace": found.workspace}


def compared(options: argparse.Namespace, console: Console) -> None:
    """Print predictions beside measurements."""
    if options.json:
        check_writable(options.json)
    if options.plots and not options.plots.is_dir():
        raise UsageError(f"--plots {options.plots}: no such folder")
    measured = read_measured(options.data)
    rows = compare(measured, load(options))
    if options.json:
        write_text(options.json, json.dumps(as_json(rows), indent=1) + "\n")
    if options.plots:
        _draw(measured, rows, options.plots)
    cells = [_compared_cells(row) for row in rows]
    columns = ("configuration", ">step ms", ">predicted", ">error", ">busy ms", ">predicted", ">MFU", ">predicted")
    _print_table(console, "Time of a step", columns, cells)
    names = ("peak", "resident", "after_forward", "after_loss", "after_backward")
    sizes = [(row.name, *(_memory_cell(row, f"{name}_bytes") for name in names)) for row in rows]
    titles = ("configuration", *(f">{name.replace('_', ' ')}" for name in names))
    _print_table(console, "Memory: measured GB, error of the prediction", titles, sizes)
    errors = mean_errors(rows)
    for name, error in errors.items():
        target = f"  (target {TARGETS[name]:.0%})" if name in TARGETS else ""
        console.print(f"mean error of {name}: {error:.1%}{target}")
    waiting = [row.name for row in rows if row.host_bound]
    if waiting:
        console.print(f"* the device waited for the host: {'; '.join(waiting)}")


def _draw(measured: dict[str, Any], rows: Sequence[Compared], folder: Path) -> None:
    from workloads.training.figures import draw_losses, draw_memory  # noqa: PLC0415  matplotlib loads slowly

    save(draw_memory([row for row in rows if row.name in DRAWN] or rows), folder / "lab04_memory.png")
    if "pretrain" in measured:
        save(draw_losses(measured), folder / "lab04_loss.png")


def _compared_cells(row: Compared) -> tuple[str, ...]:
    step = row.point("step_ms")
    return (
        row.name + ("*" if row.host_bound else ""), f"{step.measured:.2f}", f"{step.predicted:.2f}",
        f"{step.error:+.1%}", f"{row.busy:.2f}", f"{row.busy_predicted:.2f}", f"{row.mfu:.1%}",
        f"{row.mfu_predicted:.1%}",
    )  # fmt: skip


def _memory_cell(row: Compared, name: str) -> str:
    point = row.point(name)
    return f"{point.measured / 1e9:.2f} {point.error:+.1%}"


def _print_table(console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    shown = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False
    )
    for column in columns:
        right = column.startswith(">")
        shown.add_column(column.removeprefix(">"), justify="right" if right else "left", no_wrap=True)
    for row in rows:
        shown.add_row(*row)
    console.print(shown)


def sampled(options: argparse.Namespace, console: Console) -> None:
    """Print what a model says after a text or to a question."""
    _check_sampling(options)
    _check_device(options.device)
    state = checkpoint.load(options.checkpoint)
    network = Network(model_config(state.run.model, state.run.vocab)).to(options.device)
    network.load_state_dict(state.network)
    begin = prompt(options.prompt) if options.chat else encode(options.prompt)
    stop = END if options.chat else None
    new = sample(network, begin, options.tokens, temperature=options.temperature, seed=options.seed, stop=stop)
    text = decode(new)
    console.file.write((text if options.chat else options.prompt + text) + "\n")  # as it is: no wraps, no tab stops


def _check_sampling(options: argparse.Namespace) -> None:
    if options.tokens < 1:
        raise UsageError(f"--tokens {options.tokens}: needs at least 1")
    if options.temperature != 0 and not _COLDEST <= options.temperature < math.inf:
        raise UsageError(f"--temperature {options.temperature}: needs 0 or a finite number of at least {_COLDEST}")
    if not 0 <= options.seed <= LARGEST_SEED:
        raise UsageError(f"--seed {options.seed}: needs 0 to {LARGEST_SEED}")
    try:
        options.prompt.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"prompt: character {error.start + 1} is no text that UTF-8 can hold") from None
