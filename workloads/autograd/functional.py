"""Functions of tensors that are one kernel on a device, or a few lines of arithmetic."""

import numpy as np
import numpy.typing as npt

from simulator.errors import UsageError
from workloads.autograd import kernels as k
from workloads.autograd.shares import check_product, left_share, right_share
from workloads.autograd.state import Array, Integers
from workloads.autograd.tensor import Tensor, make


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x W + b in one kernel: x [..., k], W [k, n], b [n]."""
    a, w = x.data, weight.data
    check_product(a.shape, w.shape)
    rows, columns = a.shape, w.shape
    out = k.addmm(bias.data, a, w)
    return make(
        "linear",
        out,
        (x, lambda g: left_share(g, w, rows)),
        (weight, lambda g: right_share(g, a, columns)),
        (bias, lambda g: k.total(g, tuple(range(g.ndim - 1)))),
    )


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    (along,) = x.axes("softmax", axis)
    out = k.softmax(x.data, along)
    return make("softmax", out, (x, lambda g: k.softmax_backward(g, out, along)))


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    (along,) = x.axes("log_softmax", axis)
    out = k.log_softmax(x.data, along)
    return make("log_softmax", out, (x, lambda g: k.log_softmax_backward(g, out, along)))


def cross_entropy(logits: Tensor, labels: npt.ArrayLike) -> Tensor:
    """Mean over rows of -log softmax(logits)[label]: logits [rows, classes], labels whole numbers [rows].

    UsageError for shapes that do not belong together and for a label that is no class.
    """
    classes = _labels(logits, labels)
    scores = log_softmax(logits, axis=1)
    shape = scores.shape
    return make("nll", k.nll(scores.data, classes), (scores, lambda g: k.nll_backward(g, classes, shape)))


def _labels(logits: Tensor, labels: npt.ArrayLike) -> Integers:
    found = np.asarray(labels)
    if logits.ndim != 2 or found.shape != logits.shape[:1]:
        raise UsageError(
            f"cross entropy needs logits [rows, classes] and labels [rows], got shapes {logits.shape} and {found.shape}"
        )
    if not np.issubdtype(found.dtype, np.integer):
        raise UsageError(f"cross entropy needs whole numbers as labels, got {found.dtype}")
    classes = logits.shape[1]
    wrong = np.flatnonzero((found < 0) | (found >= classes))
    if wrong.size:
        raise UsageError(f"label {found[wrong[0]]} of row {wrong[0]}: {classes} classes have labels 0 to {classes - 1}")
    return found


def normalise(x: Tensor, axes: int | tuple[int, ...], epsilon: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) over *axes*; the variance divides by all elements, not by one less."""
    centred = x - x.mean(axes, keepdims=True)
    variance = (centred * centred).mean(axes, keepdims=True)
    return centred / (variance + epsilon) ** 0.5


def pad(x: Tensor, width: int) -> Tensor:
    """Zeros around the last two axes of images [n, c, y, x]."""
    if not width:
        return x
    inner = slice(width, -width)
    around = [(0, 0), (0, 0), (width, width), (width, width)]
    return make("pad", k.pad(x.data, around), (x, lambda g: g[:, :, inner, inner]))


def windows(x: Tensor, size: int, stride: int) -> Tensor:
    """Every *stride*-th window of images [n, c, y, x] as [n, c, y', x', size, size]: a view, many elements repeat."""
    shape = x.shape
    if min(shape[2:]) < size:
        raise UsageError(f"windows of {size} x {size} do not fit into images of shape {shape}")
    cut: Array = np.lib.stride_tricks.sliding_window_view(x.data, (size, size), axis=(2, 3))
    out = cut[:, :, ::stride, ::stride]
    return make("windows", out, (x, lambda g: k.fold_windows(g, shape, size, stride)))
