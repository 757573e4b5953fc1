"""``python -m workloads.tokenizer train|encode|decode|sweep|bench``."""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from simulator.errors import SpecError, UsageError, XpuError, nearest
from simulator.output import check_writable, write_text

if TYPE_CHECKING:
    from simulator.dtypes import DType
    from workloads.lab import LabTable
    from workloads.tokenizer.bench import Speed


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = argparse.ArgumentParser(prog="python -m workloads.tokenizer", description="Byte-level BPE: train, use, cost")
    commands = top.add_subparsers(dest="command", required=True)
    _train_parser(commands)
    for name, run in (("encode", run_encode), ("decode", run_decode)):
        _use_parser(commands, name).set_defaults(run=run)
    _sweep_parser(commands)
    _bench_parser(commands)
    return top


def _train_parser(commands: Any) -> None:
    train = commands.add_parser("train", help="learn a vocabulary from text files")
    train.add_argument("files", nargs="*", metavar="FILE", help="text (the sources of Python's standard library)")
    train.add_argument("-o", "--output", required=True, metavar="FILE.json", help="where the vocabulary goes")
    train.add_argument("--vocab", type=int, default=10_000, metavar="N", help="tokens, special ones included (10000)")
    train.add_argument("--split", default="gpt2", metavar="gpt2|cl100k|none", help="pattern that cuts words (gpt2)")
    train.add_argument("--special", action="append", default=[], metavar="TEXT", help="a special token; repeat it")
    train.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="(all cores)")
    train.add_argument("--pool", default="threads", metavar="threads|processes", help="what workers are (threads)")
    train.set_defaults(run=run_train)


def _use_parser(commands: Any, name: str) -> argparse.ArgumentParser:
    reads = "text" if name == "encode" else "token ids"
    use: argparse.ArgumentParser = commands.add_parser(name, help=f"{reads} to {'ids' if name == 'encode' else 'text'}")
    use.add_argument(
        "vocabulary", metavar="VOCABULARY", help="a .json of train, GPT-2's vocab.bpe, or a .tiktoken file"
    )
    use.add_argument("file", nargs="?", default="-", metavar="FILE", help=f"{reads} (standard input)")
    if name == "encode":
        use.add_argument(
            "--special", default="", metavar="all|none|TEXT,..", help="special tokens that the text may hold"
        )
    else:
        use.add_argument(
            "--errors", default="replace", metavar="replace|strict|ignore", help="for bytes that are no text"
        )
    return use


def _sweep_parser(commands: Any) -> None:
    sweep = commands.add_parser("sweep", help="what each size of vocabulary costs per character on a chip")
    sweep.add_argument(
        "--chip", default="h200", metavar="CHIP|all", help="a name from 'xpusim chips', or a file (h200)"
    )
    sweep.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="override a field of the chip")
    sweep.add_argument("--model", default="llama-1b", metavar="MODEL", help="a preset (llama-1b)")
    sweep.add_argument("--phase", default="decode", metavar="decode|prefill|train", help="(decode)")
    sweep.add_argument("--batch", type=int, default=1, metavar="B", help="texts at once (1)")
    sweep.add_argument("--characters", type=int, default=2000, metavar="N", help="of each text (2000)")
    sweep.add_argument("--dtype", default="bf16", help="of weights, activations and cache (bf16)")
    sweep.add_argument("--split", default="cl100k", metavar="gpt2|cl100k", help="pattern that cuts words (cl100k)")
    sweep.add_argument("--json", metavar="FILE", help="write the numbers as one JSON object")
    sweep.set_defaults(run=run_sweep)


def _bench_parser(commands: Any) -> None:
    bench = commands.add_parser("bench", help="speed of training and encoding beside tiktoken and HF tokenizers")
    bench.add_argument("--vocab", type=int, default=10_000, metavar="N", help="(10000)")
    bench.add_argument("--split", default="gpt2", metavar="gpt2|cl100k", help="(gpt2)")
    bench.add_argument("--workers", type=int, default=2, metavar="N", help="of training (2)")
    bench.add_argument("--alone", action="store_true", help="without the others")
    bench.add_argument("--json", metavar="FILE", help="write the numbers as one JSON object")
    bench.set_defaults(run=run_bench)


def run_train(options: argparse.Namespace, console: Console) -> None:
    """Learn, and say what was learned."""
    from workloads.tokenizer.corpus import python_corpus  # noqa: PLC0415
    from workloads.tokenizer.files import check_name, save  # noqa: PLC0415
    from workloads.tokenizer.patterns import split_named  # noqa: PLC0415
    from workloads.tokenizer.train import train  # noqa: PLC0415

    check_writable(Path(options.output))
    check_name(options.output)
    documents = [_read(name) for name in options.files] or python_corpus().training
    split = split_named(options.split)
    started = time.perf_counter()
    found = train(documents, options.vocab, split, options.special, options.workers, options.pool)
    save(found, options.output)
    size = sum(map(len, documents)) / 1e6
    console.print(
        f"{len(found):,} tokens from {size:,.1f} MB in {time.perf_counter() - started:.1f} s: {options.output}"
    )
    if len(found) < options.vocab:
        console.print(f"the text supports no more: no pair occurs twice any longer ({options.vocab:,} were asked for)")


def run_encode(options: argparse.Namespace, console: Console) -> None:
    """Write the ids, blanks between them, as they come."""
    del console
    from workloads.tokenizer.files import load  # noqa: PLC0415
    from workloads.tokenizer.tokenizer import BLOCK, Tokenizer, blocks_of  # noqa: PLC0415

    tokenizer = Tokenizer(load(options.vocabulary))
    blocks = blocks_of(Path(options.file)) if options.file != "-" else iter(lambda: sys.stdin.buffer.read(BLOCK), b"")
    given = options.special
    allowed = given if given in ("all", "none") else {text for text in given.split(",") if text}
    write = sys.stdout.write
    for at, id in enumerate(tokenizer.encode_stream(blocks, allowed)):
        write(f" {id}" if at else str(id))
    write("\n")


def run_decode(options: argparse.Namespace, console: Console) -> None:
    """Write the text of the ids."""
    del console
    from workloads.tokenizer.files import load  # noqa: PLC0415
    from workloads.tokenizer.tokenizer import Tokenizer  # noqa: PLC0415

    text = sys.stdin.read() if options.file == "-" else _read(options.file).decode(errors="replace")
    decoded = Tokenizer(load(options.vocabulary)).decode(_ids(text.split()), options.errors)
    sys.stdout.buffer.write(decoded.encode())


def _ids(words: Iterable[str]) -> Iterator[int]:
    for number, word in enumerate(words, start=1):
        if not word.isdecimal():
            raise UsageError(f"token {number} is no id: {word!r}")
        try:
            yield int(word)
        except ValueError:  # Python reads 4300 digits at most
            raise UsageError(f"token {number} is no id: a number of {len(word):,} digits") from None


def _read(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise SpecError(f"cannot read {name}: {error.strerror or error}") from None


def run_sweep(options: argparse.Namespace, console: Console) -> None:
    """Print the sizes on a chip, or the best of every chip."""
    from hw_models import load_chip  # noqa: PLC0415
    from workloads.gpt.presets import preset  # noqa: PLC0415
    from workloads.tokenizer import sweep  # noqa: PLC0415
    from workloads.tokenizer.compression import python_curve  # noqa: PLC0415
    from workloads.tokenizer.cost import Use, shown_costs  # noqa: PLC0415
    from workloads.tokenizer.patterns import split_named  # noqa: PLC0415

    dtype = _dtype(options.dtype)
    use = Use(phase=_phase(options.phase), batch=options.batch, characters=options.characters, dtype=dtype)
    every = options.chip == "all"
    chips = sweep.chips_with(dtype) if every else [load_chip(options.chip, options.set)]
    config, curve = preset(options.model), python_curve(split_named(options.split))
    found = {chip.name: shown_costs(config, chip, curve, use) for chip in chips}
    if every:
        _show(sweep.chips_table(config, chips, curve, [use]), console)
    else:
        _show(sweep.sizes_table(config, chips[0], curve, use, found[chips[0].name]), console)
    console.print(f"text: {curve.corpus}; tokens a byte measured on every tenth file, held out", style="dim")
    if options.json:
        data = {name: sweep.as_data(rows) for name, rows in found.items()}
        body = {"model": config.name, "use": str(use), "characters": use.characters, "dtype": str(dtype)}
        _write_json(options.json, body | {"curve": sweep.curve_data(curve), "chips": data})


def _phase(name: str) -> str:
    known = ("decode", "prefill", "train")
    if name not in known:
        raise UsageError(f"unknown phase {name!r}{nearest(name, known)} (known: {', '.join(known)})")
    return name


def _dtype(name: str) -> "DType":
    from simulator.dtypes import DType  # noqa: PLC0415

    known = [str(dtype) for dtype in DType]
    if name not in known:
        raise UsageError(f"unknown dtype {name!r}{nearest(name, known)} (known: {', '.join(known)})")
    return DType(name)


def run_bench(options: argparse.Namespace, console: Console) -> None:
    """Print speeds, and how many times as fast as the others ours is."""
    from workloads.tokenizer.bench import bench  # noqa: PLC0415
    from workloads.tokenizer.patterns import split_named  # noqa: PLC0415

    report = bench(options.vocab, split_named(options.split), options.workers, not options.alone)
    console.print(
        f"{report.corpus}, vocabulary {report.size:,}, pattern {report.split}; {report.machine}", style="bold"
    )
    shown = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False)
    for title in ("program", "what", "MB", "s", "CPU s", "MB/CPU s", "ours is"):
        shown.add_column(title, justify="left" if title in ("program", "what") else "right")
    for row in report.rows:
        cells = (f"{row.megabytes:.1f}", f"{row.seconds:.2f}", f"{row.cpu:.2f}", f"{row.rate:.1f}")
        shown.add_row(row.program, row.what, *cells, _ratio(row, report.rows))
    console.print(shown)
    if not options.alone:
        console.print("same tokens from all three" if report.equal else "THE TOKENS DIFFER", style="dim")
    if options.json:
        _write_json(options.json, report.data())


def _ratio(row: "Speed", rows: Sequence["Speed"]) -> str:
    ours = next(other for other in rows if other.what.split(",")[0] == row.what.split(",")[0])
    return "" if ours is row else f"{ours.rate / row.rate:.1f} x as fast"


def _show(table: "LabTable", console: Console) -> None:
    console.print(table.title, style="bold")
    shown = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False)
    for column in table.columns:
        shown.add_column(column.removeprefix(">"), justify="right" if column[:1] == ">" else "left", no_wrap=True)
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown)
    console.print(table.note, style="dim")


def _write_json(name: str, body: dict[str, Any]) -> None:
    write_text(Path(name), json.dumps(body, indent=1) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = parser().parse_args(arguments)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=110)
    try:
        if getattr(options, "json", None):
            check_writable(Path(options.json))
        options.run(options, console)
    except XpuError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except BrokenPipeError:  # the reader of a pipe has gone, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
