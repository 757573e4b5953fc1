"""Speculative decoding: a small model proposes, the large one checks all proposals in one step.

With *k* proposals, each accepted with probability a as long as all before it were, a step gains
1 + a + a^2 + ... + a^k = (1 - a^(k+1)) / (1 - a) tokens in the mean: the accepted ones and the large model's own.
Source: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", arXiv 2211.17192, equation 1.
"""

from dataclasses import dataclass
from random import Random

from simulator.errors import UsageError
from simulator.serving.sequence import Step
from workloads.inference.times import StepTimes


@dataclass(frozen=True, slots=True)
class Speculation:
    """*draft*: target that proposes *tokens* tokens a step; *acceptance*: probability of each."""

    draft: str
    tokens: int
    acceptance: float

    @property
    def gain(self) -> float:
        """Tokens that a step gains in the mean.

        >>> Speculation("gpt2", 2, 0.5).gain  # 1 + 1/2 + 1/4
        1.75
        """
        return float(sum(self.acceptance**power for power in range(self.tokens + 1)))


def speculation(text: str) -> Speculation:
    """``draft=MODEL,tokens=4,acceptance=0.7``; UsageError says what is wrong with it."""
    form = "wanted draft=MODEL,tokens=4,acceptance=0.7"
    given = dict(part.partition("=")[::2] for part in text.split(","))
    unknown = [name for name in given if name not in ("draft", "tokens", "acceptance")]
    if unknown or not given.get("draft"):
        raise UsageError(f"--speculate {text}: {form}")
    try:
        found = Speculation(given["draft"], int(given.get("tokens", "4")), float(given.get("acceptance", "0.7")))
    except ValueError:
        raise UsageError(f"--speculate {text}: {form}") from None
    if found.tokens < 1 or not 0 <= found.acceptance <= 1:
        raise UsageError(f"--speculate {text}: tokens must be at least 1 and acceptance between 0 and 1")
    return found


class Gains:
    """Tokens that each decode of a step gains, drawn; equal seeds give equal draws."""

    def __init__(self, how: Speculation, seed: int) -> None:
        self._how, self._random = how, Random(seed)

    def __call__(self, step: Step) -> list[int]:
        return [self._one() for _ in step.decodes]

    def _one(self) -> int:
        accepted = 0
        while accepted < self._how.tokens and self._random.random() < self._how.acceptance:
            accepted += 1
        return accepted + 1


@dataclass(slots=True)
class SpeculativeTimes:
    """Times of steps in which *draft* proposes, one token after another, and *target* checks; both read prompts."""

    target: StepTimes
    draft: StepTimes
    tokens: int

    def time(self, step: Step) -> int:
        """Picoseconds of one step: proposals, prompts by the draft, then the check."""
        total = self.target.time(step)
        if step.decodes:
            total += self.proposing(len(step.decodes), sum(each.computed for each in step.decodes))
        if step.chunks:
            total += self.draft.time(Step(1, [], step.chunks))
        return total

    def run(self, step: Step, most: int, until: int) -> tuple[int, int]:
        """One step: how far it gets is drawn."""
        return 1, self.time(step)

    def proposing(self, count: int, computed: int) -> int:
        """Picoseconds of the proposals of *count* sequences after *computed* positions in all."""
        keys = -(-computed // count) + 1
        return sum(self.draft.decode(count, keys + turn) for turn in range(self.tokens))

    def decode(self, count: int, keys: int) -> int:
        """Picoseconds of one step of *count* decodes that look back on *keys* positions before it."""
        return self.proposing(count, count * keys) + self.target.decode(count, keys + self.tokens + 1, self.tokens + 1)
