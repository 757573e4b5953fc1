"""The Triton kernels of the engine in Triton's interpreter, in a process of its own, and how a tile is chosen."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_kernels_in_the_interpreter() -> None:
    if sys.platform != "linux":
        pytest.skip("Triton exists for Linux only")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "tests/workloads/inference_interpreted.py"],
        cwd=ROOT, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "28 passed" in done.stdout
