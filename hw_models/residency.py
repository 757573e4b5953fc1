"""What stays in the last on-chip level between operators: reuse distances over the storages of a graph.

A storage is still there if not more than *capacity* bytes were touched since its last use.  The distance is counted
in bytes touched, so that a storage used twice in between counts twice: an upper bound of the stack distance, exact
where everything in between is different.  A tensor is there as a whole or not at all: one that streams through a cache
too small for it pushes its own beginning out before it is read again.
"""

from collections.abc import Sequence

from simulator.graph import OperatorGraph


def hits(graph: OperatorGraph, capacity: float) -> Sequence[int]:
    """Bytes of each operator's reads that are still on the chip, with *capacity* bytes to stay in; 0 with none."""
    if capacity <= 0:
        return [0] * len(graph)
    touched = 0
    last: dict[int, int] = {}
    found: list[int] = []
    for op in graph.operators:
        cached = 0
        reads = [(tensor.storage, tensor.nbytes) for tensor in op.inputs]
        for storage, size in reads:
            before = last.get(storage)
            if before is not None and touched - before + size <= capacity:
                cached += size
        uses = reads + [(tensor.storage, tensor.nbytes) for tensor in op.outputs]
        for _, size in uses:
            touched += size
        for storage, _ in uses:
            last[storage] = touched
        found.append(min(cached, op.reads))
    return found
