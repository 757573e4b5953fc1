"""Tokens a byte against the size of the vocabulary: measured on text held out, and continued by a fitted law.

One training to the largest size gives every smaller one: vocabularies of merges are nested.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from workloads.tokenizer.corpus import python_corpus
from workloads.tokenizer.patterns import Split
from workloads.tokenizer.tokenizer import Tokenizer
from workloads.tokenizer.train import train

SIZES = tuple(2**k for k in range(9, 19))  # 512 to 262,144
FINE = tuple(round(2 ** (k / 2)) for k in range(18, 37))  # the same, and one between each two
FITTED_TO = 8192  # sizes up to which every merge was seen often enough that ten times the text would choose the same


@dataclass(frozen=True, slots=True)
class Law:
    """tokens a byte = floor + scale x size^-power, fitted to measured sizes up to *fitted_to*.

    error  of the law at the largest size that was measured and not fitted, relative: how far it may be believed.
    checked_at  that size.
    """

    floor: float
    scale: float
    power: float
    fitted_to: int
    checked_at: int
    error: float

    def __call__(self, size: float) -> float:
        """Return tokens a byte at *size*."""
        return float(self.floor + self.scale * size**-self.power)


@dataclass(frozen=True, slots=True)
class Curve:
    """What a corpus says.  *measured* maps sizes to tokens a byte of the held-out text; *largest* is all it supports.

    characters  a byte of the held-out text.
    """

    corpus: str
    split: Split
    largest: int
    measured: dict[int, float]
    characters: float
    law: Law

    def tokens_per_byte(self, size: int) -> float:
        """Return what was measured at *size*; beyond the largest measured one, that one's times the fall of the law."""
        if size in self.measured:
            return self.measured[size]
        last = max(self.measured)
        return self.measured[last] * self.law(size) / self.law(last)

    def tokens_per_character(self, size: int) -> float:
        return self.tokens_per_byte(size) / self.characters

    def is_measured(self, size: int) -> bool:
        return size in self.measured


@cache
def python_curve(split: Split = Split.GPT2, sizes: Sequence[int] = FINE, limit: int | None = None) -> Curve:
    """Return the curve of the Python corpus, or of its first *limit* bytes."""
    corpus = python_corpus(limit) if limit else python_corpus()
    everything = train(corpus.training, max(sizes), split)
    held_out = b"".join(corpus.held_out)
    measured = {}
    for size in (size for size in sizes if size <= len(everything)):
        ids = Tokenizer(everything.cut(size)).encode_array(held_out, "none")
        measured[size] = len(ids) / len(held_out)
    characters = len(held_out.decode(errors="replace")) / len(held_out)
    return Curve(corpus.name, split, len(everything), measured, characters, fit(measured))


def fit(measured: dict[int, float], fitted_to: int = FITTED_TO) -> Law:
    """Fit the law by least squares to the sizes up to *fitted_to*, and test it on the next ones."""
    from scipy.optimize import curve_fit  # noqa: PLC0415  half a second to load

    sizes = np.array([size for size in measured if size <= fitted_to], dtype=float)
    wanted = np.array([measured[int(size)] for size in sizes])
    (floor, scale, power), _ = curve_fit(
        lambda size, a, b, c: a + b * size**-c, sizes, wanted, p0=(0.1, 3.0, 0.4), bounds=([0, 0, 0.01], [1, 100, 2])
    )
    at = max(measured)
    predicted = floor + scale * at**-power
    return Law(float(floor), float(scale), float(power), int(sizes[-1]), at, float(predicted / measured[at] - 1))
