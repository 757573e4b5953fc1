"""From logits to tokens: greedy, by temperature, from the smallest set of tokens that holds a share of the probability.

The random number of a token is a function of the request's seed and of how many tokens came before it, and of nothing
else: which requests share a step does not change what is said.
"""

from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simulator.errors import UsageError


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen.

    temperature  logits are divided by it; 0: always the likeliest.
    top_p        share of the probability that the candidates hold together, likeliest first.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise UsageError(f"temperature {self.temperature:g}: needs 0 or more")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top-p {self.top_p:g}: needs more than 0 and at most 1")
        if self.seed < 0:
            raise UsageError(f"seed {self.seed}: needs 0 or more")


def sample(logits: Tensor, ways: Many[Sampling], before: Many[int]) -> list[int]:
    """Return one token for each row of *logits* [R, V]; *before*: tokens that each request has generated so far."""
    tokens = logits.argmax(-1)
    drawn = [row for row, way in enumerate(ways) if way.temperature > 0]
    if drawn:
        uniform = [_uniform(ways[row].seed, before[row]) for row in drawn]
        tokens[drawn] = _draw(logits[drawn], [ways[row] for row in drawn], uniform)
    return [int(token) for token in tokens.tolist()]


def _uniform(seed: int, index: int) -> float:
    """Number *index* of the sequence of *seed*, in [0, 1)."""
    return float(np.random.Generator(np.random.Philox(key=seed, counter=index)).random())


def _draw(logits: Tensor, ways: Many[Sampling], uniform: Many[float]) -> Tensor:
    """The candidate of each row in whose share of the candidates' probability the number falls."""
    wide = torch.float32 if logits.device.type == "mps" else torch.float64
    heat, share, number = (
        torch.tensor(column, dtype=wide, device=logits.device)[:, None]
        for column in ([way.temperature for way in ways], [way.top_p for way in ways], list(uniform))
    )
    probability, order = (logits.to(wide) / heat).softmax(-1).sort(dim=-1, descending=True, stable=True)
    above = probability.cumsum(-1) - probability  # of those that are likelier
    kept = probability.masked_fill(above >= share, 0)
    reached = kept.cumsum(-1)
    picked = torch.searchsorted(reached, number * reached[:, -1:], right=True)
    candidates = (kept > 0).sum(-1, keepdim=True)
    return order.gather(1, picked.minimum(candidates - 1))[:, 0]
