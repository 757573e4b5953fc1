"""The Triton kernels in Triton's interpreter, and the command that checks the operator, each in its own process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from workloads.flash_attention.__main__ import main

ROOT = Path(__file__).parents[2]


def run(*command: str, interpret: bool) -> "subprocess.CompletedProcess[str]":
    """Run Python in the repository with or without Triton's interpreter."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_INTERPRET": "1"} if interpret else {}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_kernels_in_the_interpreter() -> None:
    if sys.platform != "linux":
        pytest.skip("Triton exists for Linux only")
    done = run("-m", "pytest", "-q", "-p", "no:xdist", "tests/workloads/flash_interpreted.py", interpret=True)
    assert done.returncode == 0, done.stdout
    assert "12 passed" in done.stdout


def test_the_check_runs_the_kernels_if_they_can_be_interpreted() -> None:
    if sys.platform != "linux":
        pytest.skip("Triton exists for Linux only")
    done = run("-m", "workloads.flash_attention", "check", interpret=True)
    first, *lines = done.stdout.splitlines()
    assert (done.returncode, first) == (0, "Triton kernels on the CPU, interpreted")
    assert [line.split()[0] for line in lines] == ["ok"] * 4


def test_a_machine_without_a_gpu_checks_the_reference_and_measures_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["check"]) == 0
    assert capsys.readouterr().out.startswith("reference in torch: ")
    assert main(["device-run", "--out", "out"]) == 2
    assert capsys.readouterr().err == (
        "device-run needs a CUDA device; this machine has none ('check' runs the reference instead)\n"
    )
