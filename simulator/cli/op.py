"""``xpusim op``: one operator on one chip: how long, how far from the peaks, what binds it and why."""

import argparse
import re
from typing import TYPE_CHECKING, Any

from simulator.cli.target import add_chip

if TYPE_CHECKING:
    from hw_models.operator_report import OperatorReport

_EXAMPLE = "example: xpusim op gemm M=4096 N=4096 K=4096 --dtype bf16 --chip h200"
_YES_NO = {"true": 1, "yes": 1, "false": 0, "no": 0}


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("op", help="time one operator on a chip", description=__doc__, epilog=_EXAMPLE)
    parser.add_argument("operator", metavar="OP", help="gemm, bmm, attention, pointwise, norm, softmax, copy, ...")
    parser.add_argument("sizes", metavar="SIZE=N", nargs="*", help="its sizes: M=.. N=.. K=.. for gemm")
    parser.add_argument("--dtype", default="bf16", help="type of its elements (bf16)")
    add_chip(parser)
    parser.add_argument("--fidelity", default="tile", metavar="roofline|tile", help="compute model (tile)")
    parser.add_argument("--json", metavar="FILE", help="write everything as one JSON object")
    parser.set_defaults(run=run_op)


def run_op(options: argparse.Namespace) -> int:
    """Cost the operator, print, write what was asked for."""
    from hw_models import load_chip
    from hw_models.operator_report import operator_report
    from hw_models.single import single

    graph = single(options.operator, _sizes(options.operator, options.sizes), _dtype(options.dtype))
    report = operator_report(graph, load_chip(options.chip, options.set), options.fidelity)
    _print(report)
    if options.json:
        report.save_json(options.json)
    return 0


def _sizes(operator: str, texts: list[str]) -> dict[str, int]:
    """Read ``M=4096 causal=true``; UsageError for anything else."""
    from simulator.errors import UsageError

    sizes: dict[str, int] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        number = str(_YES_NO.get(value.lower(), value))
        if not equals or not re.fullmatch(r"-?[0-9]{1,18}", number):
            raise UsageError(f"{operator}: {text!r} is no size; expected NAME=NUMBER, such as M=4096 or causal=true")
        if key in sizes:
            raise UsageError(f"{operator}: {key} is given twice")
        sizes[key] = int(number)
    return sizes


def _dtype(name: str) -> Any:
    from simulator.dtypes import DType
    from simulator.errors import UsageError, nearest

    known = [str(dtype) for dtype in DType]
    if name not in known:
        raise UsageError(f"--dtype {name}: unknown{nearest(name, known)} (known: {', '.join(known)})")
    return DType(name)


def _print(report: "OperatorReport") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120)
    console.print(Text(report.title, style="bold"))
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for label, text in report.lines():
        table.add_row(label, Text(text))
    console.print(table)
