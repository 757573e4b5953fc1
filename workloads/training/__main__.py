"""``python -m workloads.training train|predict|compare|sample``: runs, what they will take, and what they took."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from simulator.errors import XpuError
from workloads.training import commands
from workloads.training.arguments import add_run

_WIDTH = 120  # of tables that go to a file


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = argparse.ArgumentParser(
        prog="python -m workloads.training", description="Pre-training and fine-tuning of small GPTs"
    )
    several = top.add_subparsers(dest="command", required=True)
    _train(several.add_parser("train", help="start or continue a run", allow_abbrev=False))
    _predict(several.add_parser("predict", help="time, memory by owner and verdict of one step", allow_abbrev=False))
    _compare(several.add_parser("compare", help="predictions beside what device_run measured", allow_abbrev=False))
    _sample(several.add_parser("sample", help="text from a checkpoint", allow_abbrev=False))
    return top


def _train(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="of checkpoints and log.jsonl")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint in the folder")
    parser.add_argument("--base", type=Path, metavar="FILE", help="a checkpoint to start from: fine-tuning")
    parser.add_argument("--peak", metavar="RATE", help="of the device, for MFU: '989.4 TFLOP/s'")
    add_run(parser)
    parser.set_defaults(run=commands.train)


def _predict(parser: argparse.ArgumentParser) -> None:
    _chip(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="everything, with the memory during each operator")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="memory by owner over time: .png, .svg, .pdf")
    add_run(parser)
    parser.set_defaults(run=commands.predict)


def _compare(parser: argparse.ArgumentParser) -> None:
    _chip(parser)
    parser.add_argument("--data", type=Path, required=True, metavar="FILE", help="docs/data/lab04_h200.json")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every point, the means and the targets")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="write lab04_memory.png and lab04_loss.png there")
    parser.set_defaults(run=commands.compared)


def _sample(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", type=Path, metavar="FILE", help="step-00000200.pt")
    parser.add_argument("prompt", metavar="TEXT", help="what to go on from")
    parser.add_argument("--chat", action="store_true", help="the text is a question to a fine-tuned model")
    parser.add_argument("--tokens", type=int, default=100, metavar="N", help="to add at most (100)")
    parser.add_argument("--temperature", type=float, default=0.8, metavar="T", help="0: always the likeliest (0.8)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="(0)")
    parser.add_argument("--device", default="cpu", metavar="cpu|mps|cuda", help="(cpu)")
    parser.set_defaults(run=commands.sampled)


def _chip(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--chip", default="h200", metavar="CHIP", help="a name from 'xpusim chips', or a file (h200)")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="override a field of the chip")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 2 for bad input and for a run that had to stop."""
    options = parser().parse_args(arguments)
    try:
        console = Console(highlight=False)
        options.run(options, console if console.is_terminal else Console(highlight=False, width=_WIDTH))
    except XpuError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("stopped; --resume goes on from the last checkpoint\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
