"""Traced steps for the tests of parallel plans, and what one reads off a stage."""

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

from torch import nn

from frontends import trace, trace_training_step
from simulator.dims import CollectiveDims
from simulator.graph import Operator, OperatorGraph, OpKind, Phase
from simulator.parallel.stage import Stage
from workloads.gpt.config import Config, Experts
from workloads.gpt.presets import preset
from workloads.gpt.program import program

BATCH, SEQ = 2, 32
EXPERTS = Experts(count=8, active=2, width=64)


def small(name: str, **changes: Any) -> Config:
    """The architecture of a preset, small: 4 layers, width 64, vocabulary 256."""
    sizes = {"layers": 4, "width": 64, "heads": 8, "kv_heads": 4, "head_dim": 8, "ffn": 128, "vocab": 256}
    if name.startswith("gpt2"):
        sizes["kv_heads"] = 8
    return replace(preset(name), **{**sizes, "context": 64, **changes})


@cache
def step(config: Config, batch: int = BATCH, seq: int = SEQ) -> OperatorGraph:
    """One traced training step in bf16."""
    made = program(config, phase="train", batch=batch, seq=seq)
    return trace_training_step(made.module, made.args, loss=made.loss, workload=made.workload, dtype="bf16")


def inference(config: Config, phase: str) -> OperatorGraph:
    given = {"context": SEQ} if phase == "decode" else {"seq": SEQ}
    made = program(config, phase=phase, batch=BATCH, **given)
    return trace(made.module, made.args, made.kwargs, workload=made.workload, dtype="bf16")


def traced_module(module: nn.Module, args: tuple[Any, ...], dtype: str | None = None) -> OperatorGraph:
    return trace_training_step(module, args, dtype=dtype)


def collectives(graph: OperatorGraph) -> list[Operator]:
    return [op for op in graph if op.kind is OpKind.COLLECTIVE]


def dims(op: Operator) -> CollectiveDims:
    assert isinstance(op.dims, CollectiveDims)
    return op.dims


def calls(graph: OperatorGraph, *phases: Phase) -> Counter[tuple[str, int]]:
    """How often each pattern is called with each payload."""
    chosen = [op for op in collectives(graph) if not phases or op.phase in phases]
    return Counter((dims(op).pattern, dims(op).nbytes) for op in chosen)


def payload(graph: OperatorGraph, group: tuple[int, ...], *patterns: str) -> int:
    """Bytes that go through collectives of *patterns* over *group*."""
    return sum(dims(op).nbytes for op in collectives(graph) if op.group == group and dims(op).pattern in patterns)


def model_flops(stages: list[Stage]) -> int:
    return sum(stage.forward.model_flops + stage.backward.model_flops for stage in stages)
