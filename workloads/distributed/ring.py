"""A ring all-reduce written out: every rank sends to the next and receives from the one before, and counts.

The tensor is cut into one chunk a rank.  In the first n - 1 steps sums travel around the ring, until each rank holds
one finished chunk (reduce-scatter); in the next n - 1 the finished chunks travel (all-gather).  Each rank sends about
2 (n - 1) / n of the tensor, however many ranks there are.
Source: Patarasuk and Yuan, Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations, 2009.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor


def all_reduce(tensor: Tensor, group: dist.ProcessGroup | None = None) -> int:
    """Sum *tensor* over the ranks of *group* (None: all), in place; return the bytes that this rank sent.

    Any size of tensor and group: chunks differ by one element at most, and may be empty.
    """
    size, place = dist.get_world_size(group), dist.get_rank(group)
    flat = tensor if tensor.is_contiguous() else tensor.contiguous()
    chunks = flat.view(-1).tensor_split(size)
    room = torch.empty_like(chunks[0])  # the first chunk is the longest
    sent = 0
    for step in range(size - 1):
        sent += _step(chunks, place - step, room, Tensor.add_, group)
    for step in range(size - 1):
        sent += _step(chunks, place + 1 - step, room, Tensor.copy_, group)
    if flat is not tensor:
        tensor.copy_(flat)
    return sent


def _step(
    chunks: tuple[Tensor, ...],
    outgoing: int,
    room: Tensor,
    take: Callable[[Tensor, Tensor], Tensor],
    group: dist.ProcessGroup | None,
) -> int:
    """Send chunk *outgoing* on and *take* the one before it in; return the bytes sent."""
    size, place = len(chunks), dist.get_rank(group)
    ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
    leaving, coming = chunks[outgoing % size], chunks[(outgoing - 1) % size]
    arrived = room[: coming.numel()]
    works = []
    if leaving.numel():
        works.append(dist.isend(leaving, ranks[(place + 1) % size], group))
    if coming.numel():
        works.append(dist.irecv(arrived, ranks[(place - 1) % size], group))
    for work in works:
        assert work is not None  # this rank belongs to the group
        work.wait()
    take(coming, arrived)
    return leaving.numel() * leaving.element_size()


def sent_bytes(elements: int, itemsize: int, size: int, place: int) -> int:
    """Return the bytes that the rank at *place* of *size* sends: twice everything, less one chunk each time.

    The reduce-scatter never sends the chunk that arrives last at its end, the all-gather never the one behind it.

    >>> [sent_bytes(8, 4, 4, place) for place in range(4)]  # 2 x 3/4 x 32 bytes
    [48, 48, 48, 48]
    >>> sum(sent_bytes(7, 4, 4, place) for place in range(4)) == 2 * 3 * 7 * 4
    True
    """
    if size == 1:
        return 0
    chunk = [elements // size + (each < elements % size) for each in range(size)]
    return itemsize * (2 * elements - chunk[(place + 1) % size] - chunk[(place + 2) % size])
