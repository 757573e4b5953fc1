"""bf16 autocast: torch's own where there is a device, the same casts on the meta device, which has none of its own."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  everybody's name for it
from torch import Tensor
from torch.overrides import TorchFunctionMode

_LOW = {F.linear, torch.matmul, torch.mm, torch.bmm, torch.addmm, torch.baddbmm, torch.Tensor.matmul}
_HIGH = {F.layer_norm, torch.layer_norm, F.softmax, torch.softmax, F.log_softmax, F.cross_entropy}


def casting(device: str, precision: str) -> AbstractContextManager[Any]:
    """Return the context in which a forward pass runs in *precision* on *device*."""
    if precision == "fp32":
        return nullcontext()
    if device == "meta":
        return _meta_autocast()
    return torch.autocast(device, dtype=torch.bfloat16)


@contextmanager
def _meta_autocast() -> Iterator[None]:
    """Casts as ``torch.autocast("cuda", torch.bfloat16)`` does, for the functions that the models here call.

    Attention is not seen by a function mode while a program is traced, so it is replaced by name.
    """
    casts = _Casts()
    attention = F.scaled_dot_product_attention

    def low_attention(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return attention(casts.low(query), casts.low(key), casts.low(value), *args, **kwargs)

    F.scaled_dot_product_attention = low_attention
    try:
        with casts:
            yield
    finally:
        F.scaled_dot_product_attention = attention


class _Casts(TorchFunctionMode):
    """Matrix products in bf16, norms and losses in fp32, all else as it comes.

    A parameter is cast once and its copy kept until the context ends, as torch's weight cache does.
    """

    def __init__(self) -> None:
        super().__init__()
        self._copies: dict[int, Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _LOW:
            return func(*_each(args, self.low), **_named(kwargs, self.low))
        if func in _HIGH:
            return func(*_each(args, _high), **_named(kwargs, _high))
        return func(*args, **kwargs)

    def __exit__(self, *error: Any) -> None:
        self._copies.clear()
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def low(self, tensor: Tensor) -> Tensor:
        """Return *tensor* in bf16 if it is in fp32."""
        if tensor.dtype != torch.float32:
            return tensor
        if not (tensor.is_leaf and tensor.requires_grad):
            return tensor.to(torch.bfloat16)
        if id(tensor) not in self._copies:
            self._copies[id(tensor)] = tensor.to(torch.bfloat16)
        return self._copies[id(tensor)]


def _high(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def _each(values: tuple[Any, ...], cast: Callable[[Tensor], Tensor]) -> tuple[Any, ...]:
    return tuple(cast(value) if isinstance(value, Tensor) else value for value in values)


def _named(values: dict[str, Any], cast: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    return {name: cast(value) if isinstance(value, Tensor) else value for name, value in values.items()}
