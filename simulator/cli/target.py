"""TARGET of a command: a preset, a file with a factory, a Hugging Face architecture, or a saved graph."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.dtypes import DType
from simulator.errors import UsageError, nearest

if TYPE_CHECKING:
    from simulator.graph import OperatorGraph, Workload

PHASES = ("prefill", "decode", "train")
_KINDS = "a preset, path.py:factory, hf:MODEL_TYPE or a saved graph (.json)"


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add TARGET and the options that say what one run of it is."""
    parser.add_argument("target", metavar="TARGET", help=_KINDS)
    parser.add_argument("--phase", default="prefill", metavar="|".join(PHASES), help="what one run does (prefill)")
    parser.add_argument("--batch", type=int, default=1, metavar="B", help="sequences (1)")
    parser.add_argument("--seq", type=int, metavar="S", help="new tokens of each sequence in prefill and train (512)")
    parser.add_argument("--context", type=int, metavar="C", help="positions in the KV cache in decode (1024)")
    parser.add_argument("--dtype", default="bf16", help="type of weights and activations (bf16)")
    parser.add_argument("--optimizer", default="adamw", metavar="adamw|sgd|none", help="of a training step (adamw)")
    parser.add_argument(
        "--config", action="append", default=[], metavar="KEY=VALUE", help="hf: a field of the model's configuration"
    )


def add_chip(parser: argparse.ArgumentParser, required: bool = True) -> None:
    """Add --chip and --set."""
    parser.add_argument("--chip", required=required, metavar="CHIP", help="a name from 'xpusim chips', or a YAML file")
    parser.add_argument(
        "--set", action="append", default=[], metavar="PATH=VALUE", help="override a field: memory.hbm.bandwidth=6TB/s"
    )


def load_target(options: argparse.Namespace) -> "OperatorGraph":
    """Trace or read what the options name; UsageError, TraceError or GraphError says what is wrong with it."""
    _check(options)
    target = options.target
    if options.config and not target.startswith("hf:"):
        raise UsageError("--config sets fields of hf:MODEL_TYPE targets only")
    if target.endswith(".json"):
        from simulator.graph_io import load_graph

        return load_graph(target)
    if ".py:" in target:
        return _from_factory(options)
    if target.startswith("hf:"):
        return _from_hf(options)
    return _from_preset(options)


def _check(options: argparse.Namespace) -> None:
    if options.phase not in PHASES:
        raise UsageError(
            f"--phase {options.phase}: unknown{nearest(options.phase, PHASES)} (known: {', '.join(PHASES)})"
        )
    for name in ("batch", "seq", "context"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name} {value}: must be at least 1")
    known = [str(dtype) for dtype in DType]
    if options.dtype not in known:
        raise UsageError(f"--dtype {options.dtype}: unknown{nearest(options.dtype, known)} (known: {', '.join(known)})")
    if options.optimizer not in ("adamw", "sgd", "none"):
        raise UsageError(f"--optimizer {options.optimizer}: unknown (known: adamw, sgd, none)")


def _from_preset(options: argparse.Namespace) -> "OperatorGraph":
    from workloads import build, preset_names

    names = preset_names()
    if options.target not in names:
        hint = nearest(options.target, names) or ";"
        raise UsageError(f"unknown target {options.target!r}{hint} TARGET is {_KINDS}; presets: {', '.join(names)}")
    program = build(options.target, options.phase, options.batch, options.seq, options.context)
    return _trace(options, program.module, program.args, program.kwargs, program.loss, program.workload)


def _from_factory(options: argparse.Namespace) -> "OperatorGraph":
    """A factory with parameters named phase, batch, seq or context is given them, where the command line does."""
    from dataclasses import replace

    from frontends import load_factory

    given = {name: getattr(options, name) for name in ("phase", "batch", "seq", "context")}
    optional = {name: value for name, value in given.items() if value is not None}
    module, args, kwargs = load_factory(options.target, optional=optional)
    graph = _trace(options, module, args, kwargs, None, None)
    graph.workload = replace(graph.workload, name=Path(options.target).name, phase=options.phase)
    return graph


def _from_hf(options: argparse.Namespace) -> "OperatorGraph":
    from frontends import hf_arguments, load_hf
    from simulator.graph import Workload

    name, seq, context = options.target.removeprefix("hf:"), options.seq or 512, options.context or 1024
    module = load_hf(name, dict(_field(each) for each in options.config))
    args, kwargs = hf_arguments(module, options.phase, options.batch, seq, context)
    new = 1 if options.phase == "decode" else seq
    workload = Workload(
        name=options.target,
        phase=options.phase,
        batch=options.batch,
        tokens=options.batch * new,
        context=context if options.phase == "decode" else seq,
        dtype=DType(options.dtype),
    )
    return _trace(options, module, args, kwargs, None, workload)


def _field(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--config {text}: expected the form KEY=VALUE, as in num_hidden_layers=4")
    return key, value


def _trace(
    options: argparse.Namespace, module: Any, args: Any, kwargs: Any, loss: Any, workload: "Workload | None"
) -> "OperatorGraph":
    from frontends import trace, trace_training_step

    if options.phase != "train":
        return trace(module, args, kwargs, workload=workload, dtype=options.dtype)
    optimizer = None if options.optimizer == "none" else options.optimizer
    return trace_training_step(
        module, args, kwargs, loss=loss, optimizer=optimizer, workload=workload, dtype=options.dtype
    )
