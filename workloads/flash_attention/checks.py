"""What the operator accepts; everything else is refused with a sentence that says what was wanted."""

import math

import torch
from torch import Tensor

from simulator.errors import UsageError

HEAD_SIZES = (64, 96, 128)
DTYPES = (torch.float16, torch.bfloat16)
REFERENCE_DTYPES = (*DTYPES, torch.float32, torch.float64)


def check(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> None:
    """Refuse what no implementation can compute; shapes are [batch, heads, length, head size].

    Raises `UsageError` for shapes that do not fit together, an empty axis, a mask with more queries than keys, types
    that differ or are no floating-point numbers, and rows that are not contiguous.
    """
    shapes = f"query {_shape(query)}, key {_shape(key)}, value {_shape(value)}"
    if not query.dim() == key.dim() == value.dim() == 4:
        raise UsageError(f"attention: needs three tensors [batch, heads, length, head size], got {shapes}")
    if not query.dtype == key.dtype == value.dtype:
        types = ", ".join(_name(each.dtype) for each in (query, key, value))
        raise UsageError(f"attention: query, key and value differ in type: {types}")
    if query.dtype not in REFERENCE_DTYPES:
        raise UsageError(f"attention: type {_name(query.dtype)}; needs {_list(map(_name, REFERENCE_DTYPES))}")
    if not query.device == key.device == value.device:
        devices = ", ".join(str(each.device) for each in (query, key, value))
        raise UsageError(f"attention: query, key and value are on different devices: {devices}")
    for name, each in (("query", query), ("key", key), ("value", value)):
        if 0 in each.shape:
            axis = ("no batch", "no heads", "an empty sequence", "head size 0")[list(each.shape).index(0)]
            raise UsageError(f"attention: {name} {_shape(each)} has {axis}; needs at least 1 along each axis")
    if key.shape != value.shape or query.shape[0] != key.shape[0] or query.shape[3] != key.shape[3]:
        raise UsageError(f"attention: batch, key length or head size do not fit: {shapes}")
    if query.shape[1] % key.shape[1]:
        raise UsageError(f"attention: {query.shape[1]} query heads are no multiple of {key.shape[1]} key heads")
    if causal and query.shape[2] > key.shape[2]:
        raise UsageError(
            f"attention: {query.shape[2]} queries under a causal mask need at least as many keys, got {key.shape[2]}"
        )
    for name, each in (("query", query), ("key", key), ("value", value)):
        if each.stride(3) != 1:
            raise UsageError(
                f"attention: the rows of {name} are not contiguous: stride {each.stride(3)} along the head size, "
                f"needs 1; call {name}.contiguous()"
            )


def check_scale(scale: float) -> None:
    """Refuse a factor of the scores that is not positive: the maximum of a row is taken before it is applied."""
    if not (math.isfinite(scale) and scale > 0):
        raise UsageError(f"attention: scale {scale:g}; needs a positive number")


def check_kernels(query: Tensor) -> None:
    """Refuse what only the reference can compute: `UsageError` names head sizes and types that the kernels have."""
    if query.shape[3] not in HEAD_SIZES:
        raise UsageError(
            f"attention: the Triton kernels have no head size {query.shape[3]}; they have {_list(HEAD_SIZES)}; "
            "backend='reference' takes any"
        )
    if query.dtype not in DTYPES:
        raise UsageError(
            f"attention: the Triton kernels have no type {_name(query.dtype)}; they have {_list(map(_name, DTYPES))}; "
            "backend='reference' takes fp32 and fp64 too"
        )


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "()"


_NAMES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.float64: "fp64"}


def _name(dtype: torch.dtype) -> str:
    return _NAMES.get(dtype, str(dtype).removeprefix("torch."))


def _list(items: object) -> str:
    *first, last = map(str, items)  # type: ignore[call-overload]
    return f"{', '.join(first)} and {last}"
