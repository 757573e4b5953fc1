"""An MLP of PyTorch on its way down through the dialect: what it consists of at each level, and what it computes."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from xdsl.dialects.builtin import ModuleOp

from workloads.compiler.dialect import canonicalise, from_torch, run, to_linalg, to_loops
from workloads.compiler.dialect.text import context

WIDTHS = (8, 12, 4)
ROWS = 3


@dataclass(frozen=True, slots=True)
class Level:
    """A *name*, its operations by name, and the largest difference of its result from PyTorch's."""

    name: str
    operations: dict[str, int]
    error: float


def mlp() -> nn.Sequential:
    """Return the MLP that is imported: linear, relu, linear, with fixed random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first, hidden, last = WIDTHS
        return nn.Sequential(nn.Linear(first, hidden), nn.ReLU(), nn.Linear(hidden, last))


def levels() -> list[Level]:
    """Import the MLP, take it down level by level, and run it at each."""
    net = mlp()
    given = torch.linspace(-2, 2, ROWS * WIDTHS[0]).reshape(ROWS, -1)
    with torch.no_grad():
        wanted = net(given).numpy()
    module = from_torch(net, given)
    found = [("imported", module.clone())]
    canonicalise(module, context())
    lowered = to_linalg(module)
    found += [("canonicalised", module), ("linalg on memrefs", lowered), ("loops", to_loops(lowered))]
    return [
        Level(name, _count(each), float(np.abs(run(each, given.numpy())[0] - wanted).max())) for name, each in found
    ]


def _count(module: ModuleOp) -> dict[str, int]:
    skipped = ("builtin.module", "func.func")
    return dict(Counter(op.name for op in module.walk() if op.name not in skipped).most_common())
