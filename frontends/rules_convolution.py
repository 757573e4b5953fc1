"""Convolutions over one to three axes, as the matrix products that they are."""

from math import prod

import torch

from frontends.rules import Call, Work, rule
from simulator.dims import ConvolutionDims
from simulator.graph import OpKind


def _dims(
    data: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, transposed: bool, groups: int
) -> ConvolutionDims:
    """A transposed convolution visits each position of its input, a plain one each position of its output."""
    positions = prod((data if transposed else out).shape[2:]) * data.shape[0]
    taps = prod(weight.shape[2:])
    ins, outs = weight.shape[1], weight.shape[0] // groups
    return ConvolutionDims(positions, ins, outs, taps, groups)


@rule("aten.convolution", "aten._convolution", "aten.cudnn_convolution", "aten.convolution_overrideable")
def convolution(call: Call) -> Work:
    """2 x positions x in x out x taps; a bias adds its bytes."""
    data, weight = call.args[:2]
    plain = call.target in ("aten.convolution", "aten._convolution", "aten.convolution_overrideable")
    transposed, groups = (call.args[6], call.args[8]) if plain else (False, call.args[5])
    dims = _dims(data, weight, call.outputs[0], transposed, groups)
    return Work(OpKind.CONVOLUTION, dims.flops, dims=dims, dtype=data.dtype)


@rule("aten.convolution_backward")
def convolution_backward(call: Call) -> Work:
    """As many products of the forward's size as gradients are asked for: of the input, of the weight, or both."""
    gradient, data, weight = call.args[:3]
    transposed, groups, mask = call.args[7], call.args[9], call.args[10]
    dims = _dims(data, weight, gradient, transposed, groups)
    return Work(OpKind.CONVOLUTION, dims.flops * (mask[0] + mask[1]), dims=dims, dtype=data.dtype)
