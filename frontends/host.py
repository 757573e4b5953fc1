"""Sees every call that the program makes into the framework, from Python's side.

It counts the calls, which is what eager mode costs the host; puts fused operators where a meta device would take apart
what a GPU launches as one kernel; keeps the values of constants; and keeps every tensor on the meta device.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  everybody's name for it
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from frontends import fused
from frontends.recorder import META, Recorder

_sdpa = F.scaled_dot_product_attention
_REPLACED: dict[Any, Callable[..., torch.Tensor | None]] = {
    _sdpa: fused.attention,
    F.rms_norm: fused.rms_norm,
    torch.rms_norm: fused.rms_norm,
    F.dropout: fused.dropout,
    torch.dropout: fused.dropout,
}
_READS: dict[Any, Callable[[torch.Tensor], Any]] = {
    torch.Tensor.tolist: lambda values: values.tolist(),
    torch.Tensor.numpy: lambda values: values.numpy(),
    torch.Tensor.__array__: lambda values: values.numpy(),
}
_CONSTANTS = (torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy)
_MOVES = (torch.Tensor.cuda, torch.Tensor.cpu)
_TO = torch.Tensor.to


class Host(TorchFunctionMode):
    """A function mode: sees ``torch.*``, ``F.*`` and tensor methods before torch takes them apart."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        self._makers = _device_constructors()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._recorder.new_call = True
        if func in _REPLACED:
            result = _REPLACED[func](*args, **kwargs)
            return func(*args, **kwargs) if result is None else result
        if func in _READS:
            return _READS[func](self._values(args[0]))
        if func in _CONSTANTS:
            return self._constant(func, args, kwargs)
        if func in _MOVES:
            return args[0]
        if func is _TO:
            args = (args[0], *(META if _names_device(each) else each for each in args[1:]))
        if func in self._makers or kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": META}
        return func(*args, **kwargs)

    def _values(self, tensor: torch.Tensor) -> torch.Tensor:
        with torch.utils._python_dispatch._disable_current_modes():
            values = self._recorder.shadows.of(tensor.detach())
        if values is None:
            raise self._recorder.unknown(tensor)
        return values

    def _constant(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Make the constant on the CPU, where its values are known, and let a meta tensor stand for it."""
        if args and isinstance(args[0], torch.Tensor):
            return args[0].to(dtype=kwargs.get("dtype") or args[0].dtype)
        given = {name: value for name, value in kwargs.items() if name != "device"}
        with torch.utils._python_dispatch._disable_current_modes():
            values = func(*args, **given) if func is torch.from_numpy else func(*args, **given, device="cpu")
            made = self._recorder.constant(values.detach())
        return made.requires_grad_() if values.requires_grad else made


def _names_device(value: Any) -> bool:
    return isinstance(value, torch.device | str)


@contextmanager
def patched() -> Iterator[None]:
    """Let Python code of torch itself, such as multi-head attention, find the fused attention too."""
    F.scaled_dot_product_attention = fused.attention
    try:
        yield
    finally:
        F.scaled_dot_product_attention = _sdpa
