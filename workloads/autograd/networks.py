"""Networks put together from the layers: residual MLPs and a small residual network for images."""

from collections.abc import Callable

import numpy as np

from workloads.autograd.modules import (
    Activation,
    BatchNorm,
    Conv,
    LayerNorm,
    Linear,
    Module,
    Residual,
    Sequential,
)
from workloads.autograd.tensor import Tensor

MakeNorm = Callable[[int], Module]


def residual_block(width: int, hidden: int, norm: MakeNorm, generator: np.random.Generator) -> Module:
    """relu(x + f(x)), f = Linear to *hidden*, norm, relu, Linear back to *width*, norm."""
    inner = Sequential(
        Linear(width, hidden, generator),
        norm(hidden),
        Activation(Tensor.relu),
        Linear(hidden, width, generator),
        norm(width),
    )
    return Sequential(Residual(inner), Activation(Tensor.relu))


def mlp_resnet(
    inputs: int, width: int, blocks: int, classes: int, generator: np.random.Generator, norm: MakeNorm = LayerNorm
) -> Module:
    """Linear to *width*, relu, *blocks* residual blocks with half as many hidden units, Linear to *classes*."""
    return Sequential(
        Linear(inputs, width, generator),
        Activation(Tensor.relu),
        *(residual_block(width, width // 2, norm, generator) for _ in range(blocks)),
        Linear(width, classes, generator),
    )


def convolution(inputs: int, outputs: int, size: int, stride: int, generator: np.random.Generator) -> Module:
    """Convolution, batch norm, relu."""
    return Sequential(
        Conv(inputs, outputs, size, stride, generator), BatchNorm(outputs, images=True), Activation(Tensor.relu)
    )


def resnet9(generator: np.random.Generator) -> Module:
    """Nine layers for 10 classes of images [n, 3, 32, 32]: strides of 4, 2, 2, 2 leave 128 features of 1 x 1."""

    def conv(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> Module:
        return convolution(inputs, outputs, size, stride, generator)

    return Sequential(
        conv(3, 16, size=7, stride=4),
        conv(16, 32, stride=2),
        Residual(Sequential(conv(32, 32), conv(32, 32))),
        conv(32, 64, stride=2),
        conv(64, 128, stride=2),
        Residual(Sequential(conv(128, 128), conv(128, 128))),
        Activation(lambda x: x.reshape(len(x), -1)),
        Linear(128, 128, generator),
        Activation(Tensor.relu),
        Linear(128, 10, generator),
    )
