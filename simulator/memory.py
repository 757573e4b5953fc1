"""Tensor lifetimes: what lives in the device memory while a graph runs, and the peak."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.graph import OperatorGraph, Role


@dataclass(frozen=True, slots=True)
class MemoryTimeline:
    """Bytes in use while each operator runs, by role, in the order in which the operators start.

    order   operator ids; *live* maps a role to the bytes of its storages alive during each of them.
    peak    the most bytes in use at once, and *peak_operator* the operator that runs then (None: an empty graph).
    """

    order: NDArray[np.int64]
    live: dict[Role, NDArray[np.int64]]
    peak: int
    peak_operator: int | None

    @property
    def total(self) -> NDArray[np.int64]:
        return sum(self.live.values(), start=np.zeros_like(self.order))

    def at_peak(self) -> dict[Role, int]:
        """Bytes by role at the moment of the peak."""
        if self.peak_operator is None:
            return dict.fromkeys(self.live, 0)
        position = int(np.argmax(self.total))
        return {role: int(bytes_[position]) for role, bytes_ in self.live.items()}


def lifetimes(graph: OperatorGraph, position: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and the last position at which each storage is in use; an unused one gets (0, -1).

    *position* maps an operator id to its place in the order of execution.  A resident storage and one that the
    program returns live to the end; a storage that the program holds longer than its last use does as well, as far
    as the graph knows it (``released``).
    """
    last_place = len(position) - 1
    first = np.full(len(graph.storages), last_place + 1, dtype=np.int64)
    last = np.full(len(graph.storages), -1, dtype=np.int64)
    for op in graph.operators:
        place = position[op.id]
        for tensor in op.outputs + op.inputs:
            storage = tensor.storage
            if place < first[storage]:
                first[storage] = place
            if place > last[storage]:
                last[storage] = place
    for held, operator in graph.released.items():
        last[held] = max(last[held], position[operator])
    for each in graph.storages:
        if each.role.resident:
            first[each.id] = 0
        if each.role.resident or each.id in graph.outputs:
            last[each.id] = last_place
    first[last < 0] = 0
    return first, last


def memory_timeline(graph: OperatorGraph, start: Sequence[int]) -> MemoryTimeline:
    """Follow every storage through a schedule; *start* holds each operator's start time."""
    count = len(graph)
    order = np.lexsort((np.arange(count), np.asarray(start, dtype=np.int64)))
    position = np.empty(count, dtype=np.int64)
    position[order] = np.arange(count)
    first, last = lifetimes(graph, position.tolist())
    live = {role: _live_bytes(graph, role, first, last, count) for role in Role}
    if not count:
        return MemoryTimeline(order, live, sum(s.nbytes for s in graph.storages if s.role.resident), None)
    total = np.sum(list(live.values()), axis=0)
    return MemoryTimeline(order, live, int(total.max()), int(order[int(np.argmax(total))]))


def _live_bytes(
    graph: OperatorGraph, role: Role, first: NDArray[np.int64], last: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    ids = np.array([s.id for s in graph.storages if s.role is role and last[s.id] >= 0], dtype=np.int64)
    sizes = np.array([graph.storages[i].nbytes for i in ids], dtype=np.int64)
    change = np.zeros(count + 1, dtype=np.int64)
    np.add.at(change, first[ids], sizes)
    np.add.at(change, last[ids] + 1, -sizes)
    return np.cumsum(change[:-1])
