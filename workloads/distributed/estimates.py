"""Parallel training on paper: what is sent, what is kept, and from where on the links bind.  Multiply-add = 2 FLOP.

Sources: [book] How to Scale Your Model (Austin et al., 2025), chapters Training and GPUs; [zero] Rajbhandari et al.,
ZeRO, 2020; [megatron] Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022;
[playbook] The Ultra-Scale Playbook (Hugging Face, 2025), its appendix on communication and computation.
"""

from math import sqrt

from simulator.errors import UsageError
from workloads.gpt.config import Config
from workloads.gpt.parameters import matmul_parameters, parameters


def ring_share(ranks: int) -> float:
    """Return the bytes that a rank sends for each byte of a gather or scatter: (n - 1) / n; an all-reduce is two.

    >>> ring_share(1), ring_share(4)
    (0.0, 0.75)
    """
    return (ranks - 1) / ranks


def zero_volume(stage: int) -> int:
    """Return what a rank sends and receives in a step, in units of the parameters, for a *stage* of ZeRO (0: plain DP).

    An all-reduce of the gradients is a scatter and a gather: 2.  Stages 1 and 2 scatter gradients and gather updated
    parameters: 2.  Stage 3 gathers parameters forward and backward and scatters gradients: 3.  [zero, section 7]
    """
    if stage not in range(4):
        raise UsageError(f"ZeRO has the stages 0 to 3, got {stage}")
    return 3 if stage == 3 else 2


def critical_tokens(peak: float, bandwidth: float, ranks: int = 0, spread: float = 1.0) -> float:
    """Return the tokens a chip has to see in a step for its gradients to be sent while it computes.

    4 P T / peak of the backward pass against 4 P bytes (bf16, there and back) over *bandwidth*: T = peak / bandwidth.
    With few *ranks* less is sent, (n - 1) / n.  *spread*: parameters over those that a token passes (experts / active).
    [book, GPUs, rooflines]
    """
    return peak / bandwidth * spread * (ring_share(ranks) if ranks else 1.0)


def tokens_per_chip(sequences: float, seq: int, chips: int) -> float:
    """Return the tokens of one step that each chip sees."""
    return sequences * seq / chips


def best_fsdp(tokens: float, hidden: int, chips: int, axes: float = 1.0) -> float:
    """Return over how many of *chips* to shard parameters, the rest being tensor parallel: sqrt(T / F x axes x N).

    T tokens of the whole step, F width of the feed-forward network, *axes* mesh axes of FSDP over those of TP.  It
    makes the bytes of both together the least.  [book, Training, combining FSDP and tensor parallelism]
    """
    return sqrt(tokens / hidden * axes * chips)


def least_tokens(peak: float, bandwidth: float, hidden: int, axes: int = 2) -> float:
    """Return the tokens a chip needs with the best mixture of FSDP and TP: 4 (peak / bandwidth)^2 / (axes F).

    *axes*: product of the mesh axes given to each.  [book, Training, combining FSDP and tensor parallelism]
    """
    return 4 * (peak / bandwidth) ** 2 / (axes * hidden)


def most_tensor_ranks(peak: float, bandwidth: float, hidden: int) -> float:
    """Return the tensor parallel ranks beyond which activations take longer to send than to compute: F W / C. [book]"""
    return hidden * bandwidth / peak


def activation_bytes(layers: int, width: int, tokens: int, tensor: int = 1, sequence: bool = False) -> float:
    """Return the bytes of activations a rank keeps in 16 bits, attention recomputed (selective): s b h L (10 + 24 / t).

    Tensor parallelism leaves 10 of the 34 bytes whole on every rank (norms, residuals, dropout); *sequence* parallelism
    divides those too.  [megatron, equations 2 to 5]
    """
    return layers * width * tokens * (34 / tensor if sequence else 10 + 24 / tensor)


def flops_per_token(config: Config, seq: int, heads: int = 1) -> int:
    """Return 6 (blocks + *heads* V D) + 12 L N H s: a step's FLOP for each token, attention not taken as causal.

    *heads* is how often the V x D of embedding and output are counted: once is right for a tied model, where some tools
    count twice as soon as a pipeline holds two copies of it.
    """
    blocks = matmul_parameters(config) - config.vocab * config.width
    return 6 * (blocks + heads * config.vocab * config.width) + 12 * config.layers * config.q_width * seq


def zero3_ratio(tokens: int, peak: float, bandwidth: float) -> float:
    """Return communication over computation of ZeRO-3 on many ranks, peak / (2 T W): T *tokens* a rank [playbook]."""
    return peak / (2 * tokens * bandwidth)


def tensor_ratio(width: int, ranks: int, peak: float, bandwidth: float) -> float:
    """Return communication over computation of a tensor parallel layer: (t - 1) peak / (2 h W). [playbook]"""
    return (ranks - 1) * peak / (2 * width * bandwidth)


def pipeline_ratio(width: int, layers: int, peak: float, bandwidth: float) -> float:
    """Return the time of handing activations on over that of the next L *layers*: peak / (32 h L W) [playbook]."""
    return peak / (32 * width * layers * bandwidth)


def tensor_payload(config: Config, tokens: int, itemsize: int = 2) -> int:
    """Return the bytes that tensor parallelism all-reduces in a step: four times b s h a layer.

    Source: Shoeybi et al., Megatron-LM, 2019: one behind attention and one behind the feed-forward network, and one
    before each in the backward pass.
    """
    return 4 * config.layers * tokens * config.width * itemsize


def gradient_payload(config: Config, tensor: int = 1, itemsize: int = 2) -> int:
    """Return the bytes of gradients that data parallelism all-reduces on a rank that holds 1 / *tensor* of the layers.

    Norms, embedding and output stay whole on every rank, as in `workloads.distributed.tensor_parallel`.
    """
    p = parameters(config)
    cut = p.attention + p.ffn
    return (p.total - cut + cut // tensor) * itemsize
