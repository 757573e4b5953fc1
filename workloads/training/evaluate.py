"""Loss on text that the run has not seen."""

import numpy as np
import torch

from workloads.training.network import Network, summed_loss
from workloads.training.packing import IGNORED, Rows, on_device


@torch.no_grad()
def evaluate(network: Network, rows: Rows, count: int, batch: int, device: str) -> float:
    """Return the mean loss in nats a token over *count* rows, evenly spread; over all if there are fewer."""
    which = np.unique(np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64))
    network.train()  # all logits, and the precision of the run
    total, counted = torch.zeros((), device=device), 0
    for first in range(0, len(which), batch):
        inputs, targets = on_device(rows, which[first : first + batch], device)
        total += summed_loss(network(inputs), targets)
        counted += int((rows.targets[which[first : first + batch]] != IGNORED).sum())
    return float(total) / max(1, counted)
