"""Values of tensors that no data goes into: positions, masks, constants.

A meta tensor has no values, but a program may look at some that follow from shapes alone: ``if mask.all()``,
``int(positions[-1])``.  So every storage made from constants only keeps a small twin on the CPU, and each operator that
reads nothing but such storages runs on the twins as well.  A storage that data flows into loses its twin.
"""
# mypy: disallow-untyped-calls=False

from typing import Any

import torch

LIMIT = 2**20  # elements; a program that looks at more than these looks at data

_UNSETTLED = (
    "aten.empty", "aten.new_empty", "aten.empty_like", "aten.empty_strided", "aten.new_empty_strided", "aten.rand",
    "aten.randn", "aten.randint", "aten.randperm", "aten.rand_like", "aten.randn_like", "aten.randint_like",
    "aten.normal", "aten.bernoulli", "aten.multinomial", "aten.native_dropout", "aten.normal_", "aten.uniform_",
    "aten.bernoulli_", "aten.random_", "aten.exponential_", "aten.resize_", "aten.set_",
)  # fmt: skip


class Shadows:
    """Twins on the CPU by the address of the meta storage that they stand for."""

    def __init__(self) -> None:
        self._twins: dict[int, torch.UntypedStorage] = {}

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the values of *tensor*, or None if they depend on data."""
        if tensor.device.type == "cpu":
            return tensor
        twin = self._twins.get(tensor.untyped_storage()._cdata)
        if twin is None:
            return None
        view = torch.empty(0, dtype=tensor.dtype, device="cpu")
        return view.set_(twin, tensor.storage_offset(), tensor.shape, tensor.stride())

    def keep(self, tensor: torch.Tensor, values: torch.Tensor) -> None:
        """Let *values* be the values of the whole storage that *tensor* was just made on."""
        if tensor.numel() > LIMIT or tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        self._twins[storage._cdata] = torch.UntypedStorage(storage.nbytes(), device="cpu")
        view = self.of(tensor)
        assert view is not None  # it was entered one line above
        view.copy_(values.detach())

    def forget(self, address: int) -> None:
        """The storage at *address* is gone, or data was written to it."""
        self._twins.pop(address, None)

    def follow(self, func: Any, target: str, args: Any, kwargs: Any, made: Any, written: Any) -> None:
        """Run *func* on the twins too, if all that it reads has one.

        *made* are the new tensors that it returned on the meta device, *written* those that it changed in place.
        """
        large = any(tensor.numel() > LIMIT for tensor in made)
        values = None if large or target in _UNSETTLED else self.run(func, args, kwargs)
        if values is None:
            for tensor in written:
                self.forget(tensor.untyped_storage()._cdata)
            return
        fresh = [each for each in _flat(values) if isinstance(each, torch.Tensor)]
        for tensor, value in zip(made, fresh, strict=False):
            if tensor.shape == value.shape and tensor.dtype == value.dtype:
                self.keep(tensor, value)

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return what *func* gives for the values of its arguments; None if one of them depends on data."""
        try:
            twins = [self._twin(each) for each in args]
            named = {name: self._twin(each) for name, each in kwargs.items()}
            return func(*twins, **named)
        except (_UnknownError, RuntimeError, NotImplementedError, IndexError, ValueError):
            return None

    def _twin(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            twin = self.of(value)
            if twin is None:
                raise _UnknownError
            return twin
        if isinstance(value, list | tuple):
            return [self._twin(each) for each in value]
        return torch.device("cpu") if isinstance(value, torch.device) else value


class _UnknownError(Exception):
    """A value that depends on data."""


def _flat(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list | tuple) else [values]
