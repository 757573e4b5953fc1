"""``xpusim run``: one workload on one chip, or divided over a system of chips."""

import argparse
from typing import Any

from simulator.cli import run_parallel
from simulator.cli.target import add_chip, add_target, load_target


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("run", help="simulate a workload on a chip", description=__doc__)
    add_target(parser)
    add_chip(parser, required=False)
    run_parallel.add_options(parser)
    modes = "eager|graph|compile"
    parser.add_argument("--mode", default="graph", metavar=modes, help="how the host submits work (graph)")
    parser.add_argument("--fidelity", default="tile", metavar="roofline|tile", help="compute model (tile)")
    parser.add_argument("--json", metavar="FILE", help="write everything as one JSON object")
    parser.add_argument("--html", metavar="FILE", help="write a page with plots")
    parser.add_argument("--timeline", metavar="FILE", help="write a trace for ui.perfetto.dev")
    parser.add_argument("--save-graph", metavar="FILE", help="write the traced operator graph, to be used as TARGET")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Trace, simulate, print, write what was asked for."""
    if run_parallel.divided(options):
        return run_parallel.run(options)
    from pathlib import Path

    from hw_models import load_chip
    from simulator.graph_io import save_graph
    from simulator.output import check_writable
    from simulator.program import mode_of
    from simulator.simulation import simulate
    from simulator.terminal import print_result

    # what can be refused is refused before the trace, which takes longer
    mode_of(options.mode)
    for path in (options.json, options.html, options.timeline, options.save_graph):
        if path is not None:
            check_writable(Path(path))
    chip = load_chip(options.chip, options.set)
    graph = load_target(options)
    result = simulate(graph, chip, mode=options.mode, fidelity=options.fidelity)
    for path, save in (
        (options.json, result.save_json),
        (options.html, result.save_html),
        (options.timeline, result.save_timeline),
    ):
        if path is not None:
            save(path)
    if options.save_graph is not None:
        save_graph(graph, options.save_graph)
    print_result(result)  # last, so that a closed pipe loses no file
    return 0
