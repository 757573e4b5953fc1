"""The model as a run trains it: with autocast and activation checkpointing inside, so that a trace sees both."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from workloads.gpt.config import Config
from workloads.gpt.model import Cache, Model
from workloads.training.casting import casting
from workloads.training.packing import IGNORED


class Network(Model):
    """A GPT that casts by itself while it trains, and keeps the inputs of blocks only if *checkpointing* is on."""

    def __init__(self, config: Config, precision: str = "fp32", checkpointing: bool = False) -> None:
        super().__init__(config)
        self.precision = precision
        if checkpointing:
            self.blocks = Forgetful(self.blocks, precision)

    def forward(self, tokens: Tensor, cache: Cache | None = None, position: int = 0) -> Tensor:
        """Return logits as `Model` does; outside of training everything is in the parameters' type."""
        precision = self.precision if self.training else "fp32"
        with casting(tokens.device.type, precision):
            return super().forward(tokens, cache, position)


class Forgetful(nn.ModuleList):
    """Blocks that keep their input and forget the rest; the backward pass computes it again."""

    def __init__(self, blocks: nn.ModuleList, precision: str) -> None:
        super().__init__(list(blocks))
        self._precision = precision

    def __iter__(self) -> Iterator[Any]:
        """Yield each block wrapped so that a call of it forgets."""
        if not torch.is_grad_enabled():
            return super().__iter__()
        return (partial(self._call, block) for block in super().__iter__())

    def _call(self, block: nn.Module, x: Tensor, *rest: Any) -> Tensor:
        contexts = partial(_contexts, self._precision) if x.is_meta else _no_contexts
        out: Tensor = checkpoint(block, x, *rest, use_reentrant=False, preserve_rng_state=False, context_fn=contexts)
        return out


Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]


def _contexts(precision: str) -> Contexts:
    """Casts for the second forward pass of a trace: torch brings back its own autocast there, and not ours."""
    return nullcontext(), casting("meta", precision)


def _no_contexts() -> Contexts:
    return nullcontext(), nullcontext()


Loss = Callable[[Tensor, Tensor], Tensor]


def summed_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy in float32, summed over all *targets* [B, S] that are not IGNORED."""
    return functional.cross_entropy(
        logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
