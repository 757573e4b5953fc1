"""What 8 and 4 bits cost in quality, measured on a small model that is trained on the spot.

A weight that falls anywhere between two steps of size s is off by s / sqrt(12) in the root mean square; that is the
error to expect of weights.  Errors of a product's terms are independent, so that its relative error is about that of
the weights; through the layers they add up in squares.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from simulator.packing import bits_of
from workloads.gpt.generate import TEXT, tiny, train
from workloads.gpt.model import Model
from workloads.gpt.program import next_token_loss
from workloads.inference.model import Runner
from workloads.inference.quantise import expected_rms, pack, unpack
from workloads.inference.steps import logits_of


@dataclass(frozen=True, slots=True)
class Quality:
    """One scheme.

    weight_error, expected  of all packed matrices together, relative: measured, and by step / sqrt(12).
    logit_error             of the logits of the text, relative to their spread over the vocabulary.
    perplexity              on the text, beside that of the model as it is.
    bits                    of memory a packed weight takes, scales and padding included.
    """

    scheme: str
    bits: float
    weight_error: float
    expected: float
    logit_error: float
    perplexity: float
    perplexity_before: float


def trained(steps: int = 150) -> Model:
    """Return a model of a quarter million parameters that knows two sentences by heart."""
    torch.manual_seed(0)
    model = Model(tiny())
    train(model, TEXT.encode(), steps)
    return model.eval()


@torch.no_grad()
def quality(model: Model, scheme: str, text: bytes = TEXT.encode()) -> Quality:
    """Measure what *scheme* does to *model* on *text*."""
    matrices = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    error, expected, nbytes = weight_errors(matrices, bits_of(scheme))
    ids = torch.tensor(list(text))
    before, after = logits_of(Runner(model), ids), logits_of(Runner(model, scheme), ids)
    spread = (before - before.mean(-1, keepdim=True)).norm()
    return Quality(
        scheme,
        8 * nbytes / sum(each.numel() for each in matrices),
        error,
        expected,
        float((after - before).norm() / spread),
        _perplexity(after, ids),
        _perplexity(before, ids),
    )


def weight_errors(matrices: list[Tensor], bits: int) -> tuple[float, float, int]:
    """Return measured and expected relative error of all *matrices* together, and their packed bytes."""
    found = expected = total = 0.0
    nbytes = 0
    for matrix in matrices:
        packed = pack(matrix, bits)
        found += float((unpack(packed, matrix.shape[1]) - matrix).square().sum())
        expected += expected_rms(packed) ** 2 * matrix.numel()
        total += float(matrix.square().sum())
        nbytes += packed.nbytes
    return math.sqrt(found / total), math.sqrt(expected / total), nbytes


def _perplexity(logits: Tensor, ids: Tensor) -> float:
    return math.exp(float(next_token_loss(logits[None, :-1], ids[None, 1:])))
