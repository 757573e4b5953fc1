"""What a training run takes by formula, before anything is simulated.  Multiply-add = 2 FLOP, a byte is a byte."""

from workloads.gpt.config import Config

SECONDS_PER_DAY = 86_400


def training_flops(parameters: float, tokens: float) -> float:
    """Return 6 P T: forward and backward of every parameter for every token, attention left out."""
    return 6 * parameters * tokens


def share_of_peak(flops: float, seconds: float, peak: float, devices: int = 1) -> float:
    """Return the utilisation of *devices* with *peak* FLOP/s each; a rate is *flops* in one second.

    The peak is the dense one of all devices together: a sparse peak halves it, one device's alone multiplies it.
    """
    return flops / (seconds * peak * devices)


def days(flops: float, peak: float, devices: int = 1, share: float = 1.0) -> float:
    """Return the days that *flops* take at a *share* of the peak."""
    return flops / (peak * devices * share) / SECONDS_PER_DAY


def state_bytes(parameters: float, weight: float = 2, gradient: float = 0, optimizer: float = 8) -> float:
    """Return the bytes that a model holds between two steps: so many for each parameter."""
    return parameters * (weight + gradient + optimizer)


def zero_bytes(parameters: float, ranks: int, stage: int) -> tuple[float, float, float]:
    """Return the bytes of parameters, gradients and optimizer on each rank, for a stage of ZeRO from 0 to 3.

    Parameters and gradients in bf16, two states of AdamW in fp32, no master copy.
    """
    parts = [1 if stage < first else ranks for first in (3, 2, 1)]
    sizes = (2 * parameters, 2 * parameters, 8 * parameters)
    return sizes[0] / parts[0], sizes[1] / parts[1], sizes[2] / parts[2]


def checkpoint_bytes(layers: int, width: int, tokens: float, widths_kept: float) -> float:
    """Return the bytes of activations in bf16 if each layer keeps *widths_kept* times the width for each token."""
    return 2 * layers * width * tokens * widths_kept


def kept_by_unfused_layer(config: Config, seq: int) -> tuple[float, float]:
    """Return the bytes a layer of GPT-3's kind keeps for each token and column of width: 34, and 5 a s / h more.

    The second part is softmax and its masks, a heads and s^2 elements; fused attention does not keep it.
    Source: Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, equation 2.
    """
    return 34.0, 5 * config.heads * seq / config.width


def selective_recompute_flops(config: Config, seq: int) -> float:
    """Return the FLOP of a step that computes attention again over those of one that does not, less one.

    (1 + s / 3h) / (1 + s / 6h) - 1, as the same paper counts (appendix A).
    """
    share = seq / (6 * config.width)
    return (1 + 2 * share) / (1 + share) - 1
