"""Turns a configuration and a phase into a program on the meta device: shapes, and no weights in memory."""

import torch
from torch import Tensor
from torch.nn import functional

from simulator.errors import UsageError, nearest
from simulator.graph import Workload
from workloads.gpt.config import Config
from workloads.gpt.model import Model, make_cache
from workloads.program import Program

PHASES = ("prefill", "decode", "train")
DEFAULT_SEQ = 512
DEFAULT_CONTEXT = 1024


def program(
    config: Config, phase: str = "prefill", batch: int = 1, seq: int | None = None, context: int | None = None
) -> Program:
    """Return one step of *config*.

    prefill, train  *seq* tokens (512) of each of *batch* sequences.
    decode          one new token a sequence; the cache holds *context* positions (1024), the new one included.
    """
    length = step_length(config, phase, batch, seq, context)
    tokens_each = 1 if phase == "decode" else length
    with torch.device("meta"):
        module = Model(config, context=length).train(phase == "train")
        tokens = torch.zeros(batch, tokens_each, dtype=torch.int64)
        kwargs = {"cache": make_cache(config, batch, length), "position": length - 1} if phase == "decode" else {}
    workload = Workload(config.name, phase, batch, tokens=batch * tokens_each, context=length)
    return Program(module, (tokens,), workload, kwargs, next_token_loss if phase == "train" else None)


def step_length(config: Config, phase: str, batch: int, seq: int | None, context: int | None) -> int:
    """Return the positions that a step looks over; UsageError if the request makes no sense."""
    if phase not in PHASES:
        raise UsageError(f"unknown phase {phase!r}{nearest(phase, PHASES)} (known: {', '.join(PHASES)})")
    what, asked, default = ("sequence", seq, DEFAULT_SEQ)
    if phase == "decode":
        what, asked, default = ("context", context, DEFAULT_CONTEXT)
    length = min(default, config.context) if asked is None else asked
    for label, value in (("batch", batch), (what, length)):
        if value < 1:
            raise UsageError(f"{config.name} {phase}: {label} is {value}, needs at least 1")
    if length > config.context:
        raise UsageError(f"{config.name} {phase}: {what} is {length}, longer than the model's context {config.context}")
    return length


def next_token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy in float32 of *logits* [B, S, V] against *targets* [B, S].

    Targets come shifted by one from the loader; in a program on meta the tokens stand in for them.
    """
    return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
