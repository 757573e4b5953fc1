"""Trains a vocabulary: counts the words of a corpus, then merges the most frequent pair until there are enough."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from simulator.errors import UsageError
from workloads.tokenizer.learn import Text, learn, pairs_for
from workloads.tokenizer.patterns import Split
from workloads.tokenizer.vocabulary import BYTES, Vocabulary, check_size, from_merges
from workloads.tokenizer.words import count_all


def train(
    documents: Iterable[str | bytes],
    size: int,
    split: Split = Split.GPT2,
    special: Sequence[str] = (),
    workers: int = 1,
    pool: str = "threads",
    least: int = 2,
    bytes_in_order: Sequence[int] = range(BYTES),
) -> Vocabulary:
    """Return a vocabulary of *size* tokens, bytes and special ones included, learned from *documents*.

    special         texts that become one token each, the last ids; the corpus is cut at them.
    workers, pool   see `count_all`; the result does not depend on them.
    least           times that a pair must occur to be merged.  If no pair does any more, the vocabulary stays smaller.
    bytes_in_order  the byte of each id from 0 to 255.

    The most frequent pair is merged first; of equal ones that of the smallest ids, left before right.  HF tokenizers
    do the same; minbpe takes the one that it met first, which depends on the order of the text.
    Raises UsageError for an empty corpus, a size below 256, a special token that is empty or stands twice.
    """
    check_size(size, len(special))
    check_special(special)
    words = count_all(_without(special, documents), split, workers, pool)
    return train_on_words(words, size, split, special, least, bytes_in_order)


def train_on_words(
    words: Mapping[bytes, int], size: int, split: Split, special: Sequence[str] = (), least: int = 2,
    bytes_in_order: Sequence[int] = range(BYTES),
) -> Vocabulary:  # fmt: skip
    """Return what `train` does, from counted words."""
    if not words:
        raise UsageError("the corpus is empty: nothing to learn from")
    text = _text(words, bytes_in_order)
    room = min(size - BYTES - len(special), text.symbols.size)
    keys = learn(text, pairs_for(text.symbols.size), BYTES, room, max(1, least))
    pairs = [(key >> 32, key & 0xFFFFFFFF) for key in keys.tolist()]
    ids = {token: BYTES + len(pairs) + i for i, token in enumerate(special)}
    return from_merges(split, pairs, ids, bytes_in_order)


def check_special(special: Sequence[str]) -> None:
    """Raise UsageError unless each special token is a text of its own."""
    for token in special:
        if not token:
            raise UsageError("a special token is empty")
        if list(special).count(token) > 1:
            raise UsageError(f"special token {token!r} is given twice")


def _without(special: Sequence[str], documents: Iterable[str | bytes]) -> Iterable[bytes]:
    """Cut every document at the special tokens, and drop them."""
    longest_first = sorted((token.encode() for token in special), key=len, reverse=True)
    cut = re.compile(b"|".join(map(re.escape, longest_first))) if special else None
    for document in documents:
        data = document.encode(errors="replace") if isinstance(document, str) else document
        yield from (part for part in (cut.split(data) if cut else [data]) if part)


def _text(words: Mapping[bytes, int], bytes_in_order: Sequence[int]) -> Text:
    """Lay the words behind each other, sorted, so that equal corpora give equal memory traffic too."""
    listed = sorted(words)
    ids = np.zeros(BYTES, dtype=np.int32)
    ids[list(bytes_in_order)] = np.arange(BYTES)
    symbols = ids[np.frombuffer(b"".join(listed), dtype=np.uint8)]
    sizes = np.array([len(word) for word in listed])
    stops = np.cumsum(sizes)
    left, right = np.arange(-1, symbols.size - 1, dtype=np.int32), np.arange(1, symbols.size + 1, dtype=np.int32)
    left[stops - sizes] = -1
    right[stops - 1] = -1
    weight = np.repeat(np.array([words[word] for word in listed], dtype=np.int64), sizes)
    return Text(symbols, left, right, weight)
