"""``python -m workloads.tokenizer`` as its user types it."""

import io
import json
import sys
from pathlib import Path

import pytest

from workloads.tokenizer.__main__ import main


@pytest.fixture
def trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    text, out = tmp_path / "a.txt", tmp_path / "a.json"
    text.write_text("low low lower lowest newest widest")
    assert main(["train", str(text), "-o", str(out), "--vocab", "262", "--special", "<|end|>", "--workers", "1"]) == 0
    assert capsys.readouterr().out.startswith("262 tokens from 0.0 MB in ")
    return out


def test_there_and_back(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "b.txt"
    text.write_text("lowest<|end|> é")
    assert main(["encode", str(trained), str(text), "--special", "all"]) == 0
    ids = capsys.readouterr().out
    (tmp_path / "ids").write_text(ids)
    assert "261" in ids.split()
    assert main(["decode", str(trained), str(tmp_path / "ids")]) == 0
    assert capsys.readouterr().out == "lowest<|end|> é"


def test_standard_input(trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ab")))
    assert main(["encode", str(trained)]) == 0
    assert capsys.readouterr().out == "97 98\n"


def test_what_the_text_supports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("abab")
    assert main(["train", str(tmp_path / "a.txt"), "-o", str(tmp_path / "a.json"), "--vocab", "300"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "the text supports no more: no pair occurs twice any longer (300 were asked for)"
    )


def test_sweep_writes_its_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.json"
    assert main(["sweep", "--chip", "apple-m4", "--model", "gpt2", "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "gpt2 on apple-m4, decode, batch 1, 2,000 characters, bf16" in printed
    assert " best" in printed
    body = json.loads(out.read_text())
    assert len(body["chips"]["apple-m4"]) >= 10
    assert body["curve"]["largest"] > 20_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train missing.txt -o a.json", "cannot read missing.txt: No such file or directory"),
        ("train -o no/a.json", "cannot write no/a.json: there is no folder no"),
        ("train -o a.json --vocab 100 empty.txt",
         "a vocabulary of 100 tokens: needs at least 256, one for each byte"),
        ("train -o a.json empty.txt", "the corpus is empty: nothing to learn from"),
        ("encode missing.json empty.txt", "cannot read missing.json: No such file or directory"),
        ("encode a.bpe missing.txt", "cannot read missing.txt: No such file or directory"),
        ("encode a.bpe empty.txt --special <|x|>",
         "unknown special token '<|x|>'; did you mean '<|endoftext|>'? (known: <|endoftext|>)"),
        ("decode a.bpe words.txt", "token 2 is no id: 'x'"),
        ("decode a.bpe large.txt", "token id 999 is not in the vocabulary (0 to 256)"),
        ("sweep --phase dekode", "unknown phase 'dekode'; did you mean 'decode'? (known: decode, prefill, train)"),
        ("sweep --model gpt2 --characters 0", "characters is 0, needs at least 1"),
        ("bench --split gpt3", "unknown split pattern 'gpt3'; did you mean 'gpt2'? (known: gpt2, cl100k, none)"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.bpe").write_text("#version: 0.2\n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "words.txt").write_text("1 x")
    (tmp_path / "large.txt").write_text("999")
    assert main(arguments.split()) == 2
    assert capsys.readouterr().err == f"{message}\n"
