"""Operators that work along rows: norms, softmax, losses, reductions, scans, sorts.

FLOPs an element follow the textbook formula: layer norm 8 (mean 1, variance 3, normalise 2, scale and shift 2), RMS
norm 4 (square, sum, scale, weight), softmax 5 (maximum, subtract, exp, sum, divide); a norm's backward is twice its
forward.  A sort takes log2(n) comparisons an element.
"""

from collections.abc import Sequence
from math import prod

import torch

from frontends.rules import Call, Work, bytes_of, rule
from simulator.dims import RowDims
from simulator.graph import OpKind


def _rows(data: torch.Tensor, axes: Sequence[int]) -> RowDims:
    """Sizes of work along *axes* of *data* (none: all of them)."""
    rank = max(1, data.dim())
    along = {axis % rank for axis in axes} or set(range(rank))
    shape = data.shape or (1,)
    columns = prod(shape[axis] for axis in along)
    inner = prod(shape[axis] for axis in range(max(along) + 1, rank))
    return RowDims(data.numel() // columns if columns else 0, columns, inner)


def _row_work(data: torch.Tensor, axes: Sequence[int], flops: int) -> Work:
    each = flops if data.dtype.is_floating_point or data.dtype.is_complex else 0
    return Work(OpKind.REDUCTION, each * data.numel(), dims=_rows(data, axes))


def _last(data: torch.Tensor, count: int) -> range:
    return range(data.dim() - count, data.dim())


@rule("aten.native_layer_norm")
def layer_norm(call: Call) -> Work:
    return _row_work(call.args[0], _last(call.args[0], len(call.args[1])), 8)


@rule("aten.native_layer_norm_backward")
def layer_norm_backward(call: Call) -> Work:
    return _row_work(call.args[1], _last(call.args[1], len(call.args[2])), 16)


@rule("xpusim.rms_norm", "aten._fused_rms_norm")
def rms_norm(call: Call) -> Work:
    return _row_work(call.args[0], _last(call.args[0], len(call.args[1])), 4)


@rule("xpusim.rms_norm_backward", "aten._fused_rms_norm_backward")
def rms_norm_backward(call: Call) -> Work:
    return _row_work(call.args[1], _last(call.args[1], len(call.args[2])), 8)


@rule("aten.native_group_norm")
def group_norm(call: Call) -> Work:
    """A row is the channels of one group at all positions of one image."""
    data, groups = call.args[0], call.args[6]
    rows = data.shape[0] * groups
    return Work(OpKind.REDUCTION, 8 * data.numel(), dims=RowDims(rows, data.numel() // max(1, rows)))


@rule("aten.native_group_norm_backward")
def group_norm_backward(call: Call) -> Work:
    data, groups = call.args[1], call.args[8]
    rows = data.shape[0] * groups
    return Work(OpKind.REDUCTION, 16 * data.numel(), dims=RowDims(rows, data.numel() // max(1, rows)))


@rule(
    "aten.native_batch_norm", "aten._native_batch_norm_legit", "aten._native_batch_norm_legit_no_training",
    "aten.cudnn_batch_norm", "aten.batch_norm_with_update", "aten._batch_norm_with_update",
)  # fmt: skip
def batch_norm(call: Call) -> Work:
    """A row is one channel over the batch and all positions."""
    data = call.args[0]
    return _row_work(data, [0, *range(2, data.dim())], 8)


@rule("aten.native_batch_norm_backward", "aten.cudnn_batch_norm_backward", "aten.batch_norm_backward")
def batch_norm_backward(call: Call) -> Work:
    data = call.args[1]
    return _row_work(data, [0, *range(2, data.dim())], 16)


@rule("aten._softmax", "aten._log_softmax", "aten._safe_softmax")
def softmax(call: Call) -> Work:
    return _row_work(call.args[0], [call.args[1]], 5)


@rule("aten._softmax_backward_data", "aten._log_softmax_backward_data")
def softmax_backward(call: Call) -> Work:
    return _row_work(call.args[0], [call.args[2]], 4)


@rule("aten.nll_loss_forward", "aten.nll_loss2d_forward")
def nll_loss(call: Call) -> Work:
    """Reads one log-probability a row, not the table of them."""
    scores, targets = call.args[0], call.args[1]
    size = targets.numel() * (scores.element_size() + targets.element_size())
    return Work(OpKind.REDUCTION, targets.numel(), reads=size, dims=RowDims(1, targets.numel()))


@rule("aten.nll_loss_backward", "aten.nll_loss2d_backward")
def nll_loss_backward(call: Call) -> Work:
    """Fills the gradient with zeros and writes one element a row."""
    targets = call.args[2]
    return Work(OpKind.MOVE, targets.numel(), reads=targets.numel() * targets.element_size())


_REDUCTIONS = {
    "sum": 1, "mean": 1, "amax": 1, "amin": 1, "aminmax": 2, "argmax": 1, "argmin": 1, "any": 0, "all": 0, "prod": 1,
    "logsumexp": 4, "norm": 2, "linalg_vector_norm": 2, "var": 4, "std": 4, "var_mean": 4, "std_mean": 4,
    "nansum": 1, "_is_all_true": 0, "_is_any_true": 0, "count_nonzero": 0, "median": 1, "mode": 1,
    "nanmedian": 1, "kthvalue": 1, "mse_loss": 3, "binary_cross_entropy_with_logits": 8, "binary_cross_entropy": 6,
    "smooth_l1_loss": 4, "huber_loss": 4,
}  # fmt: skip


@rule(*(f"aten.{name}" for name in _REDUCTIONS))
def reduction(call: Call) -> Work:
    data = call.args[0]
    return _row_work(data, _axes(call, data), _REDUCTIONS[call.target.removeprefix("aten.")])


def _axes(call: Call, data: torch.Tensor) -> list[int]:
    """Axes that a reduction runs along: the argument called dim, if there is one."""
    for index, argument in enumerate(call.func._schema.arguments):
        if argument.name in ("dim", "dims", "axis"):
            found = call.arg(index, argument.name)
            return [] if found is None else [found] if isinstance(found, int) else list(found)
    return []


@rule("aten.max", "aten.min")
def extreme(call: Call) -> Work:
    """One name for a reduction and for a pointwise operator of two tensors."""
    if len(call.args) > 1 and isinstance(call.args[1], torch.Tensor):
        return Work(OpKind.POINTWISE, call.elements)
    data = call.args[0]
    return _row_work(data, _axes(call, data), 1)


@rule("aten.cumsum", "aten.cumprod", "aten.logcumsumexp", "aten.cummax", "aten.cummin", "aten._cummax_helper")
def scan(call: Call) -> Work:
    return _row_work(call.args[0], [call.args[1]], 1)


@rule("aten.sort", "aten.topk", "aten.argsort", "aten.msort")
def sort(call: Call) -> Work:
    """log2(n) comparisons an element; read once and written once as long as a row fits on the chip."""
    data = call.args[0]
    axis = next((value for value in call.args[1:] if isinstance(value, int) and not isinstance(value, bool)), -1)
    if call.target == "aten.topk":
        axis = call.arg(2, "dim", -1)
    dims = _rows(data, [axis if -data.dim() <= axis < data.dim() else -1])
    return Work(OpKind.REDUCTION, data.numel() * max(1, dims.columns.bit_length() - 1), dims=dims)


@rule(
    "aten.histc", "aten.bincount", "aten.multinomial", "aten.avg_pool2d", "aten.max_pool2d_with_indices",
    "aten._adaptive_avg_pool2d", "aten.avg_pool1d", "aten.avg_pool3d", "aten.max_pool3d_with_indices",
    "aten.adaptive_max_pool2d", "aten._adaptive_avg_pool3d",
)  # fmt: skip
def pooling(call: Call) -> Work:
    """Every element of the input goes into one sum, maximum or count."""
    return Work(OpKind.REDUCTION, call.args[0].numel())


@rule(
    "aten.avg_pool2d_backward", "aten.max_pool2d_with_indices_backward", "aten._adaptive_avg_pool2d_backward",
    "aten.avg_pool3d_backward", "aten.max_pool3d_with_indices_backward",
)  # fmt: skip
def pooling_backward(call: Call) -> Work:
    return Work(OpKind.POINTWISE, call.elements)


@rule("aten._fft_r2c", "aten._fft_c2c", "aten._fft_c2r")
def fourier(call: Call) -> Work:
    """5 n log2(n) FLOPs for a transform of n points."""
    dims = _rows(call.args[0], call.args[1])
    points = max(call.args[0].numel(), call.elements)
    return Work(OpKind.REDUCTION, 5 * points * max(1, dims.columns.bit_length() - 1), dims=dims)


@rule("aten._cdist_forward", "aten._cdist_backward")
def distances(call: Call) -> Work:
    """Difference, square and sum for each pair of rows and each column."""
    columns = call.inputs[-1].shape[-1]
    return Work(OpKind.REDUCTION, 3 * call.elements * columns)


@rule("aten.nonzero", "aten.masked_select", "aten.unique_consecutive", "aten._unique2", "aten.unique_dim")
def selection_by_value(call: Call) -> Work:
    """Counts first and copies then: two passes over the input."""
    return Work(OpKind.REDUCTION, reads=2 * bytes_of(call.inputs))


@rule("aten.linalg_solve_triangular", "aten.triangular_solve")
def triangular_solve(call: Call) -> Work:
    """n^2 FLOPs for each right-hand side; its elements depend on each other: no work for a matrix unit."""
    right = max(call.inputs, key=lambda tensor: tensor.dim())
    size = call.outputs[0].shape[-2]
    return Work(OpKind.REDUCTION, call.elements * size, dims=_rows(right, [-2]))
