"""Lowered programs as machine code, through MLIR and LLVM: the numbers of the interpreter, and what is refused."""

import shutil

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from simulator.errors import UsageError
from tests.workloads.test_compiler_dialect import EVERYTHING, X, Y, body
from workloads.compiler.dialect import canonicalise, from_torch, native, parse, run, to_linalg, to_loops
from workloads.compiler.dialect.native import run_native, to_llvm
from workloads.compiler.dialect.text import context


@pytest.mark.parametrize("loops", [False, True])
def test_machine_code_computes_what_the_interpreter_does(loops: bool) -> None:
    module = to_linalg(parse(EVERYTHING))
    lowered = to_loops(module) if loops else module
    printed: list[npt.NDArray[np.float32]] = []
    product, turned = run_native(lowered, X, Y, printed=printed.append)
    # by hand: see test_every_level_computes_the_same
    kept = np.array([[0.5, 1.8, 0], [0, 0, 24]], np.float32)
    assert product == pytest.approx(kept @ Y, rel=1e-6)
    assert turned == pytest.approx(kept.T, rel=1e-6)
    assert len(printed) == 1
    assert printed[0] == pytest.approx(kept, rel=1e-6)


@pytest.mark.parametrize("widths", [(8, 12, 4), (64, 256, 10)])
def test_an_mlp_of_pytorch_runs_as_machine_code(widths: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    first, hidden, last = widths
    net = nn.Sequential(nn.Linear(first, hidden), nn.ReLU(), nn.Linear(hidden, last))
    given = torch.randn(5, first)
    module = from_torch(net, given)
    canonicalise(module, context())
    (found,) = run_native(to_linalg(module), given.numpy())
    assert found == pytest.approx(net(given).detach().numpy(), abs=1e-5)


def test_a_result_of_one_axis_and_a_constant() -> None:
    text = body("%0 = lab.constant dense<[1.0, 2.0]> : tensor<2xf32>", "lab.return %0 : tensor<2xf32>",
                given="", gives="tensor<2xf32>")  # fmt: skip
    module = to_linalg(parse(text))
    assert run_native(module)[0].tolist() == run(module)[0].tolist() == [1.0, 2.0]


def test_what_is_not_lowered_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^main is not lowered yet: to_linalg or to_loops does that$"):
        run_native(parse(EVERYTHING), X, Y)


def test_wrong_shapes_are_refused_before_anything_runs() -> None:
    with pytest.raises(UsageError, match=r"^main takes tensors of 2x3, 3x2; got 2x3$"):
        run_native(to_linalg(parse(EVERYTHING)), X)


def test_without_the_tools_it_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(UsageError) as caught:
        to_llvm(to_linalg(parse(EVERYTHING)))
    assert str(caught.value) == (
        "there is no mlir-opt of version 16 or later: 'apt-get install mlir-16-tools' on Debian or Ubuntu"
    )


def test_what_mlir_refuses_is_one_line() -> None:
    found = native.tools()
    with pytest.raises(UsageError, match=r"^\S*mlir-opt\S*: <stdin>:1:1: error: .*$"):
        native._output([found.opt], "what")
