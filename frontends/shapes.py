"""Shape functions of the most frequent operators, faster than torch's and without its compiler.

torch has its own for all operators, many of them in Python, where the first call loads ``torch._dynamo``: seconds, to
trace a model that takes a fifth of one.  Each function here either gives exactly the tensors that torch would give,
strides included (a test compares them), or None, and then torch is asked: for errors, mixed types, unusual layouts.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

Shape = Callable[[Sequence[Any], dict[str, Any]], Any]
SHAPES: dict[str, Shape] = {}

_POINTWISE = (
    "add", "sub", "mul", "div", "neg", "silu", "gelu", "tanh", "sigmoid", "exp", "relu", "sqrt", "rsqrt", "cos", "sin",
    "pow", "silu_backward", "gelu_backward", "tanh_backward", "sigmoid_backward", "threshold_backward",
)  # fmt: skip


def _for(*names: str) -> Callable[[Shape], Shape]:
    def enter(function: Shape) -> Shape:
        SHAPES.update({f"aten.{name}": function for name in names})
        return function

    return enter


def _ordered(tensor: Tensor) -> bool:
    """Whether the strides put the axes in one order: no axis is expanded."""
    return tensor.is_contiguous() or 0 not in tensor.stride()


def row_major(tensor: Tensor) -> Tensor:
    """An empty tensor of that shape, row by row."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def like(tensor: Tensor) -> Tensor:
    """An empty tensor of that layout, gaps closed: what ``torch.empty_like`` gives."""
    if tensor.is_contiguous():
        return row_major(tensor)
    dense = torch.ops.aten.is_non_overlapping_and_dense(tensor)
    strides = tensor.stride() if dense else _closed(tensor.shape, tensor.stride())
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)


def _closed(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Strides without gaps in the order of *strides*; of two equal ones the longer axis is outside."""
    order = sorted(range(len(shape)), key=lambda axis: (strides[axis], shape[axis]))
    closed, step = [0] * len(shape), 1
    for axis in order:
        closed[axis], step = step, step * max(1, shape[axis])
    return closed


@_for(*_POINTWISE)
def pointwise(args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    """The first tensor's layout without its gaps, if no other one has more axes, another order or another type."""
    tensors = [each for each in args if isinstance(each, Tensor)]
    first = args[0]
    if "out" in kwargs or not isinstance(first, Tensor) or not first.is_floating_point() or not _ordered(first):
        return None
    for each in tensors[1:]:
        if each.dtype != first.dtype or not _broadcasts_into(each, first):
            return None
    if any(isinstance(each, complex) for each in args):
        return None
    return like(first)


def _broadcasts_into(small: Tensor, whole: Tensor) -> bool:
    """Whether *small* has the shape and layout of *whole*, or is row-major and repeated along its axes."""
    if small.shape == whole.shape:
        return small.stride() == whole.stride()
    if small.dim() > whole.dim() or not whole.dim():
        return False
    ours = whole.shape[whole.dim() - small.dim() :]
    return all(mine in (1, other) for mine, other in zip(small.shape, ours, strict=True))


@_for("mm")
def product(args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    left: Tensor = args[0]
    right: Tensor = args[1]
    if "out" in kwargs or left.dtype != right.dtype or left.dim() != 2 or right.dim() != 2:
        return None
    if left.shape[1] != right.shape[0]:
        return None
    return torch.empty((left.shape[0], right.shape[1]), dtype=left.dtype, device=left.device)


@_for("addmm")
def product_and_sum(args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    bias, left, right = args[:3]
    if "out" in kwargs or bias.dtype != left.dtype or right.dim() != 2 or bias.shape != right.shape[1:]:
        return None
    found: Tensor | None = product((left, right), {})
    return found


def _row_major_suggested(tensor: Tensor) -> bool:
    return tensor.is_contiguous() or suggest_memory_format(tensor) is torch.contiguous_format


@_for("cat")
def joined(args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    """Row-major, unless a piece is laid out with its channels last, which may survive."""
    pieces, axis = args[0], args[1] if len(args) > 1 else kwargs.get("dim", 0)
    first = pieces[0]
    if (
        "out" in kwargs
        or not -first.dim() <= axis < first.dim()
        or not all(_row_major_suggested(each) for each in pieces)
    ):
        return None
    axis %= first.dim()
    rest = [*first.shape[:axis], *first.shape[axis + 1 :]]
    for each in pieces:
        if each.dtype != first.dtype or each.dim() != first.dim():
            return None
        if [*each.shape[:axis], *each.shape[axis + 1 :]] != rest:
            return None
    shape = [*first.shape[:axis], sum(each.shape[axis] for each in pieces), *first.shape[axis + 1 :]]
    return torch.empty(shape, dtype=first.dtype, device=first.device)


@_for("native_layer_norm")
def layer_norm(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    data, shape, weight, bias = args[:4]
    given = [each for each in (weight, bias) if each is not None]
    rank = data.dim() - len(shape)
    if kwargs or not data.is_contiguous() or list(data.shape[rank:]) != list(shape):
        return None
    if any(each.dtype != data.dtype or list(each.shape) != list(shape) for each in given):
        return None
    exact = torch.float64 if data.dtype is torch.float64 else torch.float32
    rows = [*data.shape[:rank], *(1 for _ in shape)]
    return row_major(data), data.new_empty(rows, dtype=exact), data.new_empty(rows, dtype=exact)


@_for("native_layer_norm_backward")
def layer_norm_backward(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    gradient, data, _shape, _mean, _scale, weight, bias, mask = args
    if kwargs or not data.is_contiguous() or not gradient.is_contiguous() or gradient.dtype != data.dtype:
        return None
    of = zip((data, weight, bias), mask, strict=True)
    return tuple(row_major(each) if wanted and each is not None else None for each, wanted in of)


@_for("_softmax", "_log_softmax")
def softmax(args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    data, _axis, widen = args
    return None if kwargs or widen or not data.is_contiguous() else row_major(data)


@_for("_softmax_backward_data", "_log_softmax_backward_data")
def softmax_backward(args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    gradient, output, _axis, dtype = args
    plain = gradient.is_contiguous() and output.is_contiguous() and gradient.dtype == output.dtype == dtype
    return row_major(gradient) if plain and not kwargs else None


@_for("nll_loss_forward")
def likelihood(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Summed or averaged (reduction 1 or 2) over rows without weights."""
    scores, targets, weight, reduction = args[:4]
    if kwargs or weight is not None or reduction not in (1, 2) or scores.dim() != 2 or targets.dim() != 1:
        return None
    return scores.new_empty(()), scores.new_empty(())


@_for("nll_loss_backward")
def likelihood_backward(args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    _gradient, scores, targets, weight, reduction = args[:5]
    if kwargs or weight is not None or reduction not in (1, 2) or scores.dim() != 2 or targets.dim() != 1:
        return None
    return row_major(scores)


@_for("embedding")
def lookup(args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    table, indices = args[:2]
    if table.dim() != 2 or indices.dtype not in (torch.int64, torch.int32):
        return None
    return torch.empty((*indices.shape, table.shape[1]), dtype=table.dtype, device=table.device)


@_for("empty_like", "zeros_like", "ones_like")
def filled(args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    changed = any(value is not None for name, value in kwargs.items() if name not in ("device", "pin_memory"))
    return None if changed or not args[0].is_contiguous() else row_major(args[0])


@_for("sum")
def total(args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    """Over the axes given, kept or not, of a row-major tensor."""
    data = args[0]
    axes = args[1] if len(args) > 1 and args[1] else range(data.dim())
    if kwargs or not data.is_floating_point() or not data.is_contiguous():
        return None
    if any(not -data.dim() <= axis < data.dim() for axis in axes):
        return None
    gone = {axis % data.dim() for axis in axes}
    kept = 1 if len(args) > 2 and args[2] else 0
    shape = [1 if axis in gone else size for axis, size in enumerate(data.shape) if kept or axis not in gone]
    return torch.empty(shape, dtype=data.dtype, device=data.device)


@_for("arange")
def positions(args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    """Whole numbers only: 0, 1, ... up to an end, or from a start."""
    if any(type(each) is not int for each in args) or kwargs.get("layout") or len(args) > 2:
        return None
    start, end = args if len(args) == 2 else (0, args[0])
    if end < start:
        return None
    return torch.empty(end - start, dtype=kwargs.get("dtype") or torch.int64, device=kwargs["device"])
