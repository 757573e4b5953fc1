"""Data parallelism by hand: gradients go into buckets, and a full bucket is summed while the backward pass goes on.

Source: Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, 2020, section 3.2.
"""
# mypy: disallow-untyped-calls=False

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn

from workloads.distributed.comm import Communicator

BUCKET = 25 * 2**20  # bytes, as torch's own


@dataclass(slots=True)
class _Bucket:
    """Parameters whose gradients are summed in one call; *flat* holds them from when the last one is there."""

    parameters: list[nn.Parameter]
    missing: int = 0
    flat: Tensor | None = None
    work: dist.Work | None = field(default=None)

    def nbytes(self) -> int:
        return sum(each.numel() * each.element_size() for each in self.parameters)


class Buckets:
    """The gradients of *parameters*, averaged over *comm*; call `finish` before they are used.

    Buckets are filled from the last parameter on, for the backward pass ends with the first.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], comm: Communicator, nbytes: int = BUCKET) -> None:
        self._comm = comm
        self._buckets: list[_Bucket] = []
        for parameter in reversed(list(parameters) if comm.size > 1 else []):
            if not self._buckets or self._buckets[-1].nbytes() >= nbytes:
                self._buckets.append(_Bucket([]))
            self._enter(parameter, self._buckets[-1])

    def _enter(self, parameter: nn.Parameter, bucket: _Bucket) -> None:
        bucket.parameters.append(parameter)
        bucket.missing += 1
        parameter.register_post_accumulate_grad_hook(lambda _: self._arrived(bucket))

    def _arrived(self, bucket: _Bucket) -> None:
        bucket.missing -= 1
        if not bucket.missing:
            bucket.flat = torch.cat([_gradient(each).view(-1) for each in bucket.parameters])
            bucket.work = self._comm.start(bucket.flat)

    def finish(self) -> None:
        """Wait for all buckets and put the averages back into the gradients."""
        for bucket in self._buckets:
            if bucket.work is not None:
                bucket.work.wait()
            assert bucket.flat is not None  # every parameter has had its gradient
            means = bucket.flat.div_(self._comm.size).split([each.numel() for each in bucket.parameters])
            for parameter, mean in zip(bucket.parameters, means, strict=True):
                parameter.grad = mean.view_as(parameter)
            bucket.missing, bucket.flat, bucket.work = len(bucket.parameters), None, None


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None  # its hook has just been called
    return parameter.grad
