"""``xpusim rtl check``: one GEMM on the Verilog of rtl/, beside the cycle model: every phase and every result."""

import argparse
from typing import TYPE_CHECKING, Any

from simulator.cli.gemm_options import accept_negative_values, gemm_shape, one_of, size
from simulator.errors import UsageError

if TYPE_CHECKING:
    from hw_models.rtl_bench.cases import Top
    from hw_models.rtl_bench.check import Outcome

_EXAMPLE = "example: xpusim rtl check --rows 4 --cols 4 --gemm 7,5,9 --dataflow ws"


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("rtl", help="run the Verilog array beside the cycle model", description=__doc__)
    checks = parser.add_subparsers(dest="subcommand", metavar="check", required=True)
    check = checks.add_parser("check", help="one GEMM: phases and results", description=__doc__, epilog=_EXAMPLE)
    accept_negative_values(check)
    check.add_argument("--rows", type=int, default=4, metavar="R", help="rows of cells (4)")
    check.add_argument("--cols", type=int, default=4, metavar="C", help="columns of cells (4)")
    check.add_argument("--gemm", required=True, metavar="M,N,K", help="C[M, N] = A[M, K] B[K, N], random operands")
    check.add_argument("--dataflow", default="ws", metavar="ws|os", help="the operand that stays in the cells (ws)")
    check.add_argument("--dtype", default="int8", metavar="int8|bf16", help="type of the operands (int8)")
    check.add_argument("--depth", type=int, metavar="N", help="ws: rows of results that the accumulators hold (64)")
    check.add_argument("--simulator", default="icarus", metavar="icarus|verilator", help="HDL simulator (icarus)")
    check.add_argument("--seed", type=int, default=1, metavar="N", help="of the operands (1)")
    check.set_defaults(run=run_check)


def run_check(options: argparse.Namespace) -> int:
    """Run, compare, print; exit code 1 if RTL, model and numpy do not agree in everything."""
    shape = gemm_shape(options.gemm)
    simulator = one_of("--simulator", options.simulator, ("icarus", "verilator"))
    from hw_models.rtl_bench.tools import need_cocotb

    need_cocotb()
    from hw_models.rtl_bench.check import check

    top = _top(options)
    outcome = check(top, shape, options.seed, simulator)
    _print(f"{' x '.join(map(str, shape))} {options.dtype}", top, simulator, options.seed, outcome)
    return 0 if outcome.agrees else 1


def _top(options: argparse.Namespace) -> "Top":
    from hw_models.rtl_bench.cases import Top

    if options.dataflow == "is":
        raise UsageError("--dataflow is: the RTL runs it as ws with both operands transposed; swap M and N, and say ws")
    dataflow = one_of("--dataflow", options.dataflow, ("ws", "os"))
    dtype = one_of("--dtype", options.dtype, ("int8", "bf16"))
    if dataflow == "os" and options.depth is not None:
        raise UsageError("--depth goes with --dataflow ws: an os array has no accumulators")
    rows, columns = size("--rows", options.rows), size("--cols", options.cols)
    depth = size("--depth", 64 if options.depth is None else options.depth)
    return Top(dataflow, rows, columns, depth, is_float=dtype == "bf16")


def _print(what: str, top: "Top", simulator: str, seed: int, outcome: "Outcome") -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    depth = f", accumulators {top.depth} rows deep" if top.dataflow == "ws" else ""
    array = f"{top.rows} x {top.columns} {top.dataflow} array{depth}"
    console.print(Text(f"{what} on a {array}; {simulator}, seed {seed}", style="bold"))
    verdict = _verdict(outcome, "the bit-exact reference's" if top.is_float else "numpy's")
    console.print(Text(verdict, style="bold green" if outcome.agrees else "bold red"))
    if not outcome.fault:
        console.print()
        console.print(_table(outcome))


def _verdict(outcome: "Outcome", reference: str) -> str:
    if outcome.fault:
        return f"The RTL broke a rule of its ports: {outcome.fault}."
    if outcome.agrees:
        return f"RTL = model in every cycle; {outcome.words} of {outcome.words} results equal {reference}."
    faults = []
    if outcome.rtl != outcome.model:
        faults.append("the cycles differ")
    elif not outcome.in_order:
        faults.append("the phases come in another order")
    if outcome.wrong:
        faults.append(f"{outcome.wrong} of {outcome.words} results differ from {reference}")
    return f"RTL and model do not agree: {'; '.join(faults)}."


def _table(outcome: "Outcome") -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, header_style="dim", show_edge=False, pad_edge=False)
    table.add_column("phase")
    for title in ("model", "RTL", "difference"):
        table.add_column(title, justify="right")
    rows = [(name, outcome.model[name], outcome.rtl[name]) for name in outcome.model]
    for name, model, rtl in rows:
        table.add_row(name, f"{model:,}", f"{rtl:,}", _signed(rtl - model), style="" if rtl == model else "red")
    model, rtl = sum(row[1] for row in rows), sum(row[2] for row in rows)
    table.add_row("all", f"{model:,}", f"{rtl:,}", _signed(rtl - model), style="bold")
    return table


def _signed(difference: int) -> str:
    return f"{difference:+,}" if difference else "0"
