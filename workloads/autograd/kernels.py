"""All arithmetic on arrays: one function for each kernel that a device would launch, forward and backward.

Nothing here knows of gradients.  Names are those of PyTorch's ATen operators that do the same work.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from typing import Any, ParamSpec

import numpy as np
import numpy.typing as npt
from scipy.special import erf

from workloads.autograd.state import STATE, Array, Integers, Shape

P = ParamSpec("P")
_SQRT_HALF = 0.7071067811865476
_DENSITY_AT_ZERO = 0.3989422804014327  # of the normal distribution: 1 / sqrt(2 pi)


def kernel(target: str, changes: int = 0, axes: int = 0) -> Callable[[Callable[P, Array]], Callable[P, Array]]:
    """Decorator: tell whoever watches that *target* has run.

    changes  the first that many of the kernel's lists of arrays are written in place (optimizers).
    axes     place of the argument that says along which axes it works; 0 for kernels without.
    """

    def decorate(function: Callable[P, Array]) -> Callable[P, Array]:
        @wraps(function)
        def launch(*args: P.args, **kwargs: P.kwargs) -> Array:
            result = function(*args, **kwargs)
            if STATE.watcher is not None:
                outputs = list(_arrays(args[:changes])) if changes else [result]
                along: Any = args[axes] if axes else ()
                STATE.watcher.launched(
                    target, list(_arrays(args)), outputs, (along,) if isinstance(along, int) else along
                )
            return result

        return launch

    return decorate


def _arrays(values: Iterable[Any]) -> Iterator[npt.NDArray[Any]]:
    for value in values:
        if isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, list | tuple):
            yield from _arrays(value)


# Pointwise


@kernel("add")
def add(a: Array, b: Array) -> Array:
    return np.asarray(a + b)


@kernel("sub")
def sub(a: Array, b: Array) -> Array:
    return np.asarray(a - b)


@kernel("mul")
def mul(a: Array, b: Array) -> Array:
    return np.asarray(a * b)


@kernel("div")
def div(a: Array, b: Array) -> Array:
    return np.asarray(a / b)


@kernel("neg")
def neg(a: Array) -> Array:
    return np.asarray(-a)


@kernel("pow")
def power(a: Array, b: Array) -> Array:
    return np.asarray(a**b)


@kernel("exp")
def exp(a: Array) -> Array:
    return np.asarray(np.exp(a))


@kernel("log")
def log(a: Array) -> Array:
    return np.asarray(np.log(a))


@kernel("tanh")
def tanh(a: Array) -> Array:
    return np.asarray(np.tanh(a))


@kernel("tanh_backward")
def tanh_backward(g: Array, out: Array) -> Array:
    """d tanh = 1 - tanh^2."""
    return g * (1 - out * out)


@kernel("relu")
def relu(a: Array) -> Array:
    return np.maximum(a, 0)


@kernel("threshold_backward")
def relu_backward(g: Array, out: Array) -> Array:
    return g * (out > 0)


@kernel("leaky_relu")
def leaky_relu(a: Array, slope: float) -> Array:
    return np.where(a > 0, a, slope * a)


@kernel("leaky_relu_backward")
def leaky_relu_backward(g: Array, a: Array, slope: float) -> Array:
    return np.where(a > 0, g, slope * g)


@kernel("gelu")
def gelu(a: Array) -> Array:
    """a Phi(a), Phi the distribution function of the normal distribution."""
    return np.asarray(a * (0.5 * (1 + erf(a * _SQRT_HALF))), dtype=a.dtype)


@kernel("gelu_backward")
def gelu_backward(g: Array, a: Array) -> Array:
    """Phi(a) + a phi(a)."""
    inner = 0.5 * (1 + erf(a * _SQRT_HALF)) + a * (_DENSITY_AT_ZERO * np.exp(-0.5 * a * a))
    return np.asarray(g * inner, dtype=a.dtype)


# Products


@kernel("mm")
def matmul(a: Array, b: Array) -> Array:
    """[..., m, k] x [..., k, n]; a matrix on the right is one product with all rows on the left."""
    if b.ndim == 2 and a.ndim > 2:
        return np.asarray(a.reshape(-1, a.shape[-1]) @ b).reshape(*a.shape[:-1], b.shape[1])
    return np.asarray(a @ b)


@kernel("addmm")
def addmm(bias: Array, a: Array, b: Array) -> Array:
    """As `matmul` with a matrix on the right; the bias is added as results are written."""
    out = a.reshape(-1, a.shape[-1]) @ b
    out += bias
    return np.asarray(out.reshape(*a.shape[:-1], b.shape[1]))


# Along rows


@kernel("sum", axes=1)
def total(a: Array, axis: tuple[int, ...], keepdims: bool = False) -> Array:
    return np.asarray(a.sum(axis=axis, keepdims=keepdims))


@kernel("mean", axes=1)
def mean(a: Array, axis: tuple[int, ...], keepdims: bool = False) -> Array:
    return np.asarray(a.mean(axis=axis, keepdims=keepdims))


@kernel("amax", axes=1)
def amax(a: Array, axis: tuple[int, ...], keepdims: bool = False) -> Array:
    return np.asarray(a.max(axis=axis, keepdims=keepdims))


@kernel("evenly_distribute_backward")
def amax_backward(g: Array, a: Array, out: Array, axis: tuple[int, ...]) -> Array:
    """The gradient goes to the largest element; equal ones share it."""
    hit = a == out
    return np.asarray(g * hit / hit.sum(axis=axis, keepdims=True))


@kernel("_softmax", axes=1)
def softmax(a: Array, axis: int) -> Array:
    e = np.exp(a - a.max(axis=axis, keepdims=True))
    return np.asarray(e / e.sum(axis=axis, keepdims=True))


@kernel("_softmax_backward_data", axes=2)
def softmax_backward(g: Array, out: Array, axis: int) -> Array:
    return np.asarray(out * (g - (g * out).sum(axis=axis, keepdims=True)))


@kernel("_log_softmax", axes=1)
def log_softmax(a: Array, axis: int) -> Array:
    shifted = a - a.max(axis=axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True)))


@kernel("_log_softmax_backward_data", axes=2)
def log_softmax_backward(g: Array, out: Array, axis: int) -> Array:
    return np.asarray(g - np.exp(out) * g.sum(axis=axis, keepdims=True))


@kernel("nll_loss_forward")
def nll(scores: Array, labels: Integers) -> Array:
    """Mean of minus the score of the right class."""
    return np.asarray(-scores[np.arange(len(labels)), labels].mean())


@kernel("nll_loss_backward")
def nll_backward(g: Array, labels: Integers, shape: Shape) -> Array:
    out = np.zeros(shape, g.dtype)
    out[np.arange(len(labels)), labels] = -g / len(labels)
    return out


# Moves


@kernel("clone")
def copy(a: Array) -> Array:
    return np.array(a)


@kernel("ones_like")
def ones_like(a: Array) -> Array:
    return np.ones_like(a)


@kernel("index")
def gather(a: Array, index: Any) -> Array:
    return np.asarray(a[index])


@kernel("index_put")
def scatter_add(g: Array, index: Any, shape: Shape) -> Array:
    """Zeros of *shape* plus *g* at *index*; a row that was read twice is added to twice."""
    out = np.zeros(shape, g.dtype)
    np.add.at(out, index, g)
    return out


@kernel("slice_backward")
def unslice(g: Array, index: Any, shape: Shape) -> Array:
    out = np.zeros(shape, g.dtype)
    out[index] = g
    return out


@kernel("constant_pad_nd")
def pad(a: Array, widths: Sequence[tuple[int, int]]) -> Array:
    return np.pad(a, widths)


@kernel("col2im")
def fold_windows(g: Array, shape: Shape, size: int, stride: int) -> Array:
    """Add windows [n, c, y, x, size, size] back to where they were cut out of images of *shape*."""
    out = np.zeros(shape, g.dtype)
    rows, columns = g.shape[2] * stride, g.shape[3] * stride
    for i in range(size):
        for j in range(size):
            out[:, :, i : i + rows : stride, j : j + columns : stride] += g[..., i, j]
    return out


# Optimizers: one launch over all parameters


@kernel("sgd", changes=2)
def sgd(
    parameters: list[Array], velocities: list[Array], gradients: list[Array], rate: float, momentum: float, decay: float
) -> Array:
    """v = momentum v + g; p = p - rate v.  *velocities* is empty without momentum."""
    for i, (p, g) in enumerate(zip(parameters, gradients, strict=True)):
        step = g + decay * p if decay else g
        if velocities:
            velocities[i] *= momentum
            velocities[i] += step
            step = velocities[i]
        p[...] -= rate * step
    return parameters[0]


@kernel("adamw", changes=3)
def adamw(
    parameters: list[Array], firsts: list[Array], seconds: list[Array], gradients: list[Array],
    rate: float, betas: tuple[float, float], epsilon: float, decay: float, step: int,
) -> Array:  # fmt: skip
    """m and v are running means of g and g^2; p moves by m / sqrt(v), both freed of their start at zero."""
    beta1, beta2 = betas
    size, root = rate / (1 - beta1**step), (1 - beta2**step) ** 0.5
    for p, m, v, g in zip(parameters, firsts, seconds, gradients, strict=True):
        p[...] *= 1 - rate * decay
        m[...] += (1 - beta1) * (g - m)
        v[...] *= beta2
        v[...] += (1 - beta2) * g * g
        p[...] -= size * m / (np.sqrt(v) / root + epsilon)
    return parameters[0]
