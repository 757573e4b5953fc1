"""Automatic differentiation on numpy, from the chain rule to a trained network.  See the README here."""

from workloads.autograd.functional import cross_entropy, linear, log_softmax, normalise, softmax
from workloads.autograd.modules import MLP, LayerNorm, Linear, Module, Sequential
from workloads.autograd.optimizers import SGD, AdamW
from workloads.autograd.state import no_grad
from workloads.autograd.tensor import Tensor

__all__ = [
    "MLP",
    "SGD",
    "AdamW",
    "LayerNorm",
    "Linear",
    "Module",
    "Sequential",
    "Tensor",
    "cross_entropy",
    "linear",
    "log_softmax",
    "no_grad",
    "normalise",
    "softmax",
]
