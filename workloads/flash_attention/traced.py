"""What the operators cost, for `frontends.trace`: importing the operator from here makes it known to the simulator."""

from torch import Tensor

from frontends.rules import Call, Work, rule
from simulator.dims import AttentionDims
from simulator.graph import OpKind
from workloads.flash_attention.operator import attention, attention_with_logsum

__all__ = ["attention", "attention_with_logsum"]


@rule("xpusim_flash::forward")
def forward(call: Call) -> Work:
    """Two products over the pairs that the mask leaves; Q, K, V, output and log-sums cross the memory once."""
    query, key, _, causal = call.args[:4]
    return _work(query, key, causal, backward=False)


@rule("xpusim_flash::backward")
def backward(call: Call) -> Work:
    """Five products: scores again, dV, dP, dQ and dK.  That a kernel does some of them twice is its own affair."""
    query, key, causal = call.args[1], call.args[2], call.args[6]
    return _work(query, key, causal, backward=True)


def _work(query: Tensor, key: Tensor, causal: bool, *, backward: bool) -> Work:
    batch, heads, q_len, head = query.shape
    kv_heads, kv_len = key.shape[1:3]
    dims = AttentionDims(
        batch, heads, kv_heads, q_len, kv_len, head, head, causal=causal and q_len > 1, backward=backward
    )
    return Work(OpKind.ATTENTION, dims.flops, dims=dims, dtype=query.dtype)
