"""``xpusim lab``: the answer of one lab in a sentence, its table, and what binds."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from simulator.hardware import Chip
    from workloads.lab import LabAnswer, LabTable

# What each lab is about, and the function ``answer(chip)`` that answers it; imported when it is asked for.
LABS = {
    "1": ("autograd: what forward, backward and update cost", "workloads.autograd.lab:answer"),
    "2": ("tokenizer: what the size of a vocabulary costs", "workloads.tokenizer.lab:answer"),
    "3": ("transformers: multiply-adds and bytes of a token", "workloads.gpt.lab:answer"),
    "4": ("training: how long a step takes and who holds its memory", "workloads.training.lab:answer"),
    "5": ("roofline: the ceiling of decode", "workloads.roofline.lab:answer"),
    "6": ("inference: why batching and quantisation speed up decode", "workloads.inference.lab:answer"),
    "7": ("GEMM ladder: the tile that the memory on the chip allows", "workloads.gemm.lab:answer"),
    "8": ("flash attention: why fusion makes attention compute-bound", "workloads.flash_attention.lab:answer"),
    "9": ("compiler: what it does and what is left to write by hand", "workloads.compiler.lab:answer"),
    "10": ("parallel training: the chip-to-chip bandwidth that it needs", "workloads.distributed.lab:answer"),
    "11": ("accelerator: the size of array and SRAM", "workloads.accelerator.lab:answer"),
}
_WIDTH = 110


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "lab", help="answer the question of a lab", description="Run a lab at laptop size and print its answer."
    )
    parser.add_argument("number", nargs="?", metavar="N", help="; ".join(f"{key} {LABS[key][0]}" for key in LABS))
    parser.add_argument(
        "--chip", default="h200", metavar="CHIP", help="a name from 'xpusim chips', or a YAML file (h200)"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="PATH=VALUE", help="override a field: memory.hbm.bandwidth=6TB/s"
    )
    parser.add_argument("--json", metavar="FILE", help="write the numbers as one JSON object")
    parser.set_defaults(run=run_lab)


def run_lab(options: argparse.Namespace) -> int:
    """Answer, print, write what was asked for; without a number, list the labs."""
    console = _console()
    if options.number is None:
        for key, (subject, _) in LABS.items():
            console.print(f"lab {key}  {subject}")
        return 0
    if options.number not in LABS:
        known = ", ".join(f"{key} ({subject.partition(':')[0]})" for key, (subject, _) in LABS.items())
        raise UsageError(f"there is no lab {options.number}; labs: {known}")
    from hw_models import load_chip
    from simulator.output import check_writable, write_text

    if options.json:
        check_writable(Path(options.json))
    chip = load_chip(options.chip, options.set)
    answer = _answer(options.number, chip)
    if options.json:  # first: whoever reads the page may stop reading
        write_text(Path(options.json), json.dumps(as_json(options.number, answer, chip), indent=1) + "\n")
    _print(options.number, answer, chip, console)
    return 0


def _answer(number: str, chip: "Chip") -> "LabAnswer":
    from importlib import import_module

    module, _, function = LABS[number][1].partition(":")
    answer: LabAnswer = getattr(import_module(module), function)(chip)
    return answer


def as_json(number: str, answer: "LabAnswer", chip: "Chip") -> dict[str, Any]:
    """Return what ``--json`` writes: the answer in words, then every number in base units."""
    return {
        "lab": number,
        "chip": chip.name,
        "question": answer.question,
        "answer": answer.sentence,
        "bound": str(answer.bound),
        "verdict": answer.verdict,
        "data": answer.data,
    }


def _print(number: str, answer: "LabAnswer", chip: "Chip", console: "Console") -> None:
    from rich.text import Text

    from simulator.terminal import COLOURS

    console.print(Text(f"lab {number} on {chip.name}: {answer.question}", style="bold"))
    console.print(Text(answer.sentence))
    for table in answer.tables:
        console.print()
        console.print(Text(table.title, style="bold"))
        console.print(rich_table(table))
        if table.note:
            console.print(Text(table.note, style="dim"))
    console.print()
    console.print(Text.assemble((f"{answer.bound} bound. ", f"bold {COLOURS[answer.bound]}"), answer.verdict))


def rich_table(table: "LabTable") -> "Table":
    """Return *table* as rich prints it, without its title and note."""
    from rich import box
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False)
    for column in table.columns:
        right = column.startswith(">")
        shown.add_column(column.removeprefix(">"), justify="right" if right else "left", no_wrap=right)
    for row in table.rows:
        shown.add_row(*row)
    return shown


def _console() -> "Console":
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH)
