"""The parallel programs of the tests in real processes over gloo: which collectives PyTorch itself calls."""
# mypy: disallow-untyped-calls=False

from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.utils._python_dispatch import TorchDispatchMode

from tests.frontends import test_distributed as programs

PROGRAMS = {
    "ddp": ("dp", programs.replicated_wide),
    "fsdp": ("dp", programs.sharded),
    "tp": ("tp", lambda mesh: programs.megatron(mesh, sequence=False)),
    "sp": ("tp", lambda mesh: programs.megatron(mesh, sequence=True)),
}
_PAYLOAD = {
    "c10d::allreduce_": ("all_reduce", 0),
    "c10d::_allgather_base_": ("all_gather", 0),
    "c10d::_reduce_scatter_base_": ("reduce_scatter", 1),
    "_c10d_functional::all_reduce": ("all_reduce", 0),
    "_c10d_functional::reduce_scatter_tensor": ("reduce_scatter", 0),
}


class Listener(TorchDispatchMode):
    """Writes down every collective with its payload, and lets it run."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(each.__name__ in ("DTensor", "AsyncCollectiveTensor") for each in types):
            return NotImplemented
        name = func._schema.name
        if name in _PAYLOAD:
            pattern, place = _PAYLOAD[name]
            given = args[place] if isinstance(args[place], list) else [args[place]]
            self.calls.append((pattern, sum(each.numel() * each.element_size() for each in given)))
        elif name == "_c10d_functional::all_gather_into_tensor":
            self.calls.append(("all_gather", args[0].numel() * args[0].element_size() * args[1]))
        elif "c10d" in name and "wait_tensor" not in name and "_wrap" not in name:
            self.calls.append((name, 0))
        return func(*args, **(kwargs or {}))


def listen() -> dict[str, list[tuple[str, int]]]:
    """Return what the third training step of each program calls, in order; DDP settles its buckets in the second."""
    found = {}
    for name, (dimension, build) in PROGRAMS.items():
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=(dimension,))
        torch.manual_seed(0)
        model, args = build(mesh)
        for _ in range(2):
            model(*args).sum().backward()
        with Listener() as listener:
            model(*args).sum().backward()
        found[name] = listener.calls
    return found
