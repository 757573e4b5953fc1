"""What lets torch's own DDP and FSDP2 run on meta tensors: no values, no streams, memory given back."""
# mypy: disallow-untyped-calls=False

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.nn.parallel import distributed as ddp
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from frontends.recorder import Recorder


@contextmanager
def wrappers_on_meta() -> Iterator[None]:
    """Let ``DistributedDataParallel`` and ``fully_shard`` be made and run on the meta device.

    DDP compares and broadcasts the initial weights of the ranks, which have no values here and cost a step nothing, and
    takes one bucket in the first step: the buckets here are those of all later ones.
    FSDP2 reduces and gathers on streams of its own, of which the CPU has none: waits on those hold up nothing else.
    """
    from torch.distributed.fsdp._fully_shard import (  # noqa: PLC0415  seconds that only parallel programs need
        _fsdp_param,
        _fsdp_param_group,
    )

    group: Any = _fsdp_param_group
    wrapper: Any = ddp.DistributedDataParallel
    with ExitStack() as stack:
        for owner, name, put in (
            (ddp, "_verify_param_shape_across_processes", _nothing),
            (ddp, "_sync_module_states", _nothing),
            (wrapper, "_ddp_init_helper", _with_later_buckets(wrapper._ddp_init_helper)),
            (group.FSDPParamGroup, "_validate_no_meta_params", _nothing),
            (group, "foreach_all_gather", _aside(group.foreach_all_gather)),
            (group, "foreach_reduce", _aside(group.foreach_reduce)),
            (_fsdp_param, "free_storage", _free),
        ):
            stack.enter_context(mock.patch.object(owner, name, put))
        yield


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    """There are no values to look at."""


def _with_later_buckets(helper: Callable[..., None]) -> Callable[..., None]:
    """Return DDP's set-up with buckets as it rebuilds them after a step: from the last parameter on, the first small.

    DDP itself turns the list of buckets around, so it is handed over from the first parameter on.
    """
    torch_dist: Any = dist
    assign = torch_dist._compute_bucket_assignment_by_size

    def run(self: Any, *args: Any, **kwargs: Any) -> None:
        whole = self.bucket_bytes_cap
        limits = [torch_dist._DEFAULT_FIRST_BUCKET_BYTES if self.bucket_bytes_cap_default else whole, whole]

        def later(parameters: list[torch.Tensor], _limits: Any, sparse: list[bool], *rest: Any) -> Any:
            buckets, sizes = assign(parameters[::-1], limits, sparse[::-1], *rest)
            last = len(parameters) - 1
            return [[last - place for place in bucket] for bucket in buckets][::-1], sizes[::-1]

        with mock.patch.object(dist, "_compute_bucket_assignment_by_size", later):
            helper(self, *args, **kwargs)

    return run


def _recorders() -> list[Recorder]:
    return [mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, Recorder)]


def _aside(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return *function* as it is on a stream of its own: what it waits for, the computing stream does not."""

    def run(*args: Any, **kwargs: Any) -> Any:
        streams = [each.streams for each in _recorders()]
        for each in streams:
            each.aside += 1
        try:
            return function(*args, **kwargs)
        finally:
            for each in streams:
                each.aside -= 1

    return run


def _free(tensor: torch.Tensor) -> None:
    """Give the memory of *tensor* back and keep the tensor, as FSDP does with a gathered parameter."""
    storage = tensor.untyped_storage()
    if storage.size():
        for recorder in _recorders():
            recorder.ledger.emptied(tensor)
        storage.resize_(0)
