"""``xpusim array``: GEMMs on a systolic array, cycle for cycle: phases, stalls, words moved, and what binds.

One GEMM (--gemm) on an array that the options describe, or many: a table of runs (--data), or a configuration and a
topology of SCALE-Sim (--scalesim).  A word is one element of --dtype, for results too.  --json writes ``rows``, whose
keys hw_models/array_model/runs.py lists; for --gemm with time, bytes and verdict (simulator/cli/array_gemm.py).
"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.cli import array_sweep
from simulator.cli.gemm_options import accept_negative_values, one_of
from simulator.errors import UsageError
from simulator.version import VERSION

if TYPE_CHECKING:
    from hw_models.systolic import Convention

_EXAMPLE = (
    "example: xpusim array --rows 128 --cols 128 --dataflow ws --gemm 1024,2304,768 --sram 256KiB,256KiB,128KiB "
    "--dram-bandwidth 64GB/s --clock 1GHz"
)
_SOURCES = ("gemm", "data", "scalesim")
_OF_ONE_GEMM = ("rows", "cols", "dataflow", "sram", "dram_bandwidth", "clock", "dtype", "cores", "depth")


def add_parser(commands: Any) -> None:
    """Register the command, and ``array sweep`` below it."""
    parser = commands.add_parser(
        "array",
        help="GEMMs on a systolic array, cycle for cycle",
        description=__doc__,
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    accept_negative_values(parser)
    subcommands = parser.add_subparsers(dest="subcommand", metavar="[sweep]")
    array_sweep.add_parser(subcommands)
    add = parser.add_argument
    add("--gemm", metavar="M,N,K", help="C[M, N] = A[M, K] B[K, N]: A is the ifmap, B the filter, C the ofmap")
    add("--data", metavar="CSV", help="many GEMMs, in the format of hw_models/data/scalesim")
    add("--scalesim", nargs=2, metavar=("CFG", "TOPOLOGY"), help="layers of a SCALE-Sim topology on its array")
    add("--rows", type=int, metavar="R", help="rows of cells (128)")
    add("--cols", type=int, metavar="C", help="columns of cells (128)")
    add("--dataflow", metavar="ws|os|is", help="the operand that stays in the cells (ws)")
    add("--sram", metavar="I,F,O", help="scratchpads of ifmap, filter, ofmap: 256KiB,256KiB,128KiB (no memory at all)")
    add("--dram-bandwidth", metavar="B/s", help="of all cores together: 64GB/s (infinite)")
    add("--clock", metavar="HZ", help="of the cells: 1GHz (1GHz)")
    add("--dtype", metavar="int8|bf16", help="type of every operand (int8)")
    add("--cores", type=int, metavar="N", help="equal arrays that share the GEMM and the bandwidth (1)")
    add("--depth", type=int, metavar="N", help="rows of results that the accumulators hold (as many as needed)")
    add("--convention", metavar="rtl|scalesim", help="whose cycles (rtl with --gemm, otherwise scalesim)")
    add("--json", metavar="FILE", help="write everything as one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Read, run, print, write what was asked for."""
    source = _source(options)
    if options.json:
        from simulator.output import check_writable

        check_writable(Path(options.json))
    return {"gemm": _gemm, "data": _data, "scalesim": _scalesim}[source](options)


def _source(options: argparse.Namespace) -> str:
    """Return which of --gemm, --data and --scalesim is given; UsageError for none, several, or what does not fit."""
    given = [name for name in _SOURCES if getattr(options, name) is not None]
    if not given:
        raise UsageError("array: nothing to run; give --gemm M,N,K, --data CSV or --scalesim CFG TOPOLOGY")
    if len(given) > 1:
        raise UsageError(f"--{given[0]} and --{given[1]} exclude each other; give one of them")
    (source,) = given
    extra = [name for name in _OF_ONE_GEMM if getattr(options, name) is not None]
    if source != "gemm" and extra:
        option = extra[0].replace("_", "-")
        raise UsageError(f"--{option} goes with --gemm only; with --{source} the array is described in the file")
    return source


def _gemm(options: argparse.Namespace) -> int:
    from simulator.cli.array_gemm import Gemm
    from simulator.cli.array_print import print_gemm

    gemm = Gemm.of(options, _convention(options, "rtl"))
    row = gemm.row()
    _write(options, [row])
    print_gemm(gemm, row)
    return 0


def _data(options: argparse.Namespace) -> int:
    from hw_models.array_model.agreement import agreement
    from hw_models.array_model.runs import read_runs, run_all
    from hw_models.systolic import Convention
    from simulator.cli.array_print import print_agreement, print_rows

    convention, path = _convention(options, "scalesim"), Path(options.data)
    rows = run_all(read_runs(path, convention))
    equal = agreement(path, rows) if convention is Convention.SCALESIM else []
    _write(options, rows)
    print_rows(f"{path}, cycles as in {_whose(convention)}", rows)
    print_agreement(equal)
    return 0


def _scalesim(options: argparse.Namespace) -> int:
    from dataclasses import replace

    from hw_models.array_model.runs import Request, run_all
    from hw_models.array_model.scalesim import read_config, read_topology
    from simulator.cli.array_print import print_rows, setup_text

    convention = _convention(options, "scalesim")
    config, topology = map(Path, options.scalesim)
    setup = read_config(config)
    setup = replace(setup, array=replace(setup.array, convention=convention))
    rows = run_all([Request(layer, setup) for layer in read_topology(topology)])
    _write(options, rows)
    print_rows(f"{topology} on {setup_text(setup)}, cycles as in {_whose(convention)}", rows)
    return 0


def _convention(options: argparse.Namespace, default: str) -> "Convention":
    from hw_models.systolic import Convention

    return Convention(one_of("--convention", options.convention or default, tuple(map(str, Convention))))


def _whose(convention: "Convention") -> str:
    return {"rtl": "our RTL", "scalesim": "SCALE-Sim"}[convention]


def _write(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Write the rows, before anything is printed: whoever reads the page may stop reading."""
    from simulator.output import write_text

    if options.json:
        found = {"version": VERSION, "rows": rows}
        write_text(Path(options.json), json.dumps(found, indent=1, allow_nan=False) + "\n")
