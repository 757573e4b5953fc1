"""What stays in the last on-chip level between operators: reuse distances over the storages of a graph.

A storage is still there if not more than *capacity* bytes were touched since its last use.  The distance is counted
in bytes touched, so that a storage used twice in between counts twice: an upper bound of the stack distance, exact
where everything in between is different.  A tensor is there as far as it was touched: writing one position of a key
cache does not bring in the others.  One that does not fit is not there at all: streaming through a cache too small for
it, it pushes its own beginning out before it is read again.
"""

from collections.abc import Sequence

from simulator.graph import OperatorGraph


def hits(graph: OperatorGraph, capacity: float) -> Sequence[int]:
    """Bytes of each operator's reads that are still on the chip, with *capacity* bytes to stay in; 0 with none."""
    if capacity <= 0:
        return [0] * len(graph)
    touched = 0
    last: dict[int, tuple[int, int]] = {}  # storage -> bytes touched in all at its last use, bytes of it that are there
    found: list[int] = []
    for op in graph.operators:
        cached = 0
        present: dict[int, int] = {}
        for tensor in op.inputs:
            size = tensor.nbytes
            there = _there(last.get(tensor.storage), touched, size, capacity)
            cached += min(size, there)
            present[tensor.storage] = max(size, there, present.get(tensor.storage, 0))
        for tensor in op.outputs:
            there = present.get(tensor.storage) or _there(last.get(tensor.storage), touched, tensor.nbytes, capacity)
            present[tensor.storage] = max(tensor.nbytes, there)
        touched += sum(tensor.nbytes for tensors in (op.inputs, op.outputs) for tensor in tensors)
        for storage, there in present.items():
            last[storage] = (touched, there)
        found.append(min(cached, op.reads))
    return found


def _there(before: tuple[int, int] | None, touched: int, size: int, capacity: float) -> int:
    """Bytes of a storage that are still there after *touched* bytes in all, when *size* of it are about to be used."""
    if before is None or touched - before[0] + size > capacity:
        return 0
    return before[1]
