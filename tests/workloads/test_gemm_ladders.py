"""Lab 7: every step of both ladders multiplies correctly, and what cannot be multiplied is refused in words."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import workloads.gemm.check as check_module
from workloads.gemm.check import LIMITS
from workloads.gemm.cpu import CPU_LADDER, cpu_step, measure
from workloads.gemm.cpu import multiply as cpu_multiply
from workloads.gemm.device_run import main as device_run
from workloads.gemm.launch import checked
from workloads.gemm.steps import LADDER, Config, step

ROOT = Path(__file__).parents[2]


def python(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, **environment},
    )  # fmt: skip


def test_every_step_multiplies_any_size(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("Triton exists for Linux only")
    done = python("-m", "workloads.gemm", "check", "--json", str(tmp_path / "check.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "check.json").read_text())
    tried = {(each["step"], each["dtype"]) for each in found if each["error"] is not None}
    assert tried == {(each.name, dtype) for each in LADDER for dtype in LIMITS} | {
        (each.name, dtype) for each in CPU_LADDER for dtype in ("fp32", "fp16")
    }
    assert all(each["error"] < LIMITS[each["dtype"]] for each in found if each["error"] is not None)
    assert {each["step"] for each in found if each["refused"]} == {"descriptor"}


def test_a_split_store_and_tiles_taken_in_turn_are_right() -> None:
    if sys.platform != "linux":
        pytest.skip("Triton exists for Linux only")
    code = (
        "import torch; from workloads.gemm.launch import multiply; from workloads.gemm.steps import Config, step\n"
        "a, b = torch.randn(40, 24), torch.randn(24, 72)\n"
        "for name, split in (('descriptor', True), ('persistent', False)):\n"
        "    cut = Config(16, 32, 16, group=2, split_store=split)\n"
        "    print(bool(torch.allclose(multiply(a, b, step(name), cut), a @ b, atol=1e-4)))"
    )
    done = python("-c", code, TRITON_INTERPRET="1")
    assert done.stdout == "True\nTrue\n", done.stderr


@pytest.mark.parametrize("name", [each.name for each in CPU_LADDER])
def test_x4_any_shape_equals_numpy(name: str) -> None:
    rng = np.random.default_rng(4)
    for m, n, k in ((8, 8, 8), (1, 9, 5), (65, 127, 129), (130, 257, 64)):
        a, b = (rng.standard_normal(shape, np.float32) for shape in ((m, k), (k, n)))
        np.testing.assert_allclose(cpu_multiply(a, b, cpu_step(name)), a @ b, rtol=1e-5, atol=1e-5 * k)


def test_x5_doubles_differ_by_less_than_1e_10() -> None:
    rng = np.random.default_rng(5)
    for size in range(40, 801, 40):
        a, b = rng.standard_normal((size, size)), rng.standard_normal((size, size))
        assert np.abs(cpu_multiply(a, b, cpu_step("vectorised")) - a @ b).max() < 1e-10


def test_the_cpu_ladder_climbs() -> None:
    # loops along rows are several times faster than along columns on any machine; finer steps depend on it
    assert measure(cpu_step("interchanged"), 256, 3) < measure(cpu_step("scalar"), 256, 3) / 2


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ((2, 3), (4, 5), "cannot multiply [2, 3] by [4, 5]: wanted [m, k] and [k, n]"),
        ((3,), (3, 4), "cannot multiply [3] by [3, 4]: wanted [m, k] and [k, n]"),
        ((2, 0), (0, 5), "nothing to multiply: [2, 0] by [0, 5]; every size has to be at least 1"),
    ],
)
def test_shapes_that_do_not_fit(a: tuple[int, ...], b: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011  the whole message is compared
        checked(torch.empty(a), torch.empty(b))
    assert str(error.value) == message
    with pytest.raises(ValueError) as error:  # noqa: PT011
        cpu_multiply(np.empty(a, np.float32), np.empty(b, np.float32), CPU_LADDER[0])
    assert str(error.value) == message


def test_types_strides_and_tiles_that_do_not_fit() -> None:
    square = torch.empty(4, 6)
    cases: list[tuple[Callable[[], object], str]] = [
        (
            lambda: checked(torch.empty(2, 2, dtype=torch.int8), torch.empty(2, 2, dtype=torch.int8)),
            "cannot multiply torch.int8 by torch.int8: wanted the same type twice, of torch.bfloat16, torch.float16, "
            "torch.float32",
        ),
        (
            lambda: checked(square, torch.empty(4, 6).t()),
            "the right operand has strides (1, 6): wanted elements of a row side by side; call .contiguous() first",
        ),
        (
            lambda: step("fastest"),
            "there is no step 'fastest'; steps: naive, coalesced, shared, registers, pipelined, grouped, persistent, "
            "descriptor",
        ),
        (
            lambda: cpu_step("fastest"),
            "there is no step 'fastest'; steps: scalar, interchanged, blocked, packed, vectorised, threaded, blas",
        ),
        (
            lambda: cpu_multiply(np.ones((1, 1), np.int64), np.ones((1, 1), np.int64), CPU_LADDER[0]),
            "cannot multiply int64 by int64: wanted the same type twice, of float16, float32, float64",
        ),
    ]
    for call, message in cases:
        with pytest.raises(ValueError) as error:  # noqa: PT011
            call()
        assert str(error.value) == message


def test_tiles_that_the_matrix_unit_does_not_take() -> None:
    if sys.platform != "linux":
        pytest.skip("Triton exists for Linux only")
    from workloads.gemm.launch import multiply  # noqa: PLC0415

    with pytest.raises(ValueError, match=r"^block_n is 24: wanted a power of 2 of at least 16$"):
        multiply(torch.empty(2, 2), torch.empty(2, 2), step("shared"), Config(16, 24, 16))


def test_without_triton_the_cpu_ladder_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "find_spec", lambda _: None)
    assert check_module.triton_missing() == (
        "Triton is not installed (pip install 'xpusim[triton]'; there is none for macOS): only the CPU ladder runs"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a device")
def test_a_device_run_needs_a_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert device_run(["--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        "device-run needs a CUDA device; this machine has none.  --dry tries the same code without one\n"
    )


def test_a_part_is_measured_again_with_the_same_kernels_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier = tmp_path / "lab07_dry.json"
    earlier.write_text('{"provenance": {"kernels_sha256": "of others"}}')
    assert device_run(["--dry", "--out", str(tmp_path), "--only", "odd sizes fp32"]) == 2
    assert capsys.readouterr().err == f"{earlier} was measured with other kernels: run all parts\n"
