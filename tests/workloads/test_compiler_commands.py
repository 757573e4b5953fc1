"""The commands of lab 9, and its answer."""

from itertools import pairwise
from pathlib import Path

import pytest

from frontends import trace
from hw_models import load_chip
from simulator.errors import SpecError
from simulator.graph import MATRIX_KINDS
from workloads import build
from workloads.compiler.__main__ import main
from workloads.compiler.passes import passes_of
from workloads.compiler.predicted import compared

PROGRAM = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = lab.relu %x : tensor<2xf32>
  %1 = lab.relu %0 : tensor<2xf32>
  lab.return %1 : tensor<2xf32>
}
"""


def test_kernels_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["kernel"])
    text = capsys.readouterr().out
    assert text.index("from numba import njit") < text.index("v3 = v0 / (ONE + exponential(-v0))")
    assert text.index("@triton.jit") < text.index("v3 = v0 * tl.sigmoid(v0)")


def test_a_file_is_lowered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "twice.mlir"
    file.write_text(PROGRAM)
    main(["opt", str(file)])
    assert capsys.readouterr().out.count("lab.relu") == 2
    main(["opt", str(file), "--canonicalise", "--to", "loops"])
    assert capsys.readouterr().out.count("scf.for") == 1


def test_the_mlp_is_lowered(capsys: pytest.CaptureFixture[str]) -> None:
    main(["mlp", "--canonicalise", "--to", "linalg"])
    assert capsys.readouterr().out.count("linalg.matmul") == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PROGRAM.replace("lab.relu %0", "lab.relu %7"), "{file}:3:17: values used but not defined: [%7]"),
        (None, "{file}: [Errno 2] No such file or directory: '{file}'"),
    ],
)
def test_files_that_are_wrong(
    text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.mlir"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SystemExit) as error:
        main(["opt", str(file)])
    assert error.value.code == 2
    assert capsys.readouterr().err == f"python -m workloads.compiler: {message.format(file=file)}\n"


def test_passes_of_a_model() -> None:
    program = build("gpt2", "prefill", seq=64)
    graph = trace(program.module, program.args, program.kwargs, workload=program.workload, dtype="bf16")
    found = passes_of("gpt2", "prefill", graph, load_chip("h200"))
    assert [each.name for each in found.reports][-2:] == ["reductions", "epilogue"]
    for first, second in pairwise(found.reports):
        assert first.after == second.before
        assert second.after.kernels <= second.before.kernels
        assert second.after.nbytes <= second.before.nbytes
        assert second.after.time <= second.before.time
    # no pass writes products: they are what is left by hand, and more of the time than the rest of gpt2
    assert 0.5 < found.by_hand < 1
    assert sum(op.kind in MATRIX_KINDS for op in graph) <= found.reports[-1].after.kernels


def test_measuring_needs_a_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["device-run", "--out", str(tmp_path)])
    assert capsys.readouterr().err == (
        "python -m workloads.compiler: device-run needs a CUDA device; this machine has none "
        "('xpusim lab 9' measures on the CPU)\n"
    )


def test_the_generated_kernels_on_an_h200() -> None:
    """Within 20 % where they last more than 3 us and nothing is ragged; the gain of fusion within 20 %."""
    rows = [each for each in compared(load_chip("h200")) if each.measured["shape"][0] not in (1, 4095)]
    assert len(rows) == 12
    for each in rows:
        assert each.measured["error"] < 2.0**-7
        assert each.fused == pytest.approx(each.measured["triton_us"], rel=0.2), each.name
        predicted, measured = each.gain
        assert predicted == pytest.approx(measured, rel=0.2), each.name


def test_a_file_that_is_no_measurement(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("[]")
    with pytest.raises(SpecError) as caught:
        compared(load_chip("h200"), path)
    assert str(caught.value) == f"{path} is not a file of 'python -m workloads.compiler device-run'"
