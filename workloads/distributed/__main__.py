"""``python -m workloads.distributed run|ring|volume``: parallel training for real, and what it sends."""

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from simulator.errors import XpuError

_WIDTH = 120  # of tables that go to a file


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = argparse.ArgumentParser(prog="python -m workloads.distributed", description="Parallel training over gloo")
    several = top.add_subparsers(dest="command", required=True)
    run = several.add_parser("run", help="train a small model in several processes and compare with one")
    run.add_argument("--world", type=int, default=4, metavar="N", help="processes on this machine (4)")
    run.add_argument("--parallel", default="dp=2,tp=2", metavar="dp=A,tp=B", help="how they share the work (dp=2,tp=2)")
    run.add_argument("--model", default="gpt", metavar="NAME", help="gpt or mlp (gpt)")
    run.add_argument("--dtype", default="fp32", metavar="TYPE", help="fp32 or fp64 (fp32)")
    run.add_argument("--steps", type=int, default=3, metavar="N", help="training steps (3)")
    run.add_argument("--collectives", default="ring", metavar="NAME", help="ring: written out; torch: its own (ring)")
    around = several.add_parser("ring", help="the ring all-reduce that is written out, beside torch's own")
    around.add_argument("--world", type=int, default=4, metavar="N", help="processes on this machine (4)")
    around.add_argument("--bytes", default="1 MiB", metavar="SIZE", help="of the fp32 tensor on each rank (1MiB)")
    volume = several.add_parser("volume", help="bytes that a training step sends, and the bandwidth that hides them")
    volume.add_argument("model", metavar="MODEL", help="a preset such as llama-8b")
    volume.add_argument("--parallel", default="dp=8,tp=8", metavar="dp=A,tp=B", help="ranks (dp=8,tp=8)")
    volume.add_argument("--batch", type=int, default=1, metavar="B", help="sequences of a replica (1)")
    volume.add_argument("--seq", type=int, default=4096, metavar="S", help="tokens of a sequence (4096)")
    volume.add_argument("--peak", default="989.4 TFLOP/s", metavar="RATE", help="of a chip (989.4TFLOP/s: an H200)")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 1 for a result that is wrong, 2 for bad input or a failed process."""
    options = parser().parse_args(arguments)
    try:
        from workloads.distributed import commands  # noqa: PLC0415  processes import this file, and need no more of it

        width = None if sys.stdout.isatty() else _WIDTH
        code: int = getattr(commands, options.command)(options, Console(highlight=False, width=width))
    except XpuError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return code


if __name__ == "__main__":
    sys.exit(main())
