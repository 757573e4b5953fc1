"""``python -m workloads.gpt``: the table as printed, the text as generated."""

import pytest
import torch

from tests.workloads.gpt_configs import LLAMA, all_logits, make, tokens
from workloads.gpt.__main__ import main
from workloads.gpt.generate import TEXT, generate, tiny, train
from workloads.gpt.model import Model


def test_the_table_prints_every_operator_and_their_sum(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "llama-8b", "--phase", "decode", "--context", "1024"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["head", "1", "525,336,576", "525", "M", "1.05", "GB", "257", "kB", "1.00"] in lines
    assert ["blocks.*.attention", "32", "268", "M", "134", "MB", "262", "kB", "3.98"] in lines
    assert ["all", "8,030,261,248", "7.77", "G", "15.2", "GB", "5.71", "MB", "1.03"] in lines


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table", "gpt3"], "unknown model 'gpt3'; did you mean 'gpt2'? (known: "),
        (["table", "gpt2", "--seq", "2000"], "gpt2 prefill: sequence is 2000, longer than the model's context 1024\n"),
        (["table", "gpt2", "--dtype", "bf17"], "unknown dtype 'bf17'; did you mean 'bf16'? (known: "),
        (["generate", "--tokens", "0"], "--tokens 0: needs 1 to 224 for tiny-llama\n"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    written = capsys.readouterr().err
    assert written.startswith(message)
    assert written.count("\n") == 1


def test_generated_tokens_are_those_of_the_full_forward_pass() -> None:
    model, prompt = make(LLAMA), tokens(LLAMA, batch=2, length=4)
    text = generate(model, prompt, count=6)
    assert text.shape == (2, 10)
    assert torch.equal(text[:, 4:], all_logits(model, text)[:, 3:-1].argmax(-1))


def test_a_few_steps_of_training_lower_the_loss() -> None:
    torch.manual_seed(0)
    loss = train(Model(tiny()), TEXT.encode(), steps=8, length=16, batch=4)
    assert loss < 4.5  # from ln 256 = 5.5


def test_generate_says_how_fast_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--steps", "1", "--tokens", "3"]) == 0
    assert "3 tokens, " in capsys.readouterr().out
