"""Device memory of a rank of a parallel plan: its share of the model, and activations of microbatches in flight."""

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.parallel.schedule import Order
from simulator.parallel.stage import Stage


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes of one rank at its fullest moment; *capacity* of its device memory.

    activations  of all microbatches in flight then, kept from their forward to their backward passes.
    workspace    what the pass that runs then needs beyond them, and what libraries keep.
    in_flight    passes through a part of the model whose activations are held, at most.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    workspace: int
    capacity: int
    in_flight: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations + self.workspace

    @property
    def excess(self) -> int:
        """Bytes that do not fit."""
        return max(0, self.total - self.capacity)


def rank_memory(parts: Sequence[Stage], order: Order, capacity: int, library: int = 0) -> RankMemory:
    """Memory of a rank that holds *parts*, one a chunk, and works through *order*.

    library  bytes that the matrix library keeps.
    """
    others = flying = most = 0
    fullest = (0, 0, 0)  # of all activations; what is kept of them; what the pass needs beyond
    for work in order:
        part = parts[work.chunk]
        others -= part.activation_bytes if work.backward else 0
        peak = part.peak_backward_bytes if work.backward else part.peak_forward_bytes
        passing = max(0, peak - part.activation_bytes)
        kept = others + part.activation_bytes
        fullest = max(fullest, (kept + passing, kept, passing))
        others += 0 if work.backward else part.activation_bytes
        flying += -1 if work.backward else 1
        most = max(most, flying)
    return RankMemory(
        weights=sum(part.weight_bytes for part in parts),
        gradients=sum(part.gradient_bytes for part in parts),
        optimizer=sum(part.optimizer_bytes for part in parts),
        activations=fullest[1],
        workspace=library + fullest[2],
        capacity=capacity,
        in_flight=most,
    )
