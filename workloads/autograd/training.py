"""The training loop: shuffle, forward, backward, step; stops at the first loss that is not a number."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simulator.errors import UsageError, XpuError
from workloads.autograd.digits import Digits
from workloads.autograd.functional import cross_entropy
from workloads.autograd.modules import Module
from workloads.autograd.optimizers import Optimizer
from workloads.autograd.state import Array, Integers, no_grad
from workloads.autograd.tensor import Tensor


class DivergedError(XpuError):
    """The loss is not a number any more; parameters are those before the step."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """After *steps* steps in all: mean *loss* of the last pass and *accuracy* on the test part, 0 to 1."""

    steps: int
    loss: float
    accuracy: float


def train(model: Module, optimizer: Optimizer, data: Digits, epochs: int, batch: int, seed: int = 0) -> Iterator[Epoch]:
    """Yield one `Epoch` after each pass over the training part, in batches of *batch* images.

    DivergedError names the step whose loss is not finite; that step is not taken.
    """
    if epochs < 1 or batch < 1:
        raise UsageError(f"training: {epochs} epochs in batches of {batch}: both must be at least 1")
    generator, steps = np.random.default_rng(seed), 0
    for _ in range(epochs):
        order = generator.permutation(len(data.train))
        losses = []
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            steps += 1
            losses.append(train_step(model, optimizer, data.train[chosen], data.train_labels[chosen], steps))
        yield Epoch(steps, sum(losses) / len(losses), accuracy(model, data.test, data.test_labels))


def train_step(model: Module, optimizer: Optimizer, images: Array, labels: Integers, step: int = 1) -> float:
    """Take one step and return its loss; *step* counts from 1, for the message of DivergedError."""
    with np.errstate(over="ignore", invalid="ignore"):  # what they lead to is looked at here
        loss = cross_entropy(model(Tensor(images)), labels)
    value = loss.item()
    if not np.isfinite(value):
        raise DivergedError(
            f"loss is {value} at step {step}: the step is not taken; try a learning rate below {optimizer.rate}"
        )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return value


def accuracy(model: Module, images: Array, labels: Integers) -> float:
    """Return the share of *images* whose largest logit is at the right place."""
    with no_grad():
        guesses = model(Tensor(images)).data.argmax(axis=1)
    return float((guesses == labels).mean())
