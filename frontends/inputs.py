"""Stand-ins without weights for a program's parameters, buffers and arguments; the user's own are never touched."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from frontends.ledger import Ledger
from frontends.recorder import META
from frontends.shadows import LIMIT, Shadows
from frontends.shards import is_sharded, local, with_local
from simulator.errors import TraceError
from simulator.graph import Role

_CACHE_NAMES = ("cache", "past")
_DEPTH = 8


def stand_in(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """Return a meta tensor of the same shape and layout, of type *dtype* if it holds floating-point numbers."""
    if is_sharded(tensor):
        return with_local(tensor, stand_in(local(tensor), dtype))
    cast = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
    if tensor.layout is not torch.strided:
        raise TraceError(f"a tensor of layout {tensor.layout} cannot be traced; wanted a dense (strided) one")
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=cast, device=META)


@dataclass(frozen=True, slots=True)
class _Slot:
    """One place of a module that holds a parameter or buffer."""

    home: dict[str, Any]
    name: str
    original: torch.Tensor
    path: str


def _slots(module: nn.Module) -> Iterator[_Slot]:
    for path, child in module.named_modules():
        prefix = f"{path}." if path else ""
        for home in (child._parameters, child._buffers):
            for name, tensor in home.items():
                if tensor is not None:
                    yield _Slot(home, name, tensor, prefix + name)


class StandIns:
    """Meta twins of a module's parameters and buffers; one twin for a tensor that several places share.

    In a parallel program a parameter on the meta device stands for itself if it needs no cast: hooks hang on it, and
    buckets and shards refer to it.  Its gradient is taken away again at the end.

    parameters  by the first path that names each of them.
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype | None, ledger: Ledger, shadows: Shadows) -> None:
        self.parameters: dict[str, nn.Parameter] = {}
        self._slots = list(_slots(module))
        self._twins: dict[int, torch.Tensor] = {}
        for slot in self._slots:
            if id(slot.original) not in self._twins:
                self._twins[id(slot.original)] = self._twin(slot, dtype, ledger, shadows)

    def _twin(self, slot: _Slot, dtype: torch.dtype | None, ledger: Ledger, shadows: Shadows) -> torch.Tensor:
        original = slot.original
        if type(original) not in (torch.Tensor, nn.Parameter, nn.Buffer) and not is_sharded(original):
            raise TraceError(f"{slot.path} is a {type(original).__name__}; wanted a plain tensor or parameter")
        own = dist.is_initialized() and original.is_meta
        twin = original if own and dtype in (None, original.dtype) else stand_in(original, dtype)
        if isinstance(original, nn.Parameter):
            if twin is not original:
                _check_hooks(slot)
                twin = nn.Parameter(twin, original.requires_grad)
            self.parameters[slot.path] = twin
            ledger.adopt(twin, slot.path, Role.WEIGHT)
            return twin
        ledger.adopt(twin, slot.path, Role.BUFFER)
        if not original.is_meta and original.numel() <= LIMIT:
            shadows.keep(twin, original)
        return twin

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Put the twins in the module's places, and the user's own back at the end."""
        for slot in self._slots:
            slot.home[slot.name] = self._twins[id(slot.original)]
        own = [slot.original for slot in self._slots if self._twins[id(slot.original)] is slot.original]
        gradients = [each.grad for each in own]
        for each in own:
            each.grad = None
        try:
            yield
        finally:
            for slot in self._slots:
                slot.home[slot.name] = slot.original
            for each, gradient in zip(own, gradients, strict=True):
                each.grad = gradient


def _check_hooks(slot: _Slot) -> None:
    if dist.is_initialized() and (slot.original._backward_hooks or slot.original._post_accumulate_grad_hooks):
        raise TraceError(
            f"{slot.path} has gradient hooks, which a cast leaves behind; build the model in its final type"
        )


@contextmanager
def mode_of(module: nn.Module, training: bool) -> Iterator[None]:
    """Let the module be in training or in evaluation mode for a while."""
    before = [(child, child.training) for child in module.modules()]
    for child, _ in before:
        child.training = training
    try:
        yield
    finally:
        for child, was in before:
            child.training = was


def arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any], dtype: torch.dtype | None, ledger: Ledger
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with a meta twin for each tensor, entered as input or cache.

    A tensor is a cache (Role.CACHE) if it holds floating-point numbers, has three axes or more, and either sits inside
    a container (list, tuple, dict, cache object) among the arguments or below a keyword with "cache" or "past" in it.
    """
    twins: dict[int, torch.Tensor] = {}

    def enter(tensor: torch.Tensor, path: str, depth: int) -> torch.Tensor:
        if id(tensor) not in twins:
            twin = stand_in(tensor, dtype)
            inside = depth > 0 or any(word in path.lower() for word in _CACHE_NAMES)
            cache = inside and tensor.dim() >= 3 and tensor.is_floating_point()
            ledger.adopt(twin, path, Role.CACHE if cache else Role.INPUT)
            twins[id(tensor)] = twin.requires_grad_(tensor.requires_grad)
        return twins[id(tensor)]

    new_args = tuple(rebuilt(each, enter, f"args[{i}]", 0) for i, each in enumerate(args))
    return new_args, {name: rebuilt(each, enter, name, 0) for name, each in kwargs.items()}


_Enter = Callable[[torch.Tensor, str, int], torch.Tensor]


def rebuilt(value: Any, enter: _Enter, path: str, depth: int) -> Any:
    """Copy containers and objects down to their tensors; whatever holds none stays the user's own."""
    if isinstance(value, torch.Tensor):
        return enter(value, path, depth)
    if depth > _DEPTH or isinstance(value, nn.Module | type | str | bytes | int | float | None):
        return value
    if isinstance(value, list | tuple):
        items = [rebuilt(each, enter, f"{path}[{i}]", depth + 1) for i, each in enumerate(value)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        filled = copy.copy(value)
        for key, each in value.items():
            filled[key] = rebuilt(each, enter, f"{path}.{key}", depth + 1)
        return filled
    return _rebuilt_object(value, enter, path, depth)


def _rebuilt_object(value: Any, enter: _Enter, path: str, depth: int) -> Any:
    fields = getattr(value, "__dict__", None)
    if not fields or callable(value):
        return value
    found = {name: rebuilt(each, enter, f"{path}.{name}", depth + 1) for name, each in fields.items()}
    if all(found[name] is fields[name] for name in fields):
        return value
    twin = copy.copy(value)
    twin.__dict__.update(found)
    return twin


def tensors_in(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """Every tensor in *value*: in containers, in the fields of objects."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from tensors_in(each, depth + 1)
    elif isinstance(value, list | tuple | set):
        for each in value:
            yield from tensors_in(each, depth + 1)
    elif depth <= _DEPTH and not isinstance(value, nn.Module | type) and hasattr(value, "__dict__"):
        yield from tensors_in(vars(value), depth + 1)
