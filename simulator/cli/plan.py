"""``xpusim plan``: which way of dividing a model over a system is fastest, why, and why the obvious ones are not."""

import argparse
from typing import TYPE_CHECKING, Any

from simulator.cli.parallel_options import add_system, load_machine, preset_shape
from simulator.cli.target import add_target
from simulator.errors import UsageError

if TYPE_CHECKING:
    from simulator.graph import OperatorGraph
    from simulator.parallel.plan import Shape
    from simulator.parallel.ranking import Ranking

_EXAMPLE = "example: xpusim plan llama-70b --system dgx-h200x32 --phase train --batch 512 --seq 4096"
_DEPTH = 4  # layers that are traced: one at either end, and two alike between


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "plan", help="search the parallel plans of a model on a system", description=__doc__, epilog=_EXAMPLE
    )
    add_target(parser)
    add_system(parser, required=True)
    parser.add_argument("--best", type=int, default=10, metavar="N", help="plans to print (10)")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="links.nvlink.bandwidth=1TB/s")
    parser.add_argument("--json", metavar="FILE", help="write everything as one JSON object")
    parser.set_defaults(run=run, phase="train")


def run(options: argparse.Namespace) -> int:
    """Search, print, write what was asked for."""
    from pathlib import Path

    from simulator.output import check_writable
    from simulator.parallel.ranking import write_ranking
    from simulator.report.plans import print_ranking

    if options.json is not None:
        check_writable(Path(options.json))
    found = search(options)
    if options.json is not None:
        write_ranking(found, Path(options.json))
    print_ranking(found)
    return 0


def search(options: argparse.Namespace) -> "Ranking":
    """Rank all plans of the options' system."""
    from simulator.parallel.ranking import rank

    if options.phase != "train":
        raise UsageError(f"--phase {options.phase}: plans are searched for training; for inference compare runs")
    if options.best < 1:
        raise UsageError(f"--best {options.best}: must be at least 1")
    on = load_machine(options)
    shape, whole = _shape(options)

    def few(batch: int) -> "OperatorGraph":
        return trace(options, batch, whole)

    return rank(on, shape, few, lambda batch: trace(options, batch, True), options.batch, options.best)


def _shape(options: argparse.Namespace) -> "tuple[Shape, bool]":
    """What the model has, and whether all of it has to be traced to know."""
    from simulator.parallel.roles import shape_of

    shape = preset_shape(options)
    return (shape_of(trace(options, 1, True)), True) if shape is None else (shape, False)


def trace(options: argparse.Namespace, batch: int, whole: bool) -> "OperatorGraph":
    """A training step of *batch* sequences: of the *whole* target, or of a preset's first layers."""
    from dataclasses import replace

    from frontends import trace_training_step
    from simulator.cli.target import load_target
    from workloads import preset
    from workloads.gpt.program import program

    if whole:
        return load_target(argparse.Namespace(**{**vars(options), "batch": batch}))
    config = preset(options.target)
    made = program(replace(config, layers=min(_DEPTH, config.layers)), "train", batch, options.seq)
    return trace_training_step(
        made.module, made.args, made.kwargs, loss=made.loss, optimizer=options.optimizer, workload=made.workload,
        dtype=options.dtype,
    )  # fmt: skip
