"""All-reduces over one group: by torch's own collective, or by the ring that is written out here."""
# mypy: disallow-untyped-calls=False

import torch.distributed as dist
from torch import Tensor

from workloads.distributed import ring


class Communicator:
    """Sums tensors over the ranks of *group*.

    ring   send with `ring.all_reduce` instead of ``dist.all_reduce``, which says only what it was asked to sum.
    size   ranks; *place* of this rank among them.
    sent   bytes that this rank put on the wire so far (ring only).
    """

    def __init__(self, group: dist.ProcessGroup, ring: bool = False) -> None:
        self.group, self.ring = group, ring
        self.size, self.place = dist.get_world_size(group), dist.get_rank(group)
        self.sent = 0

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sum *tensor* in place and return it."""
        work = self.start(tensor)
        if work is not None:
            work.wait()
        return tensor

    def start(self, tensor: Tensor) -> dist.Work | None:
        """Begin to sum *tensor* in place; None if it is done already: one rank, or the ring, which waits."""
        if self.size == 1:
            return None
        if not self.ring:
            work: dist.Work = dist.all_reduce(tensor, group=self.group, async_op=True)
            return work
        self.sent += ring.all_reduce(tensor, self.group)
        return None
