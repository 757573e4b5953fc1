"""Training against a slow reference, against Hugging Face's, and by hand."""

import random
from collections import Counter
from itertools import pairwise

import pytest
import regex
import tokenizers
from tokenizers import models, trainers

from simulator.errors import UsageError
from workloads.tokenizer.corpus import python_corpus
from workloads.tokenizer.interop import huggingface_split
from workloads.tokenizer.patterns import Split
from workloads.tokenizer.tokenizer import Tokenizer
from workloads.tokenizer.train import train
from workloads.tokenizer.vocabulary import gpt2_byte_order, gpt2_characters

SPLITS = list(Split)


def slowly(text: str, split: Split, merges: int, least: int = 2) -> list[tuple[int, int]]:
    """Count all pairs anew before every merge."""
    counted = Counter(regex.findall(split.pattern, text))
    words = {word: list(word.encode()) for word in counted}
    found: list[tuple[int, int]] = []
    while len(found) < merges:
        pairs: Counter[tuple[int, int]] = Counter()
        for word, ids in words.items():
            for pair in pairwise(ids):
                pairs[pair] += counted[word]
        if not pairs or max(pairs.values()) < least:
            break
        chosen = min(pairs, key=lambda pair: (-pairs[pair], pair))
        words = {word: joined(ids, chosen, 256 + len(found)) for word, ids in words.items()}
        found.append(chosen)
    return found


def joined(ids: list[int], pair: tuple[int, int], token: int) -> list[int]:
    out: list[int] = []
    for id in ids:
        if out and (out[-1], id) == pair:
            out[-1] = token
        else:
            out.append(id)
    return out


def pairs(merges: tuple[tuple[int, int, int], ...]) -> list[tuple[int, int]]:
    return [(left, right) for left, right, _ in merges]


def test_the_example_of_every_textbook() -> None:
    # aaabdaaabac: aa occurs 4 times (twice in each aaa), then XabdXabac: ab 2, a tie of (a, b) and (X, a), then (X, Y).
    # Of equal counts the smallest ids go first: (97, 98) before (256, 97).
    found = train(["aaabdaaabac"], 259, Split.NONE)
    assert pairs(found.merges) == [(97, 97), (97, 98), (256, 257)]
    assert found.tokens[256:] == (b"aa", b"ab", b"aaab")
    assert Tokenizer(found).encode("aaabdaaabac") == [258, 100, 258, 97, 99]


@pytest.mark.parametrize("split", SPLITS)
def test_the_same_merges_as_counting_anew(split: Split) -> None:
    text = b"".join(python_corpus(100_000).training)[-8000:].decode()
    assert pairs(train([text], 256 + 150, split).merges) == slowly(text, split, 150)


@pytest.mark.parametrize("seed", range(20))
def test_the_same_on_runs_of_few_letters(seed: int) -> None:
    source = random.Random(seed)
    text = "".join(source.choice("aaab ") for _ in range(300))
    for split in SPLITS:
        assert pairs(train([text], 10_000, split).merges) == slowly(text, split, 10_000)
        assert pairs(train([text], 10_000, split, least=1).merges) == slowly(text, split, 10_000, least=1)


@pytest.mark.parametrize("split", [Split.GPT2, Split.CL100K])
def test_the_same_vocabulary_as_hugging_face(split: Split) -> None:
    documents = [document.decode() for document in python_corpus(300_000).training]
    ours = train(documents, 4000, split, bytes_in_order=gpt2_byte_order())
    theirs = tokenizers.Tokenizer(models.BPE())
    theirs.pre_tokenizer = huggingface_split(split)
    alphabet = list(gpt2_characters())
    theirs.train_from_iterator(
        documents, trainers.BpeTrainer(vocab_size=4000, initial_alphabet=alphabet, show_progress=False)
    )
    byte_of = gpt2_characters()
    tokens = {id: bytes(byte_of[char] for char in text) for text, id in theirs.get_vocab().items()}
    assert [tokens[id] for id in range(4000)] == list(ours.tokens)


@pytest.mark.parametrize("split", SPLITS)
def test_workers_change_nothing(split: Split) -> None:
    documents = [b"".join(python_corpus(3_000_000).training)[:2_500_000], b"one more, and one more"]
    if split is Split.NONE:
        documents = [documents[0][:30_000]]
    one = train(documents, 600, split)
    assert train(documents, 600, split, workers=3) == one


def test_processes_change_nothing() -> None:
    documents = [b"to be or not to be", b"that is the question"]
    assert train(documents, 280, workers=2, pool="processes") == train(documents, 280)


def test_vocabularies_are_nested() -> None:
    documents = python_corpus(100_000).training
    large = train(documents, 900)
    assert large.cut(400) == train(documents, 400)
    assert large.cut(256).merges == ()


def test_special_tokens_cut_the_corpus_and_come_last() -> None:
    found = train(["ab<|x|>ab<|x|>ab"], 258, special=["<|x|>"])
    assert found.tokens[256:] == (b"ab",)
    assert found.special == {"<|x|>": 257}
    assert len(found) == 258


def test_it_stops_where_the_text_supports_no_more() -> None:
    assert train(["abab"], 1000).tokens[256:] == (b"ab",)
    assert train(["abab"], 1000, least=1).tokens[256:] == (b"ab", b"abab")


@pytest.mark.parametrize(
    ("documents", "options", "message"),
    [
        ([], {}, "the corpus is empty: nothing to learn from"),
        (["", b""], {}, "the corpus is empty: nothing to learn from"),
        (["<|x|>"], {"special": ["<|x|>"]}, "the corpus is empty: nothing to learn from"),
        (["a"], {"size": 255}, "a vocabulary of 255 tokens: needs at least 256, one for each byte"),
        (["a"], {"size": 256, "special": ["<|x|>"]},
         "a vocabulary of 256 tokens: needs at least 257, one for each byte and special token"),
        (["a"], {"special": ["<|x|>", "<|x|>"]}, "special token '<|x|>' is given twice"),
        (["a"], {"special": [""]}, "a special token is empty"),
        (["a"], {"workers": 0}, "0 workers: needs at least 1"),
        (["a"], {"pool": "thread"}, "unknown pool 'thread'; did you mean 'threads'? (known: threads, processes)"),
    ],
)  # fmt: skip
def test_what_cannot_be_learned(documents: list[str | bytes], options: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"size": 300} | options
    with pytest.raises(UsageError) as caught:
        train(documents, **arguments)  # type: ignore[arg-type]
    assert str(caught.value) == message
