"""Turns a configuration and a phase into a program on the meta device: shapes, and no weights in memory."""

import torch
from torch import Tensor
from torch.nn import functional

from frontends import building
from simulator.graph import Workload
from workloads.gpt.config import Config
from workloads.gpt.model import Model, make_cache
from workloads.gpt.request import step_length
from workloads.program import Program


def program(
    config: Config, phase: str = "prefill", batch: int = 1, seq: int | None = None, context: int | None = None
) -> Program:
    """Return one step of *config*.

    prefill, train  *seq* tokens (512) of each of *batch* sequences.
    decode          one new token a sequence; the cache holds *context* positions (1024), the new one included.
    """
    length = step_length(config, phase, batch, seq, context)
    tokens_each = 1 if phase == "decode" else length
    with building():
        module = Model(config, context=length).train(phase == "train")
        tokens = torch.zeros(batch, tokens_each, dtype=torch.int64)
        kwargs = {"cache": make_cache(config, batch, length), "position": length - 1} if phase == "decode" else {}
    workload = Workload(config.name, phase, batch, tokens=batch * tokens_each, context=length)
    return Program(module, (tokens,), workload, kwargs, next_token_loss if phase == "train" else None)


def next_token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy in float32 of *logits* [B, S, V] against *targets* [B, S].

    Targets come shifted by one from the loader; in a program on meta the tokens stand in for them.
    """
    return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
