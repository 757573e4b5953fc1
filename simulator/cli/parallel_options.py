"""Options of commands that divide a model over a system, and what they ask for, checked before anything is traced."""

import argparse
from typing import TYPE_CHECKING

from simulator.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.links import Demand
    from simulator.parallel.plan import Plan, Shape
    from simulator.parallel.played import Network
    from simulator.parallel.run import Machine
    from simulator.system import System

DEFAULT_SEQ = 512  # as for one chip
_OF_PLANS = ("zero", "microbatch", "schedule", "recompute", "precision")
_DEFAULTS = {"zero": 0, "microbatch": 1, "schedule": "1f1b", "recompute": "none", "precision": "mixed"}


def add_plan(parser: argparse.ArgumentParser) -> None:
    """Add --parallel and what belongs to it."""
    parser.add_argument("--parallel", metavar="dp=N,tp=N,pp=N,ep=N,sp", help="how the model is divided over --system")
    parser.add_argument("--zero", type=int, metavar="0|1|2|3", help="what is divided over dp: nothing (0)")
    parser.add_argument("--microbatch", type=int, metavar="B", help="sequences of a microbatch; --batch is global (1)")
    parser.add_argument(
        "--schedule", metavar="1f1b|gpipe|interleaved:V", help="of the pipeline; V chunks a stage (1f1b)"
    )
    parser.add_argument("--recompute", metavar="none|selective|full", help="activations done again (none)")
    parser.add_argument(
        "--precision", metavar="mixed|same", help="fp32 gradients and master weights, or all in --dtype (mixed)"
    )


def add_system(parser: argparse.ArgumentParser, required: bool = False) -> None:
    """Add --system."""
    parser.add_argument(
        "--system", required=required, metavar="SYSTEM", help="a name from 'xpusim systems', NAMExN, or a YAML file"
    )


def plan_of(options: argparse.Namespace) -> "Plan":
    """The plan that the options describe; UsageError names all that is wrong with it."""
    from simulator.parallel.plan import parse_plan

    if options.parallel is None:
        raise UsageError("--parallel missing; example: --parallel dp=4,tp=8,pp=4,sp")
    given = {name: _DEFAULTS[name] if getattr(options, name) is None else getattr(options, name) for name in _OF_PLANS}
    schedule, chunks = read_schedule(str(given["schedule"]))
    given["schedule"] = schedule
    return parse_plan(options.parallel, interleave=chunks, **given)


def read_schedule(text: str) -> tuple[str, int]:
    """Schedule and chunks a stage.

    >>> read_schedule("interleaved:3"), read_schedule("1f1b")
    (('interleaved', 3), ('1f1b', 1))
    """
    name, colon, chunks = text.partition(":")
    if not colon:
        return name, 2 if name == "interleaved" else 1
    if name != "interleaved" or not chunks.isdecimal() or len(chunks) > 4:
        raise UsageError(f"--schedule {text}: only interleaved has chunks; expected the form interleaved:3")
    return name, int(chunks)


def load_machine(options: argparse.Namespace) -> "Machine":
    """The system of the options with its chip; of --set, what begins with ``chip.`` goes to the chip."""
    from hw_models import load_chip, load_system
    from simulator.parallel.run import machine
    from simulator.program import mode_of

    mode = mode_of(getattr(options, "mode", "graph"))
    own = [each.removeprefix("chip.") for each in options.set if each.startswith("chip.")]
    system = load_system(options.system, [each for each in options.set if not each.startswith("chip.")])
    return machine(system, load_chip(system.chip, own), price_collectives, getattr(options, "fidelity", "tile"), mode)


def preset_shape(options: argparse.Namespace) -> "Shape | None":
    """What of a preset decides which plans divide it; None for a target of which that is known after the trace only."""
    from simulator.parallel.plan import Shape
    from workloads import preset, preset_names

    if options.target not in preset_names():
        return None
    config = preset(options.target)
    experts = config.experts.count if config.experts else 0
    return Shape(config.layers, config.heads, config.kv_heads, experts, options.seq or DEFAULT_SEQ)


def price_collectives(system: "System") -> "Network":
    """What collectives ask of the links of *system*."""
    from hw_models.interconnect import Collectives
    from simulator.links import Demand

    known = Collectives(system)

    def price(pattern: str, nbytes: int, ranks: "Sequence[int]") -> "Demand":
        return known.predict(pattern, nbytes, ranks).best.demand if nbytes else Demand(0)

    return price
