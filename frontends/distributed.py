"""Parallel programs, traced for one rank of a world of any size on one CPU.

Inside ``with world(...)`` torch.distributed is there, over a process group that sends nothing: the program finds out
its rank, makes groups and meshes, and calls collectives, which the tracer enters as operators.

    with world(size=8, rank=0, mesh={"dp": 2, "tp": 4}) as mesh:
        module, args = build(mesh)
        graph = trace_training_step(module, args)
"""
# mypy: disallow-untyped-calls=False

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any
from unittest import mock

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from frontends import shardings
from frontends.factory import building
from frontends.matching import check_ranks
from frontends.wrappers import wrappers_on_meta
from simulator.errors import UsageError
from simulator.graph import OperatorGraph

_DEVICES = ["cpu", "cuda", "meta", "xpu", "mps"]
_ALL = "world"


@contextmanager
def world(size: int, rank: int = 0, mesh: Mapping[str, int] | None = None) -> Iterator[DeviceMesh]:
    """Be *rank* of *size* ranks for a while; gives the device mesh with the dimensions *mesh*, slowest first.

    Without *mesh* it has one dimension, ``"world"``.  The environment says what ``torchrun`` would say, and the program
    may call ``init_process_group`` itself: it gets what is there already.

    Raises UsageError for a size that does not factor into the mesh, a rank outside, or a process group that exists.
    """
    shape = dict(mesh or {_ALL: size})
    _check(size, rank, shape)
    with (
        mock.patch.dict(dist.Backend.backend_capability, {"fake": _DEVICES}),
        wrappers_on_meta(),
        _process_group(size, rank),
        mock.patch.dict(os.environ, _environment(size, rank)),
        mock.patch.multiple(dist, init_process_group=_nothing, destroy_process_group=_nothing),
    ):
        yield init_device_mesh("cpu", tuple(shape.values()), mesh_dim_names=tuple(shape))


@contextmanager
def _process_group(size: int, rank: int) -> Iterator[None]:
    """Have a default process group that sends nothing.

    Some modules of torch take the default group as the default of an argument when they are loaded: so before there is
    one, or they would keep this world's in the next.
    """
    from torch.distributed.nn import functional  # noqa: F401, PLC0415  loaded here for the reason above
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415  registers its backend

    shardings.register()
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    """The process group is there already, and stays until the world ends."""


def _environment(size: int, rank: int) -> dict[str, str]:
    values = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    return {name: str(value) for name, value in values.items()}


def _check(size: int, rank: int, shape: Mapping[str, int]) -> None:
    if size < 1:
        raise UsageError(f"a world has at least one rank, got {size}")
    if not 0 <= rank < size:
        raise UsageError(f"rank {rank} lies outside a world of {size} (ranks 0 to {size - 1})")
    text = ", ".join(f"{name}={each}" for name, each in shape.items())
    if min(shape.values()) < 1:
        raise UsageError(f"every dimension of a mesh has at least one rank, got {text}")
    if prod(shape.values()) != size:
        raise UsageError(f"{size} ranks do not factor into the mesh {text}, which has {prod(shape.values())}")
    if dist.is_initialized():
        raise UsageError("a process group exists already; leave its world, or call dist.destroy_process_group(), first")


def parse_mesh(text: str) -> dict[str, int]:
    """Return the dimensions that *text* names, slowest first.

    >>> parse_mesh("dp=2,tp=4")
    {'dp': 2, 'tp': 4}
    """
    found: dict[str, int] = {}
    for part in text.split(","):
        name, equals, count = part.partition("=")
        if not equals or not name.isidentifier() or not count.isdecimal():
            raise UsageError(f"cannot read {part!r} of the mesh {text!r}; expected the form dp=2,tp=4")
        if name in found:
            raise UsageError(f"the mesh {text!r} names {name} twice")
        found[name] = int(count)
    return found


def mesh_arguments(mesh: DeviceMesh) -> dict[str, Any]:
    """What a factory gets if it has parameters of these names (*optional* of `frontends.load_factory`)."""
    return {"mesh": mesh, "world": dist.get_world_size(), "rank": dist.get_rank()}


def trace_ranks(
    build: Callable[[DeviceMesh], Sequence[Any]],
    tracer: Callable[..., OperatorGraph],
    *,
    mesh: Mapping[str, int],
    ranks: Sequence[int] | None = None,
    **options: Any,
) -> dict[int, OperatorGraph]:
    """Return the graph of each of *ranks* (None: all), checked by `check_ranks` against each other.

    build    ``build(mesh)`` gives the arguments of *tracer*: ``(module, args)`` or ``(module, args, kwargs)`` for
             `trace` and `trace_training_step`, ``(step, module, args)`` for `trace_step`.
    options  *tracer*'s own.

    >>> from torch import empty, nn
    >>> from frontends import trace
    >>> def build(mesh): return nn.Linear(4, 8 // mesh["tp"].size()), (empty(2, 4),)
    >>> [graph.flops for graph in trace_ranks(build, trace, mesh={"tp": 2}).values()]  # 2 x 2 x 4 x 4
    [64, 64]
    """
    size = prod(mesh.values())
    graphs = {}
    for rank in range(size) if ranks is None else ranks:
        with world(size, rank, mesh) as made:
            with building():
                given = build(made)
            graphs[rank] = tracer(*given, **options)
    check_ranks(graphs)
    return graphs
