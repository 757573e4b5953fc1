"""Parses the command line and turns errors into one line and an exit code.

Exit codes: 0 done, 1 the command ran and its answer is no (a check that failed), 2 bad input.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from simulator.cli import (
    array,
    bench,
    chips,
    collective,
    curve,
    fit,
    lab,
    links,
    op,
    passes,
    plan,
    roofline,
    rtl,
    run,
    serve,
    validate,
)
from simulator.errors import XpuError
from simulator.version import VERSION

_COMMANDS = (
    run, plan, links, serve, curve, passes, roofline, op, array, rtl, chips, collective, validate, fit, bench, lab,
)  # fmt: skip


class _Parser(argparse.ArgumentParser):
    """argparse that reports a usage error as the rest of the program does: one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(2)


def parser() -> argparse.ArgumentParser:
    """Return the parser with every command."""
    top = _Parser(
        prog="xpusim",
        description="How long a PyTorch program takes on a chip, what memory it needs, and which resource binds it.",
    )
    top.add_argument("--version", action="store_true", help="print the version and exit")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for command in _COMMANDS:
        command.add_parser(commands)
    return top


def _silence() -> None:
    """Let what is still to be printed go nowhere, so that the interpreter's own last flush has nothing to report."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    top = parser()
    options = top.parse_args(arguments)
    if options.version:
        print(f"xpusim {VERSION}")
        return 0
    if options.command is None:
        top.print_help()
        return 0
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except XpuError as error:
        print(f"xpusim: {error}", file=sys.stderr)
        return 2
    except (BrokenPipeError, SystemExit):  # the reader of a pipe has gone, as head does; rich exits over it
        _silence()
        return 0
    except OSError as error:  # files have messages of their own: what is left is the output, on a full disk say
        print(f"xpusim: cannot write the output: {error.strerror or error}", file=sys.stderr)
        _silence()
        return 2
    except KeyboardInterrupt:
        print("xpusim: interrupted", file=sys.stderr)
        return 130
    return code
