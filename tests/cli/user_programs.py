"""Programs as a user would bring them: good ones, and ones that go wrong in every way that has a message."""

from typing import Any

import torch
from torch import Tensor, nn


class Mixer(nn.Module):
    """A network that is none of the presets: convolution, norm, two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(8, 16, 3, padding=1)
        self.norm = nn.BatchNorm1d(16)
        self.out = nn.Linear(16, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out(torch.relu(self.norm(self.conv(x))).mean(-1))
        return y


def mixer(batch: int = 2) -> tuple[nn.Module, tuple[Tensor]]:
    return Mixer(), (torch.zeros(batch, 8, 32),)


class Undecided(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x
        return -x


def undecided() -> tuple[nn.Module, tuple[Tensor]]:
    return Undecided(), (torch.zeros(4),)


class Mismatched(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.up(x[:, :3])
        return y


def mismatched() -> tuple[nn.Module, tuple[Tensor]]:
    return Mismatched(), (torch.zeros(4, 8),)


def raises() -> Any:
    raise KeyError("weights")


def wrong() -> int:
    return 3
