"""The tokenizer itself: special tokens, decoding, streams, and what it refuses."""

import tracemalloc
from pathlib import Path

import pytest

from simulator.errors import SpecError, UsageError
from workloads.tokenizer.corpus import python_corpus
from workloads.tokenizer.patterns import Split, split_named
from workloads.tokenizer.tokenizer import Allowed, Tokenizer
from workloads.tokenizer.train import train

SMALL = Tokenizer(train(["low low lower lowest"], 262, special=["<|end|>", "<|end|><|stop|>"]))
END, STOP = SMALL.vocabulary.special.values()


def ids(text: str) -> list[int]:
    return SMALL.encode(text, "none")


@pytest.mark.parametrize(
    ("allowed", "wanted"),
    [
        ("all", [*ids("low"), END, *ids(" low")]),
        ("none", ids("low<|end|> low")),
        ({"<|end|>"}, [*ids("low"), END, *ids(" low")]),
        (["<|end|>", "<|end|><|stop|>"], [*ids("low"), END, *ids(" low")]),
    ],
)
def test_special_tokens(allowed: Allowed, wanted: list[int]) -> None:
    assert SMALL.encode("low<|end|> low", allowed) == wanted
    assert list(SMALL.encode_stream(["low<|e", "nd|> low"], allowed)) == wanted


@pytest.mark.parametrize("allowed", [(), {"<|end|><|stop|>"}])
def test_a_special_token_that_is_not_allowed_raises(allowed: Allowed) -> None:
    message = (
        "the text holds the special token '<|end|>': allow it (allowed={'<|end|>'} or 'all'), "
        "or encode it as ordinary text (allowed='none')"
    )
    with pytest.raises(UsageError) as caught:
        SMALL.encode("low<|end|> low", allowed)
    assert str(caught.value) == message
    with pytest.raises(UsageError) as caught:
        list(SMALL.encode_stream(["low<|e", "nd|> low"], allowed))
    assert str(caught.value) == message


def test_of_special_tokens_that_start_alike_the_longest_is_taken() -> None:
    text = "low<|end|><|stop|><|end|>"
    assert SMALL.encode(text, "all") == [*ids("low"), STOP, END]
    assert list(SMALL.encode_stream([text[:11], text[11:]], "all")) == [*ids("low"), STOP, END]


@pytest.mark.parametrize(
    ("allowed", "message"),
    [
        ({"<|ende|>"}, "unknown special token '<|ende|>'; did you mean '<|end|>'? (known: <|end|>, <|end|><|stop|>)"),
        ("<|end|>", "allowed special tokens: give 'all', 'none' or a set, not the text '<|end|>'"),
    ],
)
def test_special_tokens_that_there_are_not(allowed: Allowed, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        SMALL.encode("low", allowed)
    assert str(caught.value) == message


def test_decoding_gives_back_the_bytes() -> None:
    data = bytes(range(256)) + "low é 🙂".encode()
    assert SMALL.decode_bytes(SMALL.encode(data)) == data
    assert SMALL.decode(SMALL.encode("low<|end|>é", "all")) == "low<|end|>é"


def test_bytes_that_are_no_character() -> None:
    half = SMALL.encode("é".encode()[:1] + b"!")
    assert SMALL.decode(half) == "\ufffd!"
    assert SMALL.decode(half, "ignore") == "!"
    for errors, message in (
        ("strict", "the tokens are not UTF-8 at byte 0: invalid continuation byte"),
        ("strickt", "unknown way to treat errors: 'strickt' (known: replace, strict, ignore)"),
    ):
        with pytest.raises(UsageError) as caught:
            SMALL.decode(half, errors)
        assert str(caught.value) == message


@pytest.mark.parametrize("id", [-1, 262, 10**9])
def test_an_id_that_no_token_has(id: int) -> None:
    with pytest.raises(UsageError) as caught:
        SMALL.decode([97, id])
    assert str(caught.value) == f"token id {id} is not in the vocabulary (0 to 261)"


def test_empty_text() -> None:
    assert SMALL.encode("") == []
    assert list(SMALL.encode_stream([])) == []
    assert SMALL.decode([]) == ""


def test_a_file_streams_in_a_megabyte(tmp_path: Path) -> None:
    # 5 MB; at once its tokens alone would take 1.4 million x 36 B = 50 MB.
    corpus = b"".join(python_corpus(500_000).training)
    path = tmp_path / "text"
    path.write_bytes((corpus * 12)[:5_000_000])
    tokenizer = Tokenizer(train([corpus], 2000))
    assert list(tokenizer.encode_stream([corpus])) == tokenizer.encode(corpus)
    tracemalloc.start()
    count = sum(1 for _ in tokenizer.encode_file(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == len(tokenizer.encode_array(path.read_bytes()))
    assert peak <= 1_000_000


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        list(SMALL.encode_file(tmp_path / "none.txt"))
    assert str(caught.value) == f"cannot read {tmp_path / 'none.txt'}: No such file or directory"


def test_a_pattern_that_there_is_not() -> None:
    assert split_named("gpt2") is Split.GPT2
    with pytest.raises(UsageError) as caught:
        split_named("gpt3")
    assert str(caught.value) == "unknown split pattern 'gpt3'; did you mean 'gpt2'? (known: gpt2, cl100k, none)"
