"""A tensor that remembers how it was made: arithmetic as in numpy, gradients by `Tensor.backward`."""

from collections.abc import Sequence
from math import prod
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from simulator.errors import UsageError
from workloads.autograd import kernels as k
from workloads.autograd.engine import Node, Origin, Share, backward
from workloads.autograd.shares import check_broadcast, check_product, left_share, reshaped, right_share, unbroadcast
from workloads.autograd.state import STATE, Array, Shape

Operand = Union["Tensor", float, npt.ArrayLike]
Axes = int | Sequence[int] | None


class Tensor:
    """An array with a gradient.  float32 and float64 stay as they are, everything else becomes float64.

    data  the values; *grad* the gradient after backward, of the same shape (a leaf's only).
    node  how it was made; None for a leaf, and for what was made where no gradient is needed.
    name  for graphs and reports.
    """

    __array_priority__ = 1000  # numpy leaves ``array * tensor`` to the tensor
    __slots__ = ("__weakref__", "data", "grad", "name", "node", "requires_grad")

    def __init__(self, data: npt.ArrayLike, requires_grad: bool = False, node: Node | None = None, name: str = ""):
        array = np.asarray(data)
        self.data: Array = array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
        self.requires_grad = requires_grad or node is not None
        self.grad: Array | None = None
        self.node = node
        self.name = name

    @property
    def shape(self) -> Shape:
        return self.data.shape

    @property
    def ndim(self) -> int:
        return self.data.ndim

    @property
    def size(self) -> int:
        return self.data.size

    @property
    def origin(self) -> Origin:
        """What a gradient of this tensor is delivered to: the node of a result, a leaf itself."""
        return self.node or self

    @property
    def operator(self) -> str:
        """Name of the operator that made it; empty for a leaf."""
        return self.node.operator if self.node is not None else ""

    def __repr__(self) -> str:
        made = f", by {self.operator}" if self.node else ", requires_grad" if self.requires_grad else ""
        return f"Tensor({np.array2string(self.data, threshold=20, precision=4)}, shape {self.shape}{made})"

    def __len__(self) -> int:
        return len(self.data)

    def item(self) -> float:
        """Return the one value of a tensor with one element."""
        return float(self.data.item())

    def detach(self) -> "Tensor":
        """Return the same values without their history."""
        return Tensor(self.data)

    def backward(self, gradient: npt.ArrayLike | None = None) -> None:
        """Add the gradient of this scalar to ``grad`` of every leaf it was made from; the graph is freed.

        gradient  of something larger with respect to this tensor; needed unless it has one element.
        UsageError: not a scalar, nothing to differentiate, or a graph that has been freed already.
        """
        if not self.requires_grad:
            raise UsageError("nothing to differentiate: no tensor that needs a gradient led to this one")
        if gradient is None:
            if self.size != 1:
                raise UsageError(f"backward needs a scalar, got shape {self.shape}: take its sum or mean first")
            backward(self.origin, k.ones_like(self.data))
            return
        given = np.asarray(gradient, self.data.dtype)
        if given.shape != self.shape:
            raise UsageError(f"backward: the gradient has shape {given.shape}, the tensor {self.shape}")
        backward(self.origin, given)

    # Arithmetic.  A share is written next to each operand; it holds on to arrays and shapes that it needs, no more.

    def __add__(self, other: Operand) -> "Tensor":
        a, b, to_a, to_b = _pair("add", self, other)
        return make("add", k.add(a.data, b.data), (a, to_a), (b, to_b))

    def __sub__(self, other: Operand) -> "Tensor":
        a, b, to_a, to_b = _pair("sub", self, other)
        return make("sub", k.sub(a.data, b.data), (a, to_a), (b, lambda g: to_b(k.neg(g))))

    def __mul__(self, other: Operand) -> "Tensor":
        a, b, to_a, to_b = _pair("mul", self, other)
        x, y = a.data, b.data
        return make("mul", k.mul(x, y), (a, lambda g: to_a(k.mul(g, y))), (b, lambda g: to_b(k.mul(g, x))))

    def __truediv__(self, other: Operand) -> "Tensor":
        a, b, to_a, to_b = _pair("div", self, other)
        y = b.data
        out = k.div(a.data, y)
        return make(
            "div", out, (a, lambda g: to_a(k.div(g, y))), (b, lambda g: to_b(k.neg(k.mul(g, k.div(out, y)))))
        )  # fmt: skip

    def __pow__(self, other: Operand) -> "Tensor":
        """x^y; where y needs a gradient, x must be positive."""
        a, b, to_a, to_b = _pair("pow", self, other)
        x, y = a.data, b.data
        out = k.power(x, y)

        def of_base(g: Array) -> Array:
            return to_a(k.mul(g, k.mul(y, k.power(x, np.where(y == 0, 1, y - 1).astype(y.dtype)))))

        return make("pow", out, (a, of_base), (b, lambda g: to_b(k.mul(g, k.mul(out, k.log(x))))))

    def __neg__(self) -> "Tensor":
        return make("neg", k.neg(self.data), (self, k.neg))

    def __matmul__(self, other: Operand) -> "Tensor":
        """[..., m, k] x [..., k, n], batches broadcast."""
        b = _tensor(other, self)
        x, y = self.data, b.data
        left, right = x.shape, y.shape
        check_product(left, right)
        return make(
            "matmul",
            k.matmul(x, y),
            (self, lambda g: left_share(g, y, left)),
            (b, lambda g: right_share(g, x, right)),
        )

    def __rmatmul__(self, other: Operand) -> "Tensor":
        return _tensor(other, self) @ self

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Operand) -> "Tensor":
        return _tensor(other, self) - self

    def __rtruediv__(self, other: Operand) -> "Tensor":
        return _tensor(other, self) / self

    def __rpow__(self, other: Operand) -> "Tensor":
        return _tensor(other, self) ** self

    def exp(self) -> "Tensor":
        out = k.exp(self.data)
        return make("exp", out, (self, lambda g: k.mul(g, out)))

    def log(self) -> "Tensor":
        x = self.data
        return make("log", k.log(x), (self, lambda g: k.div(g, x)))

    def tanh(self) -> "Tensor":
        out = k.tanh(self.data)
        return make("tanh", out, (self, lambda g: k.tanh_backward(g, out)))

    def relu(self) -> "Tensor":
        out = k.relu(self.data)
        return make("relu", out, (self, lambda g: k.relu_backward(g, out)))

    def leaky_relu(self, slope: float = 0.01) -> "Tensor":
        x = self.data
        return make("leaky_relu", k.leaky_relu(x, slope), (self, lambda g: k.leaky_relu_backward(g, x, slope)))

    def gelu(self) -> "Tensor":
        x = self.data
        return make("gelu", k.gelu(x), (self, lambda g: k.gelu_backward(g, x)))

    # Reductions

    def sum(self, axis: Axes = None, keepdims: bool = False) -> "Tensor":
        axes, spread, _ = self._reduction("sum", axis, keepdims)
        return make("sum", k.total(self.data, axes, keepdims), (self, spread))

    def mean(self, axis: Axes = None, keepdims: bool = False) -> "Tensor":
        axes, spread, count = self._reduction("mean", axis, keepdims)
        return make(
            "mean", k.mean(self.data, axes, keepdims), (self, lambda g: k.div(spread(g), np.asarray(count, g.dtype)))
        )

    def max(self, axis: Axes = None, keepdims: bool = False) -> "Tensor":
        """Largest elements; equal ones share the gradient."""
        axes, spread, _ = self._reduction("max", axis, keepdims)
        x, out = self.data, k.amax(self.data, axes, keepdims)
        return make("max", out, (self, lambda g: k.amax_backward(spread(g), x, spread(out), axes)))

    def _reduction(self, what: str, axis: Axes, keepdims: bool) -> tuple[tuple[int, ...], Share, int]:
        """Return the axes, what spreads a reduced array over them again, and how many elements each result has."""
        axes = self.axes(what, axis)
        shape = self.shape
        kept = tuple(1 if i in axes else size for i, size in enumerate(shape))
        return axes, lambda g: np.broadcast_to(g.reshape(kept), shape), prod(shape[i] for i in axes)

    def axes(self, what: str, axis: Axes) -> tuple[int, ...]:
        """Return *axis* as places counted from the front; UsageError for one that there is not."""
        given = range(self.ndim) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
        for each in given:
            if not -self.ndim <= each < self.ndim:
                raise UsageError(f"{what}: no axis {each} in shape {self.shape}")
        return tuple(each % self.ndim for each in given)

    # Shapes.  Views cost nothing; a view of a view that no strides can express is copied, as numpy does.

    def reshape(self, *shape: int) -> "Tensor":
        before = self.shape
        return make("reshape", reshaped(self.data, shape), (self, lambda g: reshaped(g, before)))

    def transpose(self, *axes: int) -> "Tensor":
        """Reorder axes; without arguments the last two are swapped."""
        order = self.axes("transpose", axes) if axes else (*range(self.ndim - 2), self.ndim - 1, self.ndim - 2)
        if self.ndim < 2 or sorted(order) != list(range(self.ndim)):
            raise UsageError(f"transpose: {axes} is no order of the axes of shape {self.shape}")
        back = tuple(int(i) for i in np.argsort(order))
        return make("transpose", self.data.transpose(order), (self, lambda g: g.transpose(back)))

    def __getitem__(self, index: Any) -> "Tensor":
        """Slices are views; arrays of integers or booleans gather, and their gradient adds up where rows repeat."""
        shape = self.shape
        many = any(isinstance(each, np.ndarray | list) for each in (index if isinstance(index, tuple) else (index,)))
        try:
            out = k.gather(self.data, index) if many else np.asarray(self.data[index])
        except IndexError as error:
            raise UsageError(f"index of a tensor of shape {shape}: {error}") from None
        back = k.scatter_add if many else k.unslice
        return make("gather" if many else "slice", out, (self, lambda g: back(g, index, shape)))


def make(operator: str, data: Array, *edges: tuple[Tensor, Share]) -> Tensor:
    """Return the result of *operator*; each edge is an operand with its share of a gradient of the result."""
    needed = [edge for edge in edges if edge[0].requires_grad] if STATE.recording else []
    if not needed:
        return Tensor(data)
    parents = tuple(operand.origin for operand, _ in needed)
    shares = tuple(share for _, share in needed)
    return Tensor(data, node=Node(operator, data.shape, parents, shares))


def _tensor(value: Operand, like: Tensor) -> Tensor:
    return value if isinstance(value, Tensor) else Tensor(np.asarray(value, like.data.dtype))


def _pair(operator: str, a: Tensor, other: Operand) -> tuple[Tensor, Tensor, Share, Share]:
    """Return both operands and what takes a gradient of the result to their shapes."""
    b = _tensor(other, a)
    left, right = a.shape, b.shape
    check_broadcast(operator, left, right, f"shapes {left} and {right}")
    return a, b, lambda g: unbroadcast(g, left), lambda g: unbroadcast(g, right)
