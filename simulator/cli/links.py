"""``xpusim links``: the bandwidth between chips at which exposed communication costs less than a given loss."""

import argparse
from typing import TYPE_CHECKING, Any

from simulator.cli.parallel_options import add_plan, add_system, load_machine, plan_of
from simulator.cli.target import add_target
from simulator.errors import UsageError

if TYPE_CHECKING:
    from simulator.parallel.need import Need

_EXAMPLE = "example: xpusim links llama-70b --system dgx-h200x16 --parallel dp=4,tp=8,pp=4,sp --batch 256 --loss 5%"


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "links", help="how much chip-to-chip bandwidth training needs", description=__doc__, epilog=_EXAMPLE
    )
    add_target(parser)
    add_system(parser, required=True)
    add_plan(parser)
    parser.add_argument("--loss", default="5%", metavar="P%", help="of the time, that communication may cost (5%%)")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="links.nvlink.bandwidth=1TB/s")
    parser.add_argument("--json", metavar="FILE", help="write everything as one JSON object")
    parser.set_defaults(run=run, phase="train")


def run(options: argparse.Namespace) -> int:
    """Find the bandwidths, print, write what was asked for."""
    import json
    from pathlib import Path

    from simulator.cli.run_parallel import check, microbatch_graph
    from simulator.output import check_writable, write_text
    from simulator.parallel.need import Needs
    from simulator.parallel.shard import shard
    from simulator.report.links import print_needs

    limit = read_loss(options.loss)
    if options.phase != "train":
        raise UsageError(f"--phase {options.phase}: links are asked for training; for inference compare runs")
    if options.json is not None:
        check_writable(Path(options.json))
    on, plan = load_machine(options), plan_of(options)
    check(options, plan, on)
    graph = microbatch_graph(options, plan.microbatch)
    found = Needs(shard(graph, plan), plan, on, options.batch, limit).all()
    if options.json is not None:
        write_text(Path(options.json), json.dumps([_dict(each) for each in found], indent=1, allow_nan=False) + "\n")
    print_needs(found, options.target, plan, on.system, limit)
    return 0


def read_loss(text: str) -> float:
    """*text*, such as 5%, as a share of the time.

    >>> read_loss("5%")
    0.05
    """
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not text.endswith("%") or not 0 < share < 1:
        raise UsageError(f"--loss {text}: expected a percentage above 0 and below 100, such as 5%")
    return share


def _dict(need: "Need") -> dict[str, object]:
    return {
        "parallelism": need.kind,
        "level": need.level,
        "bandwidth": need.bandwidth,
        "needed": need.needed,
        "loss": need.loss,
    }
