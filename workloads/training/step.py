"""One optimizer step: forward and backward over the micro-batches, clip, AdamW."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from workloads.training.config import Run
from workloads.training.network import Network, summed_loss
from workloads.training.packing import IGNORED

Pair = tuple[Tensor, Tensor]  # inputs and targets of one micro-batch


@dataclass(frozen=True, slots=True)
class Done:
    """What a step says of itself, on the device: reading a value waits for it.

    loss  mean over all targets that count, in nats a token; *norm* of all gradients before clipping.
    """

    loss: Tensor
    norm: Tensor


def make_optimizer(network: Network, run: Run) -> torch.optim.AdamW:
    """AdamW with decay for matrices alone; one fused kernel for many parameters where the device has it."""
    matrices = [each for each in network.parameters() if each.dim() >= 2]
    others = [each for each in network.parameters() if each.dim() < 2]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": run.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    fused = True if run.device == "cuda" else None
    return torch.optim.AdamW(groups, lr=run.lr, betas=(run.beta1, run.beta2), fused=fused)


def train_step(
    network: Network, optimizer: torch.optim.Optimizer, parts: Sequence[Pair], lr: float, clip: float
) -> Done:
    """Train on *parts*, which count as one batch: each target weighs the same, whichever part it is in."""
    loss = accumulate(network, parts)
    norm = torch.nn.utils.clip_grad_norm_(network.parameters(), clip)
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return Done(loss, norm)


def accumulate(network: Network, parts: Sequence[Pair]) -> Tensor:
    """Add the gradients of the mean loss over all *parts* to those of *network*; return that loss, detached."""
    weight = 1 / sum((targets != IGNORED).sum() for _, targets in parts)
    total: Tensor | None = None
    for inputs, targets in parts:
        loss = summed_loss(network(inputs), targets) * weight
        loss.backward()  # type: ignore[no-untyped-call]
        total = loss.detach() if total is None else total + loss.detach()
    assert total is not None  # a step has at least one part
    return total
