"""Rotary position embedding: a query or key of position p is turned by angles that grow with p."""

import math

import torch
from torch import Tensor

from workloads.gpt.config import Config

Rotation = tuple[Tensor, Tensor]  # cosines and sines, each [positions, H / 2]


def frequencies(config: Config) -> Tensor:
    """Return the H / 2 angles per position: theta^(-2i / H), the slow ones stretched if the model says so."""
    steps = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    angles = config.rope_theta**-steps
    scaling = config.rope_scaling
    if scaling is None:
        return angles
    turns = scaling.original * angles / (2 * math.pi)  # in the context of the first training
    keep = ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)  # 1: as it is, 0: stretched
    return keep * angles + (1 - keep) * angles / scaling.factor


def rotations(config: Config, positions: int) -> Rotation:
    """Return cosines and sines for that many positions."""
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies(config))
    return angles.cos(), angles.sin()


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn *x* [B, heads, S, H]: (a + ib) e^(i angle), where a and b are the halves of a head."""
    cos, sin = rotation
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)
