"""What each kernel of the engine asks of a device: the rules of `frontends`, for arrays instead of torch's tensors."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy.typing as npt

from frontends.rules_pointwise import flops_per_element
from simulator.dims import Dims, MatmulDims, RowDims
from simulator.graph import OpKind

AnyArray = npt.NDArray[Any]

_ROW_FLOPS = {
    "sum": 1, "mean": 1, "amax": 1, "_softmax": 5, "_log_softmax": 5, "_softmax_backward_data": 4,
    "_log_softmax_backward_data": 4,
}  # fmt: skip
_MOVES = frozenset(("clone", "ones_like", "index", "index_put", "slice_backward", "constant_pad_nd", "col2im"))
_ADAMW, _SGD, _MOMENTUM = 14, 2, 2  # FLOPs an element, as in frontends.optimizers


@dataclass(frozen=True, slots=True)
class Work:
    """kind, FLOPs and sizes of one kernel; *gathered* stands for its inputs where it reads only part of them."""

    kind: OpKind
    flops: int = 0
    dims: Dims | None = None
    gathered: Sequence[AnyArray] | None = None


def work_of(target: str, inputs: Sequence[AnyArray], outputs: Sequence[AnyArray], axes: Sequence[int] = ()) -> Work:
    """Return what the kernel *target* costs; *axes* are those that it works along."""
    if target in ("mm", "addmm"):
        return _product(inputs[-2], inputs[-1], outputs[0])
    if target in _ROW_FLOPS:
        data = inputs[0]
        return Work(OpKind.REDUCTION, _ROW_FLOPS[target] * data.size, _rows(data, axes))
    if target == "nll_loss_forward":  # one score a row, and the labels
        scores, labels = inputs
        return Work(OpKind.REDUCTION, labels.size, RowDims(1, labels.size), (scores[:, 0], labels))
    if target == "nll_loss_backward":
        return Work(OpKind.MOVE, inputs[-1].size, gathered=inputs[-1:])
    if target in _MOVES:
        return _move(target, inputs, outputs[0])
    if target in ("adamw", "sgd"):
        return _step(target, inputs, outputs)
    return Work(OpKind.POINTWISE, flops_per_element(target) * outputs[0].size)


def _product(left: AnyArray, right: AnyArray, out: AnyArray) -> Work:
    """A matrix on the right is one product with all rows on the left; otherwise one product for each of a batch."""
    n, k = out.shape[-1], left.shape[-1]
    batch = 1 if right.ndim == 2 else prod(out.shape[:-2])
    dims = MatmulDims(out.size // max(1, batch * n), n, k, batch)
    return Work(OpKind.MATMUL, dims.flops, dims)


def _rows(data: AnyArray, axes: Sequence[int]) -> RowDims:
    """Sizes of work along *axes*; elements of a row are apart by what lies behind the last of them."""
    along = {axis % data.ndim for axis in axes}
    columns = prod(data.shape[axis] for axis in along)
    inner = prod(data.shape[max(along, default=-1) + 1 :]) if along else 1
    return RowDims(data.size // max(1, columns), columns, inner)


def _move(target: str, inputs: Sequence[AnyArray], out: AnyArray) -> Work:
    if target == "index":  # as much of the source as comes out, and the indices
        return Work(OpKind.MOVE, gathered=(out, *inputs[1:]))
    if target == "ones_like":
        return Work(OpKind.MOVE, gathered=())
    adds = inputs[0].size if target in ("index_put", "col2im") else 0
    return Work(OpKind.MOVE, adds)


def _step(target: str, inputs: Sequence[AnyArray], outputs: Sequence[AnyArray]) -> Work:
    """An optimizer reads parameters, states and, last, gradients; it writes all but the gradients."""
    count = len(inputs) - len(outputs)
    states = len(outputs) // count - 1
    each = _ADAMW if target == "adamw" else _SGD + _MOMENTUM * states
    return Work(OpKind.POINTWISE, each * sum(gradient.size for gradient in inputs[-count:]))
