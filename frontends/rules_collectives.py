"""Collectives of torch.distributed: which tensors a call reads and writes, over which ranks, and its payload.

Two families mean the same: the functional ones (``_c10d_functional``), which make their result and are waited for with
``wait_tensor``, and the classic ones (``c10d``), which write into the caller's tensors and hand out a ``Work``.
"""
# mypy: disallow-untyped-calls=False

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from frontends.rules import Call, Work, rule
from simulator.dims import CollectiveDims
from simulator.graph import OpKind


@dataclass(frozen=True, slots=True)
class Form:
    """How the arguments of one call are laid out, by their places.

    group   the process group; *reads* and *writes* the tensors (writes None: the call makes them).
    peer    of a send the receiver, of a recv the sender, of a broadcast the root: a rank inside the group.
    gives   the argument that a classic call returns beside its ``Work`` (None: the ``Work`` alone).
    copies  the functional form of an in-place collective: the input is cloned first, a kernel of its own.
    """

    pattern: str
    group: int
    reads: int | None
    writes: int | None = None
    peer: int | None = None
    gives: int | None = None
    copies: bool = False


FORMS = {
    "c10d.allreduce_": Form("all_reduce", 1, 0, 0, gives=0),
    "c10d.allreduce_coalesced_": Form("all_reduce", 1, 0, 0),
    "c10d.barrier": Form("all_reduce", 1, 0, 0),
    "c10d.broadcast_": Form("broadcast", 1, 0, 0, peer=2, gives=0),
    "c10d._allgather_base_": Form("all_gather", 2, 1, 0, gives=0),
    "c10d.allgather_": Form("all_gather", 2, 1, 0, gives=0),
    "c10d.allgather_coalesced_": Form("all_gather", 2, 1, 0),
    "c10d.allgather_into_tensor_coalesced_": Form("all_gather", 2, 1, 0),
    "c10d._reduce_scatter_base_": Form("reduce_scatter", 2, 1, 0, gives=0),
    "c10d.reduce_scatter_": Form("reduce_scatter", 2, 1, 0, gives=0),
    "c10d.reduce_scatter_tensor_coalesced_": Form("reduce_scatter", 2, 1, 0),
    "c10d.alltoall_base_": Form("all_to_all", 2, 1, 0),
    "c10d.alltoall_": Form("all_to_all", 2, 1, 0, gives=0),
    "c10d.send": Form("send", 1, 0, peer=2),
    "c10d.recv_": Form("recv", 1, None, 0, peer=2),
    "_c10d_functional.all_reduce": Form("all_reduce", 2, 0, 0, copies=True),
    "_c10d_functional.all_reduce_": Form("all_reduce", 2, 0, 0),
    "_c10d_functional.all_reduce_coalesced": Form("all_reduce", 2, 0, 0, copies=True),
    "_c10d_functional.all_reduce_coalesced_": Form("all_reduce", 2, 0, 0),
    "_c10d_functional.broadcast": Form("broadcast", 2, 0, 0, peer=1, copies=True),
    "_c10d_functional.broadcast_": Form("broadcast", 2, 0, 0, peer=1),
    "_c10d_functional.all_gather_into_tensor": Form("all_gather", 2, 0),
    "_c10d_functional.all_gather_into_tensor_out": Form("all_gather", 2, 0),
    "_c10d_functional.all_gather_into_tensor_coalesced": Form("all_gather", 2, 0),
    "_c10d_functional.reduce_scatter_tensor": Form("reduce_scatter", 3, 0),
    "_c10d_functional.reduce_scatter_tensor_out": Form("reduce_scatter", 3, 0),
    "_c10d_functional.reduce_scatter_tensor_coalesced": Form("reduce_scatter", 3, 0),
    "_c10d_functional.all_to_all_single": Form("all_to_all", 3, 0),
    "_dtensor.shard_dim_alltoall": Form("all_to_all", 3, 0),
}


def ranks_of(form: Form, args: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the world's ranks that take part, in the order of the group; of a send or recv (sender, receiver)."""
    given = args[form.group]
    if isinstance(given, torch.ScriptObject):
        given = dist.ProcessGroup.unbox(given)
    elif isinstance(given, str):
        given = distributed_c10d._resolve_process_group(given)  # type: ignore[attr-defined,arg-type]
    ranks = tuple(dist.get_process_group_ranks(given))
    if form.pattern not in ("send", "recv"):
        return ranks
    assert form.peer is not None  # both patterns have one
    ends = (dist.get_rank(), ranks[args[form.peer]])
    return ends if form.pattern == "send" else ends[::-1]


def tensors_read(form: Form, args: tuple[Any, ...]) -> list[torch.Tensor]:
    """The tensors whose values this rank sends: of a broadcast the root's alone."""
    if form.pattern == "broadcast" and not _is_root(form, args):
        return []
    return [] if form.reads is None else list(flat(args[form.reads]))


def tensors_written(form: Form, args: tuple[Any, ...]) -> list[torch.Tensor]:
    """The tensors that change on this rank: of a broadcast all but the root's."""
    if form.pattern == "broadcast" and _is_root(form, args):
        return []
    return [] if form.writes is None else list(flat(args[form.writes]))


def _is_root(form: Form, args: tuple[Any, ...]) -> bool:
    assert form.peer is not None  # a broadcast has a root
    return bool(ranks_of(form, args)[args[form.peer]] == dist.get_rank())


def flat(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in *value*, a tensor or lists of lists of them."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from flat(each)


def _nbytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)


@rule(*FORMS)
def _collective(call: Call) -> Work:
    """Local memory is read and written once; the payload is counted as `CollectiveDims` says."""
    form = FORMS[call.target]
    sent, received = _nbytes(call.inputs), _nbytes(call.outputs)
    payload = sent if form.pattern == "all_to_all" else max(sent, received)
    return Work(OpKind.COLLECTIVE, dims=CollectiveDims(form.pattern, payload), group=ranks_of(form, call.args))


@rule("fsdp.split_with_sizes_copy", "fsdp.chunk_cat")
def _packing(call: Call) -> Work:
    """FSDP's copies between parameters and one buffer: every byte that goes in is read once and written once."""
    shards = _nbytes(flat(call.args[0]))
    return Work(OpKind.MOVE, reads=shards, writes=shards)
