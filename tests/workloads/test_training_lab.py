"""``xpusim lab 4`` as a user types it, with less training than it gives itself."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulator.cli.main import main
from tests.workloads.training_runs import one_thread
from workloads.training import lab


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(lab, "BUDGET", 1.0)
    with one_thread():
        yield


@pytest.mark.parametrize("chip", ["h200", "edge-npu"])
def test_lab_4(chip: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lab.json"
    assert main(["lab", "4", "--chip", chip, "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert (found["lab"], found["chip"]) == ("4", chip)
    here, runs = found["data"]["here"], found["data"]["runs"]
    assert here["validation_loss_after"] < here["validation_loss_before"] < 7  # ln 320 is 5.8
    assert "PSF License Agreement" in here["text"]
    assert list(runs) == ["tiny, 8 rows", "base, 32 rows", "base, 32 rows, checkpointing", "gpt2, 16 rows"]
    large, lean = runs["base, 32 rows"], runs["base, 32 rows, checkpointing"]
    assert lean["memory"]["peak_bytes"] < large["memory"]["peak_bytes"] / 2
    assert lean["step_seconds"] > large["step_seconds"]
    # 86.1 M parameters in fp32, two states each
    assert large["memory"]["at_peak"]["parameters"] == 4 * 86_088_192
    assert large["memory"]["at_peak"]["optimizer"] == 8 * 86_088_192
    assert found["bound"] == large["bound"]
    assert runs["gpt2, 16 rows"]["fits"] == (chip == "h200")  # 17 GB, and the NPU has 16
    shown = capsys.readouterr().out
    assert f"lab 4 on {chip}: how long does a training step take, and who holds the memory?" in shown
    assert "Who holds the memory at the peak of a step" in shown
    assert f"{found['bound']} bound. Training asks a SoC for capacity" in shown


def test_as_many_steps_as_fit() -> None:
    trained = lab.train_here(budget=0.0)
    assert trained.run.steps == 8  # the fewest
    assert trained.after < trained.before
