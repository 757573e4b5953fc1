"""Tensor parallelism by hand: every matrix that makes features is cut by columns, the next one by rows.

Source: Shoeybi et al., Megatron-LM, 2019, section 3.  Its f hands its input on and sums the gradient over the ranks,
its g sums the output and hands the gradient on: two all-reduces of b s h a layer forward and two backward.
"""
# mypy: disallow-untyped-calls=False

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from simulator.errors import UsageError
from workloads.distributed.comm import Communicator

COLUMNS = ("q", "k", "v", "gate", "up")  # names of linear layers, as in workloads.gpt
ROWS = ("o", "down")


class _Enter(torch.autograd.Function):
    """Megatron's f: identity forward, sum of the gradient backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Communicator) -> Tensor:
        ctx.comm = comm
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return ctx.comm.all_reduce(gradients[0].contiguous()), None


class _Leave(torch.autograd.Function):
    """Megatron's g: sum forward, identity backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Communicator) -> Tensor:
        ctx.mark_dirty(x)
        return comm.all_reduce(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None


class RowLinear(nn.Module):
    """x W^T + b with W cut along its input: each rank has a part of the sum, and the bias comes after it."""

    def __init__(self, linear: nn.Linear, comm: Communicator) -> None:
        super().__init__()
        self.weight, self.bias, self._comm = linear.weight, linear.bias, comm

    def forward(self, x: Tensor) -> Tensor:
        """Return the whole output on every rank."""
        y: Tensor = _Leave.apply(functional.linear(x, self.weight), self._comm)
        return y if self.bias is None else y + self.bias


def cut(name: str, tensor: Tensor, size: int, place: int) -> Tensor:
    """Return the part of the parameter *name* that the rank at *place* of *size* holds: of norms and embeddings all."""
    owner, _, kind = name.rpartition(".")
    owner = owner.rpartition(".")[2]
    if owner in COLUMNS:
        return tensor.chunk(size, 0)[place].clone()
    return tensor.chunk(size, 1)[place].clone() if owner in ROWS and kind == "weight" else tensor


def shard(model: nn.Module, comm: Communicator) -> None:
    """Cut the linear layers of *model* named in COLUMNS and ROWS over *comm*, in place.

    A module with such children is where activations enter and leave.  Raises UsageError if a width does not divide.
    """
    if comm.size == 1:
        return
    for path, parent in list(model.named_modules()):
        names = [name for name, child in parent.named_children() if name in COLUMNS + ROWS]
        for name in names:
            child = parent.get_submodule(name)
            assert isinstance(child, nn.Linear)
            _cut_linear(f"{path}.{name}", child, comm)
            if name in ROWS:
                setattr(parent, name, RowLinear(child, comm))
        if names:
            parent.register_forward_pre_hook(lambda _, args: (_Enter.apply(args[0], comm), *args[1:]))


def _cut_linear(path: str, linear: nn.Linear, comm: Communicator) -> None:
    wide = linear.out_features if path.rpartition(".")[2] in COLUMNS else linear.in_features
    if wide % comm.size:
        raise UsageError(f"tp={comm.size} does not divide the width {wide} of {path}")
    for kind, parameter in list(linear.named_parameters()):
        setattr(linear, kind, nn.Parameter(cut(f"{path}.{kind}", parameter.detach(), comm.size, comm.place)))
