"""Gradients by central differences: slow, simple, and independent of every rule in the engine."""

from collections.abc import Callable, Sequence

import numpy as np

from workloads.autograd.state import Array, no_grad
from workloads.autograd.tensor import Tensor


def gradient_error(function: Callable[..., Tensor], arrays: Sequence[Array], step: float = 1e-6) -> float:
    """Return the largest difference between a gradient of the engine and (f(x + h) - f(x - h)) / 2h, in float64.

    f is the sum of *function*'s output with fixed random weights, so that no element can hide behind another; every
    element of every array is moved by *step*.

    >>> gradient_error(lambda x: x * x, [np.array([3.0])]) < 1e-6
    True
    """
    inputs = [Tensor(np.array(array, np.float64), requires_grad=True) for array in arrays]
    out = function(*inputs)
    weights = np.random.default_rng(0).normal(size=out.shape)
    out.backward(weights)
    worst = 0.0
    for tensor in inputs:
        wanted = _differences(lambda: float((function(*inputs).data * weights).sum()), tensor.data, step)
        got = tensor.grad if tensor.grad is not None else np.zeros(tensor.shape)
        worst = max(worst, float(np.abs(got - wanted).max(initial=0)))
    return worst


def _differences(value: Callable[[], float], array: Array, step: float) -> Array:
    out = np.zeros_like(array)
    with no_grad():
        for place in np.ndindex(array.shape):
            before = array[place]
            array[place] = before + step
            above = value()
            array[place] = before - step
            out[place] = (above - value()) / (2 * step)
            array[place] = before
    return out
