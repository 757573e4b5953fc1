"""Vocabularies on disk: written and read, published formats, and what is said of a file that is broken."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simulator.errors import OutputError, SpecError, UsageError
from workloads.tokenizer.__main__ import main
from workloads.tokenizer.files import load, save
from workloads.tokenizer.interop import to_tiktoken
from workloads.tokenizer.patterns import Split
from workloads.tokenizer.tokenizer import Tokenizer
from workloads.tokenizer.train import train
from workloads.tokenizer.vocabulary import Vocabulary, gpt2_byte_order

TEXT = "low low lower lowest newest widest"
TRAINED = train([TEXT], 270, Split.CL100K, special=["<|end|>"])


def ranks(path: Path, tokens: tuple[bytes, ...]) -> Path:
    path.write_text("".join(f"{base64.b64encode(token).decode()} {id}\n" for id, token in enumerate(tokens)))
    return path


@pytest.mark.parametrize("found", [TRAINED, train([TEXT], 270, bytes_in_order=gpt2_byte_order())])
def test_what_is_written_is_read(found: Vocabulary, tmp_path: Path) -> None:
    save(found, tmp_path / "a.json")
    assert load(tmp_path / "a.json") == found


def test_tiktoken_ranks(tmp_path: Path) -> None:
    found = load(ranks(tmp_path / "a.tiktoken", TRAINED.tokens))
    assert (found.tokens, found.split, found.special) == (TRAINED.tokens, Split.CL100K, {})
    assert Tokenizer(found).encode(TEXT) == to_tiktoken(found).encode(TEXT) == Tokenizer(TRAINED).encode(TEXT)
    save(found, tmp_path / "b.json")
    assert load(tmp_path / "b.json") == found


def test_gpt2_merges(tmp_path: Path) -> None:
    # Id 0 is "!", 33 + 188 - 1 = 220 is the blank, the first merge is 256, and <|endoftext|> follows the last.
    path = tmp_path / "vocab.bpe"
    path.write_text("#version: 0.2\nĠ t\nĠt h\n", encoding="utf-8")
    found = load(path)
    assert (found.tokens[0], found.tokens[220], found.tokens[256:]) == (b"!", b" ", (b" t", b" th"))
    assert Tokenizer(found).encode("! the<|endoftext|>", "all") == [0, 257, 68, 258]


def broken(**changes: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        save(TRAINED, path)
        body = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({key: value for key, value in body.items() if value is not None}))

    return write


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: path.write_text('{"format":\n "xpus'), "line 2: not JSON: Unterminated string starting at"),
        (lambda path: path.write_bytes(b'{"\xff"}'), "not UTF-8 at byte 2"),
        (lambda path: path.write_text("[1]"),
         "format: expected 'xpusim-tokenizer'; this is no tokenizer that `train` has written"),
        (broken(format="bpe"), "format: expected 'xpusim-tokenizer'; this is no tokenizer that `train` has written"),
        (broken(version=2), "version: 2, but only 1 can be read"),
        (broken(split="gpt5"), "split: unknown pattern 'gpt5' (known: gpt2, cl100k, none)"),
        (broken(split=None), "split: missing"),
        (broken(merges=None), "merges: missing"),
        (broken(merges="x"), "merges: must be a list"),
        (broken(merges=[[97, 98], [1, "a"]]), 'merges[1]: must be two token ids, got [1, "a"]'),
        (broken(merges=[[97, 98], [257, 1]]),
         "merges: merge 1 joins 257 and 1, but there are only 257 tokens yet"),
        (broken(bytes=[1, 2]), "bytes: must be the numbers 0 to 255, each once"),
        (broken(special={"<|x|>": 7}),
         'special: "<|x|>" has id 7; needs a text and an id of its own, 261 or more'),
        (broken(special={"<|x|>": 1000000000000}),
         'special: "<|x|>" has id 1000000000000; ids are int32, at most 2147483647'),
        (broken(special={"<|\ud800|>": 300}),
         'special: "<|\\ud800|>" holds a lone surrogate, which no text in UTF-8 can'),
        (lambda path: path.write_text("[" * 100_000), "brackets are nested too deeply"),
        (lambda path: path.write_text("9" * 5000), "a number has too many digits"),
        (broken(merges=[[97, 98], [98, 99], [97, 98]]), "merges: merge 2 joins 97 and 98, as merge 0 does already"),
        (broken(ranks=["?"]), "ranks[0]: not base64"),
        (broken(ranks=["é="]), "ranks[0]: not base64"),
        (broken(ranks=["AA==", "AA=="]), "a token stands twice"),
        (broken(ranks=["AA=="]), "no token for the byte 0x01"),
    ],
)  # fmt: skip
def test_a_broken_file(write: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write(path)
    with pytest.raises(SpecError) as caught:
        load(path)
    assert str(caught.value) == f"{path}: {message}"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.bpe", "", "line 1: expected '#version: 0.2'"),
        ("a.bpe", "#version: 0.2\nĠ t\nĠ\n", "line 3: expected two tokens, got 'Ġ'"),
        ("a.bpe", "#version: 0.2\nĠ 中\n", "line 2: expected two tokens, got 'Ġ 中'"),
        ("a.bpe", "#version: 0.2\nĠt h\n", "line 2: merges a token that no line before has made"),
        ("a.bpe", "#version: 0.2\nĠ t\nĠ a\nĠ t\n", "line 4: the merge 'Ġ t' stands in line 2 already"),
        ("a.tiktoken", "é= 0\n", "line 1: not base64: 'é='"),
        ("a.tiktoken", "AA== 0\n!!== 1\n", "line 2: not base64: '!!=='"),
        ("a.tiktoken", "AA== 0\nAQ== 2\n", "line 2: expected rank 1, got '2'"),
        ("a.tiktoken", "", "no token for the byte 0x00"),
        ("a.txt", "", "not a vocabulary by its name (expected .json, .bpe, .tiktoken)"),
    ],
)
def test_a_broken_published_file(name: str, text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load(path)
    assert str(caught.value) == f"{path}: {message}"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        load(tmp_path / "a.json")
    assert str(caught.value) == f"cannot read {tmp_path / 'a.json'}: No such file or directory"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OutputError) as caught:
        save(TRAINED, tmp_path / "no" / "a.json")
    assert str(caught.value) == f"cannot write {tmp_path / 'no' / 'a.json'}: No such file or directory"


def test_the_largest_id(tmp_path: Path) -> None:
    broken(special={"<|x|>": 2**31 - 1})(tmp_path / "a.json")
    tokenizer = Tokenizer(load(tmp_path / "a.json"))
    assert tokenizer.encode("<|x|>", "all") == [2147483647]
    assert tokenizer.decode([2147483647]) == "<|x|>"


@pytest.mark.parametrize("name", ["q.txt", "q", "q.bpe", "q.tiktoken"])
def test_a_name_that_load_refuses_is_said_before_training(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    message = f"cannot write a vocabulary to {name}: only to a name that ends in .json"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("workloads.tokenizer.train.train", lambda *_: pytest.fail("trained"))
    assert main(["train", "missing.txt", "-o", name]) == 2
    assert capsys.readouterr().err == f"{message}\n"
    with pytest.raises(UsageError) as caught:
        save(TRAINED, name)
    assert str(caught.value) == message
    assert list(tmp_path.iterdir()) == []


def test_a_bad_vocabulary_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.tiktoken"
    path.write_text("é= 0\n", encoding="utf-8")
    assert main(["encode", str(path), str(path)]) == 2
    assert capsys.readouterr().err == f"{path}: line 1: not base64: 'é='\n"


def test_an_id_of_5000_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(TRAINED, tmp_path / "a.json")
    (tmp_path / "ids").write_text("1 " + "9" * 5000)
    assert main(["decode", str(tmp_path / "a.json"), str(tmp_path / "ids")]) == 2
    assert capsys.readouterr().err == "token 2 is no id: a number of 5,000 digits\n"
