"""The part of a distributed tensor that this rank holds."""
# mypy: disallow-untyped-calls=False

from typing import Any

import torch
from torch import nn

PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer)


def is_sharded(tensor: torch.Tensor) -> bool:
    """Whether *tensor* is a DTensor: a handle on a tensor that several ranks share."""
    return type(tensor) not in PLAIN and hasattr(tensor, "_local_tensor")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return what is in this rank's memory: of a DTensor its shard, of a result still on its way the buffer."""
    while type(tensor) not in PLAIN:
        inner = getattr(tensor, "_local_tensor", None)
        if inner is None:
            inner = getattr(tensor, "elem", None)
        if inner is None:
            return tensor
        tensor = inner
    return tensor


def with_local(tensor: Any, shard: torch.Tensor) -> torch.Tensor:
    """Return a DTensor laid out as *tensor* is, with *shard* as this rank's part."""
    from torch.distributed.tensor import DTensor  # noqa: PLC0415  half a second that only parallel programs need

    return DTensor.from_local(
        shard, tensor.device_mesh, tensor.placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
    )
