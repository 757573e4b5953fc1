"""The formulas that architects use before they simulate anything.  Multiply-add = 2 FLOP."""

from simulator.dims import AttentionDims
from simulator.dtypes import DType
from workloads.gpt.config import Config
from workloads.gpt.parameters import matmul_parameters, parameters


def forward_flops_per_token(config: Config) -> int:
    """Return 2 P: twice all parameters that a token passes through, the embedding look-up left out.

    The rule of thumb: attention over the context is not in it, norms count as if they were matrices.
    """
    p = parameters(config)
    passed = p.total - p.ffn + p.active - p.embedding
    return 2 * (passed + config.vocab * config.width if config.tied else passed)


def linear_flops(config: Config, tokens: int) -> int:
    """Return the FLOP of all linear layers for *tokens* with logits for each: what a counter without attention sees."""
    return 2 * tokens * matmul_parameters(config)


def attention_flops(config: Config, batch: int, queries: int, keys: int, causal: bool = True) -> int:
    """Return the FLOP of Q K^T and P V in all layers, the pairs that mask and window leave."""
    return sum(attention_dims(config, layer, batch, queries, keys, causal).flops for layer in range(config.layers))


def attention_dims(
    config: Config, layer: int, batch: int, queries: int, keys: int, causal: bool = True
) -> AttentionDims:
    """Return the attention of one layer; the queries are the last of the keys."""
    c = config
    window = c.window_of(layer) if causal else 0
    if queries == 1:  # a decode step reads no more than the window
        keys, window, causal = c.keys_seen(layer, keys), 0, False
    return AttentionDims(batch, c.heads, c.kv_heads, queries, keys, c.head_dim, c.head_dim, causal, window)


def training_flops_per_token(config: Config, seq: int) -> int:
    """Return 6 P + 12 N H (sum of keys seen over layers): forward and backward, attention as if not causal.

    P is `matmul_parameters`.  The convention of the PaLM paper's MFU, with the window of each layer.
    """
    keys = sum(config.keys_seen(layer, seq) for layer in range(config.layers))
    return 6 * matmul_parameters(config) + 12 * config.q_width * keys


def kv_bytes_per_token(config: Config, dtype: DType = DType.BF16) -> int:
    """Return 2 L K H elements in bytes: what one more position of context costs.

    >>> from workloads.gpt.presets import preset
    >>> kv_bytes_per_token(preset("llama-8b"))
    131072
    """
    return 2 * config.layers * config.kv_width * dtype.bits // 8


def kv_bytes(config: Config, batch: int, context: int, dtype: DType = DType.BF16) -> int:
    """Return the bytes of keys and values that one decode step reads: a window shortens what is read."""
    keys = sum(config.keys_seen(layer, context) for layer in range(config.layers))
    return batch * 2 * config.kv_width * keys * dtype.bits // 8


def attention_intensity(config: Config, queries: int, keys: int, dtype: DType = DType.BF16) -> float:
    """Return FLOP per byte of one fused, unmasked attention: Q and the output, K and V, each moved once.

    With G query heads a key head and two bytes an element it is S T G / (S G + T): it grows with the prompt in
    prefill, and in decode (S = 1) it cannot pass G however long the context.
    """
    flops = 4 * config.q_width * queries * keys
    elements = 2 * config.q_width * queries + 2 * config.kv_width * keys
    return flops / (elements * dtype.bits / 8)


def attention_break_even(config: Config) -> tuple[float, float]:
    """Return the sequence lengths at which unmasked attention costs as much as two other parts of a block.

    First: its own projections.  Second: all matrices of the block.  A causal mask doubles both.
    """
    p = parameters(config)
    per_key = 4 * config.q_width * config.layers
    return 2 * p.attention / per_key, 2 * (p.attention + p.active) / per_key
