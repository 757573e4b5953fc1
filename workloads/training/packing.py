"""Rows of equal length without padding, and which of them a step sees: a function of the seed and the step alone."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simulator.errors import UsageError
from workloads.training.corpus import Tokens

IGNORED = -100  # a target without loss; what torch's cross entropy leaves out by default


@dataclass(frozen=True, slots=True)
class Rows:
    """Inputs and targets [rows, seq]; a target is the token after its input, or IGNORED."""

    inputs: NDArray[np.int64]
    targets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.inputs)


def packed(stream: Tokens, seq: int) -> Rows:
    """Cut *stream* into rows of *seq* tokens; a document may begin and end anywhere in a row.

    Every token but the first is the target of exactly one position, up to the last whole row.
    Raises UsageError if there is not one row.
    """
    count = (len(stream) - 1) // seq
    if count < 1:
        raise UsageError(f"too little text: {len(stream)} tokens, one row of --seq {seq} needs {seq + 1}")
    ids = stream[: count * seq + 1].astype(np.int64)
    return Rows(ids[:-1].reshape(count, seq), ids[1:].reshape(count, seq))


class Order:
    """Which rows each step sees: all of them once in random order, then all again in another order."""

    def __init__(self, rows: int, per_step: int, seed: int) -> None:
        self._rows, self._per_step, self._seed = rows, per_step, seed
        self._known: dict[int, NDArray[np.int64]] = {}

    def of_step(self, step: int) -> NDArray[np.int64]:
        """Return the numbers of the rows of *step*, the first step being 0."""
        first = step * self._per_step
        return np.array([self._row(at) for at in range(first, first + self._per_step)], dtype=np.int64)

    def _row(self, at: int) -> int:
        epoch, place = divmod(at, self._rows)
        if epoch not in self._known:
            self._known = {epoch: np.random.default_rng((self._seed, epoch)).permutation(self._rows)}
        return int(self._known[epoch][place])


def on_device(rows: Rows, which: NDArray[np.int64], device: str) -> tuple[Tensor, Tensor]:
    """Return inputs and targets of *which* rows as tensors on *device*."""
    pair = torch.from_numpy(rows.inputs[which]), torch.from_numpy(rows.targets[which])
    if device != "cuda":
        return pair[0].to(device), pair[1].to(device)
    return pair[0].pin_memory().to(device, non_blocking=True), pair[1].pin_memory().to(device, non_blocking=True)
