"""Layers: objects that hold parameters and turn tensors into tensors."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Self

import numpy as np
import numpy.typing as npt

from simulator.errors import UsageError
from workloads.autograd.functional import linear, normalise, pad, windows
from workloads.autograd.state import STATE, working_on
from workloads.autograd.tensor import Tensor


class Module:
    """Whatever has parameters: tensors that need a gradient, in its attributes and in those of its parts.

    path  where it stands in the whole, such as ``layers.0``; set by `name_parts`, and work is booked under it.
    """

    path = ""

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def __call__(self, x: Tensor) -> Tensor:
        with working_on(STATE.phase, self.path or STATE.module):
            return self.forward(x)

    def parts(self, prefix: str = "") -> Iterator[tuple[str, "Module"]]:
        """Yield this module and all below it with their paths."""
        yield prefix, self
        for name, value in vars(self).items():
            for key, part in _modules(name, value):
                yield from part.parts(f"{prefix}.{key}" if prefix else key)

    def named_parameters(self) -> dict[str, Tensor]:
        """Return parameters by path, each once."""
        found: dict[str, Tensor] = {}
        for path, part in self.parts():
            for name, value in vars(part).items():
                if isinstance(value, Tensor) and value.requires_grad:
                    found[f"{path}.{name}" if path else name] = value
        return found

    def parameters(self) -> list[Tensor]:
        """Return all parameters."""
        return list(self.named_parameters().values())

    def name_parts(self) -> None:
        """Tell every part and parameter its path."""
        for path, part in self.parts():
            part.path = path
        for path, parameter in self.named_parameters().items():
            parameter.name = path

    def count(self) -> int:
        """Return the elements of all parameters."""
        return sum(parameter.size for parameter in self.parameters())

    def cast(self, dtype: npt.DTypeLike) -> Self:
        """Turn all parameters into float32 or float64, before an optimizer is made for them, and return the module."""
        for parameter in self.parameters():
            parameter.data = parameter.data.astype(dtype)
        return self


def _modules(name: str, value: object) -> Iterator[tuple[str, Module]]:
    if isinstance(value, Module):
        yield name, value
    elif isinstance(value, tuple | list):
        yield from ((f"{name}.{i}", each) for i, each in enumerate(value) if isinstance(each, Module))


class Linear(Module):
    """x W + b; W [inputs, outputs] starts uniform within 1 / sqrt(inputs), as PyTorch's does."""

    def __init__(self, inputs: int, outputs: int, generator: np.random.Generator) -> None:
        if inputs < 1 or outputs < 1:
            raise UsageError(f"Linear({inputs}, {outputs}): both sizes must be at least 1")
        bound = inputs**-0.5
        self.weight = Tensor(generator.uniform(-bound, bound, (inputs, outputs)), requires_grad=True)
        self.bias = Tensor(generator.uniform(-bound, bound, outputs), requires_grad=True)

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class Activation(Module):
    """A function without parameters, such as ``Tensor.relu``."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Sequential(Module):
    """One layer after the other."""

    def __init__(self, *layers: Module) -> None:
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Residual(Module):
    """x + f(x)."""

    def __init__(self, inner: Module) -> None:
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class MLP(Sequential):
    """Linear layers of the given *sizes* with an activation between each two."""

    def __init__(
        self, sizes: tuple[int, ...], generator: np.random.Generator, function: Callable[[Tensor], Tensor] = Tensor.relu
    ) -> None:
        if len(sizes) < 2:
            raise UsageError(f"an MLP needs at least two sizes, got {sizes}")
        layers: list[Module] = []
        for inputs, outputs in pairwise(sizes):
            layers += [Linear(inputs, outputs, generator), Activation(function)]
        super().__init__(*layers[:-1])


class Norm(Module):
    """Normalised over *axes*, then scaled and shifted by *gain* and *bias*, which line up with the axis *along*."""

    def __init__(self, features: int, axes: tuple[int, ...], along: int) -> None:
        self.axes, self.along = axes, along
        self.gain = Tensor(np.ones(features), requires_grad=True)
        self.bias = Tensor(np.zeros(features), requires_grad=True)

    def forward(self, x: Tensor) -> Tensor:
        shape = (-1, *[1] * (x.ndim - 1 - self.along % x.ndim))
        return normalise(x, self.axes) * self.gain.reshape(*shape) + self.bias.reshape(*shape)


class LayerNorm(Norm):
    """Each row over its last axis."""

    def __init__(self, features: int) -> None:
        super().__init__(features, axes=(-1,), along=-1)


class BatchNorm(Norm):
    """Each feature of rows [n, features], or each channel of images [n, c, y, x], over the batch: as in training."""

    def __init__(self, features: int, images: bool = False) -> None:
        super().__init__(features, axes=(0, 2, 3) if images else (0,), along=1)


class Conv(Module):
    """Convolution of images [n, c, y, x] as the matrix product that it is; padded so that stride 1 keeps the size."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, generator: np.random.Generator) -> None:
        self.size, self.stride = size, stride
        bound = (inputs * size * size) ** -0.5
        self.weight = Tensor(generator.uniform(-bound, bound, (inputs * size * size, outputs)), requires_grad=True)
        self.bias = Tensor(generator.uniform(-bound, bound, outputs), requires_grad=True)

    def forward(self, x: Tensor) -> Tensor:
        cut = windows(pad(x, self.size // 2), self.size, self.stride)
        n, _, rows, columns = cut.shape[:4]
        patches = cut.transpose(0, 2, 3, 1, 4, 5).reshape(n * rows * columns, self.weight.shape[0])
        out = linear(patches, self.weight, self.bias)
        return out.reshape(n, rows, columns, -1).transpose(0, 3, 1, 2)


class Embedding(Module):
    """Rows of a table [rows, width], looked up by whole numbers."""

    def __init__(self, rows: int, width: int, generator: np.random.Generator) -> None:
        self.table = Tensor(generator.normal(0, 0.02, (rows, width)), requires_grad=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.table[x.data.astype(np.int64)]
