"""``xpusim passes``: what each pass of the compiler does to a workload, in kernels, bytes, time and bound."""

import argparse
from typing import Any

from simulator.cli.target import add_chip, add_target, load_target

_SHOWN = 8  # operators that a pass made


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "passes", help="what each pass of the compiler does to a workload", description=__doc__
    )
    add_target(parser)
    add_chip(parser)
    parser.add_argument("--passes", metavar="A,B,C", help="which, in order (those of torch.compile)")
    parser.add_argument("--fidelity", default="tile", metavar="roofline|tile", help="compute model (tile)")
    parser.add_argument("--json", metavar="FILE", help="write one JSON object a pass")
    parser.add_argument(
        "--save-graph", metavar="FILE", help="write the graph after the last pass, to be used as TARGET"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Trace, run the passes one by one, print what each did."""
    import json
    from pathlib import Path

    from hw_models import load_chip
    from simulator.graph_io import save_graph
    from simulator.output import check_writable, write_text
    from simulator.passes import INDUCTOR, check_passes
    from simulator.passes.reports import as_rows
    from simulator.simulation import compiled_graph
    from simulator.terminal import print_passes

    passes = INDUCTOR if options.passes is None else tuple(filter(None, options.passes.split(",")))
    check_passes(passes)
    for path in (options.json, options.save_graph):
        if path:
            check_writable(Path(path))
    chip = load_chip(options.chip, options.set)
    compiled = compiled_graph(load_target(options), chip, options.fidelity, passes)
    if options.json:
        write_text(Path(options.json), json.dumps(as_rows(compiled.reports), indent=1) + "\n")
    if options.save_graph:
        save_graph(compiled.graph, options.save_graph)
    print_passes(compiled.graph.workload.name, chip.name, compiled.reports, _SHOWN)
    return 0
