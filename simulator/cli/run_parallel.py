"""The branch of ``xpusim run`` that divides a model over a system: ``--system S --parallel dp=4,tp=8,pp=4``."""

import argparse
from typing import TYPE_CHECKING

from simulator.cli.parallel_options import add_plan, add_system, load_machine, plan_of, preset_shape
from simulator.errors import UsageError

if TYPE_CHECKING:
    from simulator.graph import OperatorGraph
    from simulator.parallel.plan import Plan
    from simulator.parallel.result import Run
    from simulator.parallel.run import Machine

_ONE_CHIP = ("chip", "html", "save_graph")
_OF_TRAINING = ("zero", "microbatch", "schedule", "recompute", "precision")
_DIVIDED = ("system", "parallel", "zero", "microbatch", "schedule", "recompute", "precision")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add --system, --parallel and what belongs to them."""
    add_system(parser)
    add_plan(parser)


def divided(options: argparse.Namespace) -> bool:
    """Whether the options speak of a system; UsageError where they speak of both, or of neither."""
    given = [name for name in _DIVIDED if getattr(options, name) is not None]
    if not given:
        if options.chip is None:
            raise UsageError("--chip CHIP missing; or --system SYSTEM and --parallel PLAN for a model over many chips")
        return False
    alone = [_flag(name) for name in _ONE_CHIP if getattr(options, name) is not None]
    faults = [f"{' and '.join(alone)} {'is' if len(alone) == 1 else 'are'} for one chip"] if alone else []
    faults += [f"{_flag(name)} missing" for name in ("system", "parallel") if getattr(options, name) is None]
    if faults:
        raise UsageError(f"{'; '.join(faults)}; example: --system dgx-h200x16 --parallel dp=4,tp=8,pp=4,sp")
    return True


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def run(options: argparse.Namespace) -> int:
    """Trace one microbatch, divide it, play a step, print, write what was asked for."""
    from pathlib import Path

    from simulator.output import check_writable
    from simulator.parallel.timeline import write_timeline
    from simulator.parallel.write import write_json
    from simulator.report.parallel import print_run

    for path in (options.json, options.timeline):
        if path is not None:
            check_writable(Path(path))
    on = load_machine(options)
    plan = plan_of(options)
    found = divided_run(options, plan, on)
    if options.json is not None:
        write_json(found, Path(options.json))
    if options.timeline is not None:
        write_timeline(found, Path(options.timeline))
    print_run(found)
    return 0


def divided_run(options: argparse.Namespace, plan: "Plan", on: "Machine") -> "Run":
    """The run of the options' target by *plan*; UsageError names all reasons for which it cannot be."""
    check(options, plan, on)
    from simulator.parallel.inference import inference_run
    from simulator.parallel.run import training_run
    from simulator.parallel.shard import shard, shard_inference

    if options.phase != "train":
        graph = microbatch_graph(options, options.batch // plan.dp)
        return inference_run(shard_inference(graph, plan), plan, on, graph.model_flops)
    graph = microbatch_graph(options, plan.microbatch)
    return training_run(shard(graph, plan), plan, on, graph.workload, graph.model_flops, options.batch)


def check(options: argparse.Namespace, plan: "Plan", on: "Machine") -> None:
    """Refuse what can be refused before the trace."""
    training = [name for name in _OF_TRAINING if getattr(options, name) is not None]
    if options.phase != "train" and training:
        raise UsageError(
            f"{' and '.join(map(_flag, training))} {'is' if len(training) == 1 else 'are'} for --phase train"
        )
    shape = preset_shape(options)
    if shape is not None:
        plan.check(shape, chips=on.system.chips, global_batch=options.batch)


def microbatch_graph(options: argparse.Namespace, batch: int) -> "OperatorGraph":
    """Trace the target with *batch* sequences: those of one microbatch."""
    from simulator.cli.target import load_target

    return load_target(argparse.Namespace(**{**vars(options), "batch": batch}))
