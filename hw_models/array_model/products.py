"""Operators as matrix products: what the arrays are asked to do."""

from hw_models.array_model.plan import Product
from simulator.dims import AttentionDims, ConvolutionDims, MatmulDims
from simulator.graph import Operator


def product_of(op: Operator) -> Product | None:
    """Return the product that a matmul or a convolution is; None for any other operator, or an empty one.

    A grouped product spreads its rows evenly over its groups.  A convolution unrolls its input on the way into the
    array: the matrix has a word for each tap, the memory only one.
    """
    dims = op.dims
    match dims:
        case MatmulDims():
            m, n, k, batch = -(-dims.m // dims.groups), dims.n, dims.k, dims.batch * dims.groups
            spread = 1.0
        case ConvolutionDims():
            m, n, k, batch = dims.positions, dims.out_channels, dims.in_channels * dims.taps, dims.groups
            spread = min(1.0, op.inputs[0].elements / max(1, m * k * batch)) if op.inputs else 1.0
        case _:
            return None
    return Product(m, n, k, batch, op.nbytes, spread) if min(m, n, k, batch) else None


def products_of_attention(dims: AttentionDims) -> tuple[Product, ...]:
    """Return the products of one attention: scores and values, and for the gradient three more.

    Query heads that share keys are stacked, so that a key or value enters the cells once for all of them.
    """
    batch, rows = dims.batch * dims.kv_heads, dims.heads // max(1, dims.kv_heads) * dims.q_len
    keys, width, values = dims.kv_len, dims.head_dim, dims.value_dim
    scores, outputs = Product(rows, keys, width, batch), Product(rows, values, keys, batch)
    if not dims.backward:
        return scores, outputs
    return (
        scores,
        Product(rows, keys, values, batch),  # dP = dO V^T
        Product(keys, values, rows, batch),  # dV = P^T dO
        Product(rows, width, keys, batch),  # dQ = dS K
        Product(keys, width, rows, batch),  # dK = dS^T Q
    )
