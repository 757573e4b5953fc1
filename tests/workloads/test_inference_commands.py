"""``python -m workloads.inference``: what it prints, and how it refuses."""

import json
from pathlib import Path

import pytest
import torch

from workloads.gpt.generate import train
from workloads.inference import bench, quality
from workloads.inference.__main__ import main
from workloads.inference.operator import kernels_on


def test_generate(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "train", lambda model, text, _: train(model, text, 3))
    assert main(["generate", "Prefill ", "x" * 300, "--tokens", "5", "--quant", "w4", "--temperature", "0.8"]) == 0
    trained, first, second, last = capsys.readouterr().out.splitlines()
    assert trained.startswith("trained tiny-llama on 175 bytes in ")
    assert first.startswith("'Prefill ' -> ")
    assert second == f"{'x' * 40!r}: rejected, its prompt is longer than the context (300 bytes, 256)"
    assert last.startswith("5 tokens in 5 steps and ")
    assert last.endswith("weights w4; 0 positions from the prefix cache, 1 rejected")


def test_bench_on_a_small_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "trained", lambda: quality.trained(1))  # how good it is has a test of its own
    monkeypatch.setattr(bench, "_STEPS", 1)
    monkeypatch.setattr(bench, "_ROUNDS", 1)
    said: list[str] = []
    work = bench.Work("tiny", 3, 4, 3, (1, 2), 16)
    facts = bench.measure(quality.trained(1), work, said.append)
    assert facts["batching"]["same_tokens"] == 3
    assert facts["batching"]["batched"] > 0
    assert [row["weights"] for row in facts["decode"]] == ["fp32", "bf16", "w8", "w4"]
    sizes = {row["weights"]: row["weights_bytes"] for row in facts["decode"]}
    assert sizes["fp32"] == 2 * sizes["bf16"] > sizes["w8"] > sizes["w4"]
    path = bench.write(facts, tmp_path)
    assert json.loads(path.read_text())["provenance"]["work"]["requests"] == 3
    assert str(Path.home()) not in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "--quant", "w44"], "unknown quantisation 'w44'; did you mean 'w4'? (known: none, w8, w4)"),
        (["generate", "--temperature", "-1"], "temperature -1: needs 0 or more"),
        (["generate", "--tokens", "0"], "--tokens 0: needs 1 or more"),
        (["generate", ""], "a prompt is empty; needs one character or more"),
        (["generate", "--device", "tpu"], "--device tpu: this machine has cpu"),
        (["bench", "--device", "cuda"],
         "bench: --device cuda; it measures the CPU ('device-run' measures a CUDA device)"),
        (["bench", "--model", "gpt3"],
         "unknown model 'gpt3'; did you mean 'gpt2'? (known: gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-1b, "
         "llama-3b, llama-8b, llama-70b, qwen3-0.6b)"),
        (["bench", "--requests", "0"], "--requests 0: needs 1 or more"),
        (["device-run", "--out", "out"],
         "device-run needs a CUDA device; this machine has none ('bench' measures its CPU)"),
        (["device-run", "--dry", "--out", "out"],
         "device-run --dry needs Triton's interpreter: set TRITON_INTERPRET=1"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    kernels_on.cache_clear()
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"{message}\n"
