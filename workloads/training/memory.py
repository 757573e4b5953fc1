"""Who holds the device memory during a step: parameters, gradients, optimizer, each saved activation."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.graph import OperatorGraph, OpKind, Phase, Role
from simulator.memory import lifetimes

OWNERS = ("parameters", "optimizer", "gradients", "batch", "saved activations", "temporaries")
_OF_ROLE = {
    Role.WEIGHT: "parameters",
    Role.BUFFER: "parameters",
    Role.OPTIMIZER: "optimizer",
    Role.GRADIENT: "gradients",
    Role.INPUT: "batch",
    Role.CACHE: "batch",
}


@dataclass(frozen=True, slots=True)
class Saved:
    """One kind of tensor that the forward pass leaves for the backward pass.

    name    where it is made, with ``*`` for the number of a block; *count* of them, *nbytes* of all together.
    """

    name: str
    count: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class StepMemory:
    """Bytes in use during each operator of one step, in program order, which is the order of torch's allocations.

    during      owner -> bytes; *after* the bytes in all that are left when the operator is done.
    saved       what is kept for the backward pass when the first forward pass is done, largest first.
    """

    graph: OperatorGraph
    during: Mapping[str, NDArray[np.int64]]
    after: NDArray[np.int64]
    saved: Sequence[Saved]

    @property
    def total(self) -> NDArray[np.int64]:
        return sum(self.during.values(), start=np.zeros(len(self.graph), dtype=np.int64))

    @property
    def peak(self) -> int:
        return int(self.total.max())

    @property
    def peak_at(self) -> int:
        """Id of the operator that runs at the peak."""
        return int(self.total.argmax())

    @property
    def resident(self) -> int:
        """Bytes that are there between two steps: parameters and states of the optimizer."""
        return int(self.during["parameters"][0] + self.during["optimizer"][0])

    def at_peak(self) -> dict[str, int]:
        """Bytes by owner at the peak."""
        return {owner: int(nbytes[self.peak_at]) for owner, nbytes in self.during.items()}

    def moments(self) -> dict[str, int]:
        """Ids of the operators after which a program can look: forward pass, loss, backward pass.

        Of the first micro-batch; the logits are the last product of its forward pass.
        """
        phases = [op.phase for op in self.graph]
        turn = phases.index(Phase.BACKWARD)
        again = (at for at in range(turn, len(phases)) if phases[at] in (Phase.FORWARD, Phase.OPTIMIZER))
        forward = [op for op in self.graph.operators[:turn] if op.phase is Phase.FORWARD]
        logits = max(op.id for op in forward if op.kind is OpKind.MATMUL)
        loss = max(op.id for op in forward if op.target != "aten.ones_like")  # which starts the backward pass
        return {"forward": logits, "loss": loss, "backward": next(again, len(phases)) - 1}


def step_memory(graph: OperatorGraph) -> StepMemory:
    """Follow every storage of a traced step through it."""
    count = len(graph)
    first, last = lifetimes(graph, np.arange(count, dtype=np.int64))
    kept = _kept(graph)
    during = {owner: np.zeros(count + 1, dtype=np.int64) for owner in OWNERS}
    after = np.zeros(count + 1, dtype=np.int64)
    for storage in graph.storages:
        if last[storage.id] < 0:
            continue
        owner = _OF_ROLE.get(storage.role) or ("saved activations" if storage.id in kept else "temporaries")
        begin, end = int(first[storage.id]), int(last[storage.id])
        during[owner][begin] += storage.nbytes
        during[owner][end + 1] -= storage.nbytes
        stays = end == count - 1 and storage.role.resident
        after[begin] += storage.nbytes
        after[count if stays else end] -= storage.nbytes
    summed = {owner: np.cumsum(change[:-1]) for owner, change in during.items()}
    return StepMemory(graph, summed, np.cumsum(after[:-1]), _saved(graph, kept, first, last))


def _kept(graph: OperatorGraph) -> set[int]:
    """Storages that a forward pass makes and something later reads: a backward pass or a second forward pass."""
    made = {t.storage for op in graph if op.phase is Phase.FORWARD for t in op.outputs}
    read = {t.storage for op in graph if op.phase in (Phase.BACKWARD, Phase.RECOMPUTE) for t in op.inputs}
    return {each for each in made & read if graph.storages[each].role is Role.ACTIVATION}


def _saved(graph: OperatorGraph, kept: set[int], first: NDArray[np.int64], last: NDArray[np.int64]) -> list[Saved]:
    """What is alive when the first backward pass begins, by the place where it was made."""
    begin = min((op.id for op in graph if op.phase is Phase.BACKWARD), default=len(graph))
    found: dict[str, list[int]] = {}
    for each in kept:
        if first[each] < begin <= last[each]:
            name = re.sub(r"\.\d+", ".*", graph.storages[each].name)
            found.setdefault(name, []).append(graph.storages[each].nbytes)
    groups = [Saved(name, len(sizes), sum(sizes)) for name, sizes in found.items()]
    return sorted(groups, key=lambda group: (-group.nbytes, group.name))
