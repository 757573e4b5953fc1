"""Text, rows, conversations, learning rate, options: what a run is made of before anything is trained."""

import argparse
from pathlib import Path

import numpy as np
import pytest

from simulator.errors import UsageError
from workloads.training.__main__ import main
from workloads.training.arguments import add_run, run_of
from workloads.training.chat import Turn, library_chats, packed_chats, rendered
from workloads.training.config import Run, checked, model_config
from workloads.training.corpus import load_corpus
from workloads.training.packing import IGNORED, Order, packed
from workloads.training.schedule import learning_rate
from workloads.training.tokens import ASSISTANT, END, SEPARATOR, USER, decode, encode

A, B, C, D = (ord(letter) for letter in "abcd")


def test_rows_are_cut_from_one_stream() -> None:
    # eight tokens, rows of three: 0 1 2 | 3 4 5, each target the next token; 7 would need a third row
    rows = packed(np.arange(8, dtype=np.uint16), 3)
    assert rows.inputs.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert rows.targets.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_too_little_text_for_a_row() -> None:
    with pytest.raises(UsageError, match=r"^too little text: 3 tokens, one row of --seq 3 needs 4$"):
        packed(np.arange(3, dtype=np.uint16), 3)


def test_loss_is_taken_on_the_answer_and_its_end_alone() -> None:
    # tokens   U a A b E | U c A d E      rows of nine positions take both conversations: ten tokens
    # inputs   U a A b E   U c A d        targets, where the next token is the answer's or its end
    # targets  . . b E .   . . d E
    rows, too_long = packed_chats([[Turn("a", "b")], [Turn("c", "d")]], 9)
    assert rows.inputs.tolist() == [[USER, A, ASSISTANT, B, END, USER, C, ASSISTANT, D]]
    no = IGNORED
    assert rows.targets.tolist() == [[no, no, B, END, no, no, no, D, END]]
    assert too_long == 0


def test_a_conversation_is_never_cut() -> None:
    # rows of five positions hold one conversation of five tokens; the sixth token is filled with an end, without loss
    rows, too_long = packed_chats([[Turn("a", "b")], [Turn("c", "d")], [Turn("a", "bcd")]], 5)
    assert rows.inputs.tolist() == [[USER, A, ASSISTANT, B, END], [USER, C, ASSISTANT, D, END]]
    assert rows.targets[0].tolist() == [IGNORED, IGNORED, B, END, IGNORED]
    assert too_long == 1  # seven tokens
    with pytest.raises(UsageError, match=r"^no conversation fits into --seq 3: 1 are longer$"):
        packed_chats([[Turn("a", "b")]], 3)


def test_both_turns_of_a_conversation_carry_loss() -> None:
    _, own = rendered([Turn("a", "b"), Turn("c", "d")])
    assert own == [False, False, False, True, True] * 2


def test_questions_come_from_documented_names(tmp_path: Path) -> None:
    (tmp_path / "bread.py").write_text(
        '"""Baking.\n\nMore."""\ndef knead(x):\n    """Press the dough."""\ndef _hidden():\n    """No."""\n'
        'class Oven:\n    """Hot."""\n    def heat(self):\n        """Make it\n        hot."""\n'
    )
    assert library_chats(tmp_path) == [
        [Turn("What is the module bread for?", "Baking.")],
        [Turn("What does bread.knead do?", "Press the dough.")],
        [Turn("What is bread.Oven?", "Hot.")],
        [Turn("What does bread.Oven.heat do?", "Make it hot.")],
    ]


def test_special_tokens_are_no_text() -> None:
    assert encode("<|end|>") == list(b"<|end|>")
    assert decode([*encode("é"), END, 0xFF]) == "é<|end|>\ufffd"


def test_whole_documents_are_kept_for_validation(tmp_path: Path) -> None:
    for name in range(60):
        (tmp_path / f"{name}.txt").write_text(f"document {name}")
    corpus = load_corpus(str(tmp_path))
    train, held = (bytes(t for t in part.tolist() if t < 256) for part in (corpus.train, corpus.validation))
    assert len(train) + len(held) == sum(len(f"document {name}") for name in range(60))
    assert 1 <= (corpus.validation == SEPARATOR).sum() <= 12  # one of twenty, by a checksum of its name
    assert corpus.source == f"{tmp_path}, 60 documents, licence as its owner says, {len(train) + len(held):,} bytes"


def test_the_text_is_that_of_this_python() -> None:
    corpus = load_corpus("stdlib", 100_000)
    assert len(corpus.train) + len(corpus.validation) > 100_000
    assert "PSF License Agreement, 100,000 bytes" in corpus.source


def test_an_empty_corpus(tmp_path: Path) -> None:
    (tmp_path / "nothing.txt").write_text("")
    with pytest.raises(UsageError, match=f"^empty corpus: {tmp_path} holds no text$"):
        load_corpus(str(tmp_path))
    with pytest.raises(UsageError, match=f"^no text: {tmp_path}/absent does not exist$"):
        load_corpus(str(tmp_path / "absent"))


def test_every_row_is_seen_once_in_each_pass() -> None:
    # six rows, four a step: three steps are two passes
    order = Order(6, 4, seed=3)
    seen = np.concatenate([order.of_step(step) for step in range(3)]).tolist()
    assert sorted(seen[:6]) == sorted(seen[6:]) == list(range(6))
    assert seen[:6] != seen[6:]
    assert Order(6, 4, seed=3).of_step(2).tolist() == seen[8:]  # a step's rows depend on nothing before it
    assert Order(6, 4, seed=4).of_step(0).tolist() != seen[:4]


def test_the_learning_rate_by_hand() -> None:
    run = Run(steps=14, warmup=4, lr=0.8, lr_end=0.25)
    # up in quarters: 0.2 0.4 0.6 0.8; then ten steps of half a cosine from 0.8 to 0.2, whose middle is 0.5
    rates = [learning_rate(run, step) for step in (0, 1, 2, 3, 4, 9, 14)]
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8, 0.5, 0.2])
    assert learning_rate(run, 100) == pytest.approx(0.2)  # past the end it stays
    # a quarter of the way: 0.25 + 0.75 x (1 + cos 45 degrees) / 2
    assert learning_rate(Run(steps=4, warmup=0, lr=1.0, lr_end=0.25), 1) == pytest.approx(0.25 + 0.375 * (1 + 0.5**0.5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stage": "stf"}, "--stage stf: unknown; did you mean 'sft'? (known: pretrain, sft)"),
        ({"precision": "fp16"}, "--precision fp16: unknown; did you mean 'bf16'? (known: fp32, bf16)"),
        ({"device": "gpu"}, "--device gpu: unknown; did you mean 'cpu'? (known: cpu, mps, cuda)"),
        ({"vocab": 255}, "--vocab 255: needs at least 260"),
        ({"batch": 0}, "--batch 0: needs at least 1"),
        ({"lr_end": -0.1}, "--lr-end -0.1: needs at least 0"),
        ({"seq": 257}, "--seq 257: longer than the context of tiny, 256 tokens"),
    ],
)
def test_values_that_make_no_sense(change: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        checked(Run(**change))  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_an_unknown_model() -> None:
    with pytest.raises(UsageError, match=r"^unknown model 'smal'; did you mean 'small'\? \(known: tiny, small, base, "):
        model_config("smal")


def test_every_field_of_a_run_is_an_option() -> None:
    parser = argparse.ArgumentParser()
    add_run(parser)
    found = run_of(parser.parse_args(["--lr", "0.5", "--batch", "3", "--checkpointing", "--data", "x"]))
    assert found == Run(lr=0.5, batch=3, checkpointing=True, data="x")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "many"], "argument --steps: invalid int value: 'many'"),
        (["--stepz", "3"], "unrecognized arguments: --stepz 3"),
    ],
)
def test_options_that_there_are_not(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["train", "--out", str(tmp_path / "run"), *arguments])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
