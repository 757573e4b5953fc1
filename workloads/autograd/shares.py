"""Shapes forwards and gradients backwards: what the operators of a tensor have in common."""

import numpy as np

from simulator.errors import UsageError
from workloads.autograd import kernels as k
from workloads.autograd.state import Array, Shape


def unbroadcast(g: Array, shape: Shape) -> Array:
    """Sum *g* over the axes along which an operand of *shape* was repeated."""
    if g.shape == shape:
        return g
    new = g.ndim - len(shape)
    axes = (*range(new), *(i + new for i, size in enumerate(shape) if size == 1 and g.shape[i + new] != 1))
    return k.total(g, axes).reshape(shape)


def check_product(left: Shape, right: Shape) -> None:
    """Raise UsageError unless arrays of these shapes can be multiplied."""
    if len(left) < 2 or len(right) < 2:
        raise UsageError(f"matmul: {left} x {right}: both need two axes or more; reshape first")
    if left[-1] != right[-2]:
        raise UsageError(f"matmul: {left} x {right}: the inner sizes {left[-1]} and {right[-2]} differ")
    check_broadcast("matmul", left[:-2], right[:-2], f"{left} x {right}: the batches")


def left_share(g: Array, y: Array, shape: Shape) -> Array:
    """Gradient of x of *shape* in x y: g y^T."""
    return unbroadcast(k.matmul(g, y.swapaxes(-1, -2)), shape)


def right_share(g: Array, x: Array, shape: Shape) -> Array:
    """Gradient of y of *shape* in x y: x^T g; a matrix that met all rows of a batch gets one product over them."""
    if len(shape) == 2:
        rows, columns = x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])
        return k.matmul(rows.T, columns)
    return unbroadcast(k.matmul(x.swapaxes(-1, -2), g), shape)


def check_broadcast(operator: str, left: Shape, right: Shape, what: str) -> None:
    try:
        np.broadcast_shapes(left, right)
    except ValueError:
        raise UsageError(f"{operator}: {what} do not broadcast") from None


def reshaped(array: Array, shape: Shape) -> Array:
    """Return a view of *array*, or a copy where no strides can express the new shape."""
    try:
        out = array.reshape(shape)
    except ValueError:
        raise UsageError(f"reshape: {array.size} elements of shape {array.shape} do not fit into {shape}") from None
    return out if np.may_share_memory(out, array) else k.copy(array).reshape(shape)
