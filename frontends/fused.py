"""What a GPU launches as one kernel and torch takes apart on a meta device, as operators of their own.

Each is a forward and a backward operator with a shape function, tied together for autograd.  They save for the backward
pass what the fused kernels of a GPU save: attention its inputs, its output and one log-sum a row; RMS norm its input,
its weight and one scale a row.
"""
# mypy: disallow-untyped-calls=False

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from frontends.shapes import like, row_major

_LIBRARY = torch.library.Library("xpusim", "DEF")
_LIBRARY.define(
    "attention(Tensor query, Tensor key, Tensor value, Tensor? mask, bool causal, float dropout) -> (Tensor, Tensor)"
)
_LIBRARY.define(
    "attention_backward(Tensor gradient, Tensor query, Tensor key, Tensor value, Tensor output, Tensor logsum, "
    "Tensor? mask, bool causal, float dropout) -> (Tensor, Tensor, Tensor)"
)
_LIBRARY.define("rms_norm(Tensor data, int[] shape, Tensor? weight) -> (Tensor, Tensor)")
_LIBRARY.define(
    "rms_norm_backward(Tensor gradient, Tensor data, int[] shape, Tensor scale, Tensor? weight) -> (Tensor, Tensor?)"
)


def _rows_first(model: Tensor, columns: int) -> Tensor:
    """A tensor for [..., heads, length, columns], laid out as the kernels do it.

    They see [..., length, heads, dim] and take the layout of *model* if it is dense: an output for queries that are
    dense by heads comes out by heads, and turning it back into rows is a copy.
    """
    turned = model.transpose(-2, -3)
    if columns != model.shape[-1]:
        return turned.new_empty((*turned.shape[:-1], columns)).transpose(-2, -3)
    return like(turned).transpose(-2, -3)


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float) -> Any:
    return _rows_first(q, v.shape[-1]), q.new_empty(q.shape[:-1], dtype=torch.float32)


def _attention_backward(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *_rest: Any) -> Any:
    return tuple(_rows_first(each, each.shape[-1]) for each in (q, k, v))


def _rms_norm(data: Tensor, shape: Sequence[int], weight: Tensor | None) -> Any:
    rows = [*data.shape[: data.dim() - len(shape)], *(1 for _ in shape)]
    return row_major(data), data.new_empty(rows, dtype=torch.float32)


def _rms_norm_backward(
    gradient: Tensor, data: Tensor, shape: Sequence[int], scale: Tensor, weight: Tensor | None
) -> Any:
    return like(data), None if weight is None else like(weight)


_LIBRARY.impl("attention", _attention, "Meta")
_LIBRARY.impl("attention_backward", _attention_backward, "Meta")
_LIBRARY.impl("rms_norm", _rms_norm, "Meta")
_LIBRARY.impl("rms_norm_backward", _rms_norm_backward, "Meta")
_OPS: Any = torch.ops.xpusim


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float) -> Tensor:
        output, logsum = _OPS.attention(q, k, v, mask, causal, dropout)
        ctx.save_for_backward(q, k, v, output, logsum, mask)
        ctx.settings = causal, dropout
        return output  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        q, k, v, output, logsum, mask = ctx.saved_tensors
        found = _OPS.attention_backward(gradients[0], q, k, v, output, logsum, mask, *ctx.settings)
        return *found, None, None, None


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, data: Tensor, shape: Sequence[int], weight: Tensor | None) -> Tensor:
        output, scale = _OPS.rms_norm(data, shape, weight)
        ctx.save_for_backward(data, scale, weight)
        ctx.shape = shape
        return output  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        data, scale, weight = ctx.saved_tensors
        found, of_weight = _OPS.rms_norm_backward(gradients[0], data, ctx.shape, scale, weight)
        return found, None, of_weight


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``F.scaled_dot_product_attention`` as one operator; the same arguments, checked as torch checks them."""
    _check_attention(query, key, value, attn_mask, is_causal, enable_gqa)
    low = query.dim() == 3
    if low:
        query, key, value = (each.unsqueeze(-3) for each in (query, key, value))
    out: Tensor = _Attention.apply(query, key, value, attn_mask, is_causal, dropout_p)
    return out.squeeze(-3) if low else out


def _check_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, gqa: bool) -> None:
    shapes = f"query {tuple(q.shape)}, key {tuple(k.shape)}, value {tuple(v.shape)}"
    if not q.dtype == k.dtype == v.dtype:
        raise RuntimeError(f"attention: query, key and value differ in dtype: {q.dtype}, {k.dtype}, {v.dtype}")
    if min(q.dim(), k.dim(), v.dim()) < 3 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise RuntimeError(f"attention: shapes do not fit: {shapes}")
    if mask is not None and causal:
        raise RuntimeError("attention: attn_mask and is_causal=True exclude each other")
    if q.dim() > 3 and not gqa and not (k.shape[-3] == v.shape[-3] and k.shape[-3] in (1, q.shape[-3])):
        raise RuntimeError(f"attention: numbers of heads differ and enable_gqa is not set: {shapes}")
    if gqa and q.shape[-3] % k.shape[-3]:
        raise RuntimeError(f"attention: query heads are no multiple of key heads: {shapes}")
    if mask is not None:
        torch.broadcast_shapes(mask.shape, (*q.shape[:-1], k.shape[-2]))


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor | None:
    """``F.rms_norm`` as one operator; None where a GPU takes it apart as well: a weight of another type."""
    if weight is not None and weight.dtype != input.dtype:
        return None
    if tuple(input.shape[input.dim() - len(normalized_shape) :]) != tuple(normalized_shape):
        return None  # torch says what is wrong
    out: Tensor = _RmsNorm.apply(input, list(normalized_shape), weight)
    return out


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor | None:
    """``F.dropout`` as the one kernel that a GPU launches; None where torch does the same by itself."""
    if not training or inplace or not 0 < p < 1:
        return None
    return torch.native_dropout(input, p, True)[0]
