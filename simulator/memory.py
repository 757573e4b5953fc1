"""Tensor lifetimes: what lives in the device memory while a graph runs, and the peak."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.graph import MATRIX_KINDS, OperatorGraph, Phase, Role
from simulator.hardware import Chip


@dataclass(frozen=True, slots=True)
class MemoryTimeline:
    """Bytes in use while each operator runs, by role, in the order in which the operators start.

    order   operator ids; *live* maps each role in use to the bytes of its storages alive during each of them.
    peak    the most bytes in use at once, and *peak_operator* the operator that runs then (None: an empty graph).
    held    ids of the storages that are alive at the peak.
    """

    order: NDArray[np.int64]
    live: dict[Role, NDArray[np.int64]]
    peak: int
    peak_operator: int | None
    held: NDArray[np.int64]

    @property
    def total(self) -> NDArray[np.int64]:
        return sum(self.live.values(), start=np.zeros_like(self.order))

    def at_peak(self) -> dict[Role, int]:
        """Bytes by role at the moment of the peak."""
        if self.peak_operator is None:
            return dict.fromkeys(self.live, 0)
        position = int(np.argmax(self.total))
        return {role: int(bytes_[position]) for role, bytes_ in self.live.items()}


def lifetimes(graph: OperatorGraph, position: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and the last position at which each storage is in use; an unused one gets (0, -1).

    *position* maps an operator id to its place in the order of execution.  A resident storage and one that the
    program returns live to the end; a storage that the program holds longer than its last use does as well, as far
    as the graph knows it (``released``).
    """
    last_place = len(position) - 1
    first = np.full(len(graph.storages), last_place + 1, dtype=np.int64)
    last = np.full(len(graph.storages), -1, dtype=np.int64)
    storage, place = _touches(graph, position)
    np.minimum.at(first, storage, place)
    np.maximum.at(last, storage, place)
    for held, operator in graph.released.items():
        last[held] = max(last[held], position[operator])
    resident = np.fromiter((each.role.resident for each in graph.storages), dtype=bool, count=len(graph.storages))
    first[resident] = 0
    last[resident] = last_place
    last[list(graph.outputs)] = last_place
    first[last < 0] = 0
    return first, last


def _touches(graph: OperatorGraph, position: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each use of a storage by an operator as two columns: the storage and the operator's position."""
    uses = np.fromiter((len(op.inputs) + len(op.outputs) for op in graph), dtype=np.int64, count=len(graph))
    each_use = (tensor.storage for op in graph for tensors in (op.inputs, op.outputs) for tensor in tensors)
    storage = np.fromiter(each_use, dtype=np.int64, count=int(uses.sum()))
    return storage, np.repeat(position, uses)


def library_workspace(graph: OperatorGraph, chip: Chip, captured: bool) -> int:
    """Bytes that the matrix library keeps while *graph* runs: once for each thread that calls it, and each stream.

    Gradients are computed by a thread of their own; a *captured* graph has a stream beside the program's own.
    """
    if not any(op.kind in MATRIX_KINDS for op in graph):
        return 0
    threads = 2 if any(op.phase is Phase.BACKWARD for op in graph) else 1
    return threads * (2 if captured else 1) * chip.overheads.workspace


def memory_timeline(
    graph: OperatorGraph, start: Sequence[int], workspace: int = 0, allocation: int = 1
) -> MemoryTimeline:
    """Follow every storage through a schedule.

    start       each operator's start time.
    workspace   bytes that libraries keep beside them all the time.
    allocation  bytes of a block of memory: each storage takes whole ones.
    """
    count = len(graph)
    order = np.lexsort((np.arange(count), np.asarray(start, dtype=np.int64)))
    position = np.empty(count, dtype=np.int64)
    position[order] = np.arange(count)
    first, last = lifetimes(graph, position)
    if not count:
        resident = [s.id for s in graph.storages if s.role.resident]
        size = sum(_rounded(graph.storages[each].nbytes, allocation) for each in resident)
        return MemoryTimeline(order, {}, size, None, np.array(resident, dtype=np.int64))
    live = _live_bytes(graph, first, last, count, allocation)
    if workspace:
        live[Role.WORKSPACE] = np.full(count, workspace, dtype=np.int64)
    total = sum(live.values(), start=np.zeros(count, dtype=np.int64))
    place = int(np.argmax(total))
    held = np.flatnonzero((first <= place) & (last >= place))
    return MemoryTimeline(order, live, int(total.max()), int(order[place]), held)


def _rounded(nbytes: int, allocation: int) -> int:
    return -(-nbytes // allocation) * allocation


def _live_bytes(
    graph: OperatorGraph, first: NDArray[np.int64], last: NDArray[np.int64], count: int, allocation: int
) -> dict[Role, NDArray[np.int64]]:
    """Return the bytes alive at each position for every role that the graph uses."""
    roles = list(Role)
    number = {role: index for index, role in enumerate(roles)}
    size = len(graph.storages)
    role_of = np.fromiter((number[s.role] for s in graph.storages), dtype=np.uint8, count=size)
    nbytes = np.fromiter((_rounded(s.nbytes, allocation) for s in graph.storages), dtype=np.int64, count=size)
    live = {}
    for index in np.unique(role_of[last >= 0]).tolist():
        ids = np.flatnonzero((role_of == index) & (last >= 0))
        change = np.zeros(count + 1, dtype=np.int64)
        np.add.at(change, first[ids], nbytes[ids])
        np.add.at(change, last[ids] + 1, -nbytes[ids])
        live[roles[index]] = np.cumsum(change[:-1])
    return live
