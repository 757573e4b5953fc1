"""What ``xpusim serve`` and ``xpusim curve`` share: models as families of steps, and how they run on a chip."""

import argparse
from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from simulator.cli.target import load_target
from simulator.dtypes import DType
from simulator.errors import UsageError, nearest

if TYPE_CHECKING:
    from simulator.graph import OperatorGraph
    from simulator.serving.family import Family

_CACHES = ("fp8", "int8")
_PROGRAMS = ("engine", "module")


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add TARGET, --chip and the options that say how one step runs."""
    from simulator.cli.target import add_chip

    parser.add_argument(
        "target", metavar="MODEL", help="a preset, hf:MODEL_TYPE, or path.py:factory with phase, batch, seq and context"
    )
    add_chip(parser)
    parser.add_argument(
        "--program", default="engine", metavar="engine|module",
        help="what a preset runs: the fused step of workloads.inference, or the plain module's operators (engine)",
    )  # fmt: skip
    parser.add_argument("--dtype", default="bf16", help="type of weights and activations (bf16)")
    parser.add_argument(
        "--config", action="append", default=[], metavar="KEY=VALUE", help="hf: a field of the model's configuration"
    )
    parser.add_argument("--kv-dtype", metavar="fp8|int8", help="type of the KV cache in memory (the model's)")
    parser.add_argument("--mode", default="graph", metavar="eager|graph", help="how the host submits work (graph)")
    parser.add_argument("--fidelity", default="tile", metavar="roofline|tile", help="compute model (tile)")
    parser.add_argument(
        "--memory-fraction", type=float, default=0.9, metavar="F", help="of the device memory that may be used (0.9)"
    )
    parser.add_argument("--block-size", type=int, default=16, metavar="N", help="positions of a KV block (16)")
    parser.add_argument(
        "--speculate", metavar="draft=MODEL,tokens=K,acceptance=A", help="speculative decoding with a draft model"
    )


def load_family(options: Namespace, target: str | None = None) -> "Family":
    """Trace a model at a few sizes; *target* instead of that of the options."""
    from simulator.serving.family import family
    from workloads import preset_names
    from workloads.inference.families import engine_family

    name = target or options.target
    if name.endswith(".json"):
        raise UsageError(f"{name}: a saved graph has one size; serving needs a model that can be traced at many")
    if name in preset_names() and options.program == "engine":
        return engine_family(name, options.dtype)

    def trace(phase: str, batch: int, length: int) -> "OperatorGraph":
        graph = load_target(
            Namespace(
                target=name,
                phase=phase,
                batch=batch,
                seq=length if phase == "prefill" else None,
                context=length if phase == "decode" else None,
                dtype=options.dtype,
                optimizer="none",
                config=options.config if name.startswith("hf:") else [],
            )
        )
        graph.workload = replace(graph.workload, name=name)
        return graph

    return family(trace)


def cache_type(options: Namespace) -> DType | None:
    """--kv-dtype; UsageError if it is no type for a cache."""
    name = options.kv_dtype
    if name is None:
        return None
    if name not in _CACHES:
        raise UsageError(f"--kv-dtype {name}: unknown{nearest(name, _CACHES)} (known: {', '.join(_CACHES)})")
    return DType(name)


def check_common(options: Namespace) -> None:
    """Raise UsageError for what the options of `add_model` can be refused for before anything is traced."""
    from simulator.program import Mode, mode_of

    if mode_of(options.mode) is Mode.COMPILE:
        raise UsageError("--mode compile: a served step is eager or a captured graph")
    if options.program not in _PROGRAMS:
        known = ", ".join(_PROGRAMS)
        raise UsageError(f"--program {options.program}: unknown{nearest(options.program, _PROGRAMS)} (known: {known})")
    types = [str(dtype) for dtype in DType]
    if options.dtype not in types:
        raise UsageError(f"--dtype {options.dtype}: unknown{nearest(options.dtype, types)} (known: {', '.join(types)})")
    if not 0 < options.memory_fraction <= 1:
        raise UsageError(f"--memory-fraction {options.memory_fraction}: must be above 0 and at most 1")
    if options.block_size < 1:
        raise UsageError(f"--block-size {options.block_size}: must be at least 1")
    cache_type(options)


def context_of(options: Namespace, otherwise: int) -> int:
    """--context; without it the most positions that a preset was made for, or *otherwise* for other targets.

    UsageError if a preset has no room for as many.
    """
    from workloads import preset_names
    from workloads.gpt.presets import preset

    if options.target not in preset_names():
        return int(options.context or otherwise)
    most = preset(options.target).context
    if options.context and options.context > most:
        raise UsageError(f"--context {options.context}: {options.target} has room for {most:,} positions")
    return int(options.context or most)
