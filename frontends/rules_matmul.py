"""Matrix products: the only operators, with attention and convolution, that matrix units can take."""

from dataclasses import replace
from math import prod

import torch

from frontends.rules import Call, Work, bytes_of, rule, touched
from simulator.dims import MatmulDims
from simulator.graph import OpKind


def _product(call: Call, dims: MatmulDims, left: torch.Tensor, reads: int | None = None) -> Work:
    """The work of a product; an empty one reads nothing, and a complex one is the real [m, 2k] x [2k, 2n]."""
    if not dims.flops:
        return Work(OpKind.MOVE, 0, reads=0)
    if left.is_complex():
        dims = replace(dims, n=2 * dims.n, k=2 * dims.k)
    return Work(OpKind.MATMUL, dims.flops, reads=reads, dims=dims, dtype=left.dtype)


def _plain(call: Call, left: torch.Tensor, right: torch.Tensor) -> Work:
    """[m, k] x [k, n], or a batch of them.  A bias rides along in the epilogue and adds its bytes, not FLOPs."""
    batch = prod(left.shape[:-2])
    dims = MatmulDims(left.shape[-2], right.shape[-1], left.shape[-1], batch)
    return _product(call, dims, left)


@rule("aten.mm", "aten.bmm", "aten._int_mm", "aten._scaled_mm", "aten._scaled_mm_v2")
def matrix_product(call: Call) -> Work:
    """2 b m n k; the scales of fp8 products add their bytes."""
    return _plain(call, call.arg(0, "self"), call.arg(1, "mat2"))


@rule("aten.addmm", "aten.baddbmm", "aten.addbmm", "aten._addmm_activation")
def matrix_product_and_sum(call: Call) -> Work:
    """2 b m n k, as FlopCounterMode counts it: the sum with the first argument is part of the epilogue."""
    return _plain(call, call.arg(1, "mat1"), call.arg(2, "mat2"))


@rule("aten.dot", "aten.vdot")
def inner_product(call: Call) -> Work:
    left = call.arg(0, "self")
    return _product(call, MatmulDims(1, 1, left.shape[0]), left)


@rule("aten.mv")
def matrix_vector(call: Call) -> Work:
    left = call.arg(0, "self")
    return _product(call, MatmulDims(left.shape[0], 1, left.shape[1]), left)


@rule("aten.addmv")
def matrix_vector_and_sum(call: Call) -> Work:
    left = call.arg(1, "mat")
    return _product(call, MatmulDims(left.shape[0], 1, left.shape[1]), left)


@rule("aten.addr", "aten.ger")
def outer_product(call: Call) -> Work:
    left, right = call.inputs[-2], call.inputs[-1]
    return _product(call, MatmulDims(left.shape[0], right.shape[0], 1), left)


@rule("aten._grouped_mm", "aten._scaled_grouped_mm")
def grouped_product(call: Call) -> Work:
    """One launch for the experts of a mixture: rows are spread over the groups, each row meets one matrix.

    At most one matrix a row is read, so a decode step with few tokens does not pay for every expert.
    """
    left, right = call.arg(0, "self"), call.arg(1, "mat2")
    if left.dim() == 3 and right.dim() == 3:
        return _plain(call, left, right)
    if left.dim() == right.dim() == 2:  # gradient of the weights: the groups split k
        groups = call.outputs[0].shape[0]
        return _product(call, MatmulDims(left.shape[0], right.shape[1], left.shape[1], groups=groups), left)
    weights, rows, k = (right, left, left.shape[-1]) if left.dim() == 2 else (left, right, right.shape[0])
    groups = weights.shape[0]
    m, n = (rows.shape[0], weights.shape[2]) if left.dim() == 2 else (weights.shape[1], rows.shape[1])
    used = touched(weights) * min(groups, rows.shape[0 if left.dim() == 2 else 1]) // groups
    reads = used + bytes_of(each for each in call.inputs if each is not weights)
    return _product(call, MatmulDims(m, n, k, groups=groups), left, reads)
