"""Fused attention: the score matrix stays on the chip, so that it costs FLOPs and no bytes."""

import torch

from frontends.rules import Call, Work, bytes_of, rule
from simulator.dims import AttentionDims
from simulator.graph import OpKind

FORWARD = (
    "aten._scaled_dot_product_flash_attention",
    "aten._scaled_dot_product_efficient_attention",
    "aten._scaled_dot_product_cudnn_attention",
    "aten._scaled_dot_product_flash_attention_for_cpu",
    "aten._scaled_dot_product_fused_attention_overrideable",
)


def attention_dims(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool, backward: bool = False
) -> AttentionDims:
    """Sizes of an attention over [batch, heads, length, dim].

    torch's causal mask starts in the top left corner: with fewer queries than keys, the last keys are seen by none.
    """
    q_len, kv_len = query.shape[-2], key.shape[-2]
    if causal and q_len < kv_len:
        kv_len = q_len
    batch = query.shape[:-3].numel()
    heads = query.shape[-3], key.shape[-3]
    return AttentionDims(
        batch, *heads, q_len, kv_len, query.shape[-1], value.shape[-1], causal and q_len > 1, backward=backward
    )


def _work(call: Call, dims: AttentionDims, query: torch.Tensor) -> Work:
    return Work(OpKind.ATTENTION, dims.flops, dims=dims, dtype=query.dtype)


@rule("xpusim.attention")
def fused(call: Call) -> Work:
    query, key, value = call.args[:3]
    return _work(call, attention_dims(query, key, value, call.args[4]), query)


@rule("xpusim.attention_backward")
def fused_backward(call: Call) -> Work:
    _, query, key, value = call.args[:4]
    return _work(call, attention_dims(query, key, value, call.args[7], backward=True), query)


@rule(*FORWARD)
def scaled_dot_product(call: Call) -> Work:
    """What the program itself asked for by the name of one backend."""
    query, key, value = call.args[:3]
    causal = _flag(call, "is_causal")
    real = tuple(each for each in call.outputs if each.dim() >= 3)  # the others hold seeds of the dropout
    return Work(
        OpKind.ATTENTION,
        attention_dims(query, key, value, causal).flops,
        writes=bytes_of(real),
        dims=attention_dims(query, key, value, causal),
        dtype=query.dtype,
    )


@rule(*(f"{name}_backward" for name in FORWARD))
def scaled_dot_product_backward(call: Call) -> Work:
    _, query, key, value = call.args[:4]
    return _work(call, attention_dims(query, key, value, _flag(call, "is_causal"), backward=True), query)


@rule("aten._flash_attention_forward", "aten._efficient_attention_forward")
def varlen(call: Call) -> Work | None:
    """[batch, length, heads, dim]; packed sequences of unknown lengths are left to the rule of last resort."""
    query, key, value = (each.transpose(-2, -3) for each in call.args[:3])
    if query.dim() != 4:
        return None
    return _work(call, attention_dims(query, key, value, _flag(call, "is_causal")), query)


def _flag(call: Call, name: str) -> bool:
    for index, argument in enumerate(call.func._schema.arguments):
        if argument.name == name:
            return bool(call.arg(index, name, False))
    return False
