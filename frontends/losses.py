"""The loss that a training step takes gradients of, when the user brings none."""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  everybody's name for it

from frontends.inputs import tensors_in
from simulator.errors import TraceError


def default_loss(output: Any, args: tuple[Any, ...]) -> torch.Tensor:
    """Return the loss of *output*.

    In this order: the output's own ``loss``; cross entropy in float32 of logits [batch, sequence, vocabulary] against
    the first integer argument [batch, sequence] (a loader hands over shifted targets, so that no slice is copied); the
    sum of the first floating-point tensor in float32, which costs next to nothing.
    """
    own = getattr(output, "loss", None)
    if isinstance(own, torch.Tensor):
        return own
    found = getattr(output, "logits", None)
    if found is None:
        found = next((each for each in tensors_in(output) if each.is_floating_point()), None)
    if found is None:
        raise TraceError(
            f"the module returned {type(output).__name__} without a floating-point tensor to take a loss of"
        )
    if found.dim() == 3:
        targets = _targets(found.shape[:2], args)
        if targets is not None:
            return F.cross_entropy(found.flatten(0, 1).float(), targets.flatten().long())
    return found.float().sum()


def _targets(shape: torch.Size, args: tuple[Any, ...]) -> torch.Tensor | None:
    for each in tensors_in(list(args)):
        if each.shape == shape and each.dtype in (torch.int64, torch.int32):
            return each
    return None
