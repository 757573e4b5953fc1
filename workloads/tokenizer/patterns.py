"""The split patterns: how text falls into pieces before any merge, and the classes of characters that they speak of.

No merge crosses the edge of a piece.  The regular expressions here are the definition; `scan` is the same as compiled
code, and the tests hold one against the other.
"""

from enum import StrEnum
from functools import cache

import numpy as np

from simulator.errors import UsageError, nearest
from workloads.tokenizer.compiled import Bytes

OTHER, LETTER, NUMBER, SPACE = range(4)
_LARGEST = 0x10FFFF


class Split(StrEnum):
    """A split pattern by name; ``none`` takes the whole text as one piece (the classroom BPE)."""

    GPT2 = "gpt2"
    CL100K = "cl100k"
    NONE = "none"

    @property
    def number(self) -> int:
        """What compiled code calls it."""
        return list(Split).index(self)

    @property
    def pattern(self) -> str:
        """The regular expression, in the syntax of the ``regex`` package.

        Source: tiktoken 0.14, tiktoken_ext/openai_public.py (r50k_base and gpt2; cl100k_base).  The GPT-2 one takes
        the same pieces as that of the first release.  The cl100k one differs from its first edition in one place:
        white space at the very end of a text is one piece.
        """
        return _PATTERNS[self]


_PATTERNS = {
    Split.GPT2: r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    Split.CL100K: (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
    ),
    Split.NONE: r"(?s:.+)",
}


def split_named(name: str) -> Split:
    """Return the pattern called *name*; UsageError with the nearest name if there is none."""
    known = [str(each) for each in Split]
    if name not in known:
        raise UsageError(f"unknown split pattern {name!r}{nearest(name, known)} (known: {', '.join(known)})")
    return Split(name)


@cache
def classes() -> Bytes:
    r"""Return the class of every code point, as the ``regex`` package knows \p{L}, \p{N} and \s."""
    import regex  # noqa: PLC0415  a package of the labs

    everything = "".join(map(chr, range(_LARGEST + 1)))
    found = np.full(_LARGEST + 1, OTHER, dtype=np.uint8)
    for kind, expression in ((LETTER, r"\p{L}+"), (NUMBER, r"\p{N}+"), (SPACE, r"\s+")):
        for match in regex.finditer(expression, everything):
            found[match.start() : match.end()] = kind
    return found
