"""Encoding against independent implementations: tiktoken and Hugging Face tokenizers built from our own vocabulary."""

import random
import unicodedata
from functools import cache

import pytest
import regex

from workloads.tokenizer.corpus import python_corpus
from workloads.tokenizer.interop import to_huggingface, to_tiktoken
from workloads.tokenizer.patterns import Split
from workloads.tokenizer.tokenizer import Tokenizer
from workloads.tokenizer.train import train
from workloads.tokenizer.vocabulary import Vocabulary

SPLITS = [Split.GPT2, Split.CL100K]
CORPUS_BYTES = 400_000
SNIPPETS = [
    "a", "b", "e", "word", " the", " The", "re", "def ", "self", "'s", "'S", "'\u017f", "'ll", "'LL", "'Ve", "'d", "'",
    "''", " ", "  ", "    ", "\n", "\n\n", "\r\n", "\r", "\t", "\t\t", "\v", "\f", "\u00a0", "\u2003", "\u2028",
    "\u3000", "\x85", "\x00", "\x1b", "\x1c", "\x7f", "\u200b", "\ufeff", "1", "22", "345", "6789012", "½", "٣", "Ⅷ",
    "é", "e\u0301", "ß", "ﬁ", "İ", "\u017f", "ǅ", "中文", "日本語", "한국어", "हिन्दी", "ไทย", "עברית", "🙂", "👩‍👩‍👧",
    "🇩🇪", "👍🏽", "\U0001d518", "!", "...", "==", "_", "-->", "()", "#", "€", "<|endoftext|>", "word" * 12,
    "\ue000", "\ud800", "\udc80\ud83d",
]  # fmt: skip


@cache
def vocabulary(split: Split) -> Vocabulary:
    return train(python_corpus(CORPUS_BYTES).training, 3000, split, special=["<|endoftext|>"])


@cache
def tokenizer(split: Split) -> Tokenizer:
    return Tokenizer(vocabulary(split))


def character(source: random.Random) -> str:
    """A character that every Unicode version of the last years knows alike."""
    while True:
        found = chr(source.choice([source.randrange(0x250), source.randrange(0x3000), source.randrange(0x20000)]))
        if unicodedata.category(found) not in ("Cn", "Cs"):
            return found


def text(source: random.Random) -> str:
    pieces = (
        source.choice(SNIPPETS) if source.random() < 0.8 else character(source) for _ in range(source.randrange(30))
    )
    return "".join(pieces)


@pytest.mark.parametrize("split", SPLITS)
def test_ten_thousand_texts_as_tiktoken(split: Split) -> None:
    ours, theirs, source = tokenizer(split), to_tiktoken(vocabulary(split)), random.Random(6)
    for _ in range(10_000):
        sample = text(source)
        assert ours.encode(sample, "none") == theirs.encode_ordinary(sample), sample
        assert ours.encode(sample, "all") == theirs.encode(sample, allowed_special="all"), sample


@pytest.mark.parametrize("split", SPLITS)
def test_ten_thousand_texts_as_hugging_face(split: Split) -> None:
    ours, theirs, source = tokenizer(split), to_huggingface(vocabulary(split)), random.Random(7)
    for _ in range(10_000):
        sample = text(source).encode(errors="replace").decode()  # theirs refuses lone surrogates
        assert ours.encode(sample, "none") == theirs.encode(sample).ids, sample


@pytest.mark.parametrize("split", SPLITS)
def test_bytes_that_are_no_utf8_are_kept(split: Split) -> None:
    # The pattern sees a stray byte as a character of no class; Python's name for that reading is surrogateescape.
    # What tiktoken makes of each piece, its bytes alone, is the answer.
    ours, theirs, source = tokenizer(split), to_tiktoken(vocabulary(split)), random.Random(8)
    cut = regex.compile(split.pattern)
    for _ in range(10_000):
        data = bytearray(b"a" + text(source).encode(errors="replace") + source.randbytes(source.randrange(8)))
        for _ in range(source.randrange(4)):
            data[source.randrange(len(data))] = source.randrange(256)
        pieces = cut.findall(bytes(data).decode(errors="surrogateescape"))
        wanted = [id for piece in pieces for id in theirs._encode_single_piece(piece.encode(errors="surrogateescape"))]
        ids = ours.encode(bytes(data), "none")
        assert ids == wanted, bytes(data)
        assert ours.decode_bytes(ids) == data


@pytest.mark.parametrize("split", SPLITS)
def test_a_stream_in_any_blocks_is_the_text_at_once(split: Split) -> None:
    ours, source = tokenizer(split), random.Random(9)
    for _ in range(3000):
        data = b"".join(text(source).encode(errors="replace") for _ in range(3))
        cuts = sorted(source.randrange(len(data) + 1) for _ in range(source.randrange(8)))
        blocks = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        for allowed in ("all", "none"):
            assert list(ours.encode_stream(blocks, allowed)) == ours.encode(data, allowed), blocks


@pytest.mark.parametrize("split", SPLITS)
def test_very_long_words(split: Split) -> None:
    # 97 bytes and more are merged with a heap, fewer by looking at all pairs: both sides of the limit.
    ours, theirs, source = tokenizer(split), to_tiktoken(vocabulary(split)), random.Random(10)
    words = ["a" * 20_000, "ab" * 5000, " " * 5000 + "x", "é" * 700, "=" * 1000, "self" * 24 + "s", "self" * 24]
    words += [
        "".join(source.choice("estr ing"[: source.randrange(2, 8)]) for _ in range(size)) for size in range(60, 400)
    ]
    for word in words:
        assert ours.encode(word) == theirs.encode(word)


@pytest.mark.parametrize("split", SPLITS)
def test_every_token_of_text_is_itself(split: Split) -> None:
    ours, theirs = tokenizer(split), to_tiktoken(vocabulary(split))
    for token in vocabulary(split).tokens:
        assert ours.encode(token) == theirs._encode_single_piece(token)
