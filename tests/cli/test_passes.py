"""``xpusim passes`` and ``--mode compile`` as their user types them."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from simulator.cli.main import main
from simulator.passes import PASSES

STEP = ["gpt2", "--chip", "h200", "--phase", "prefill", "--batch", "8", "--seq", "1024"]
ORDER = ["dead", "common", "attention", "padding", "decompose", "recompute", "inline", "pointwise", "reductions"]


def test_every_pass_is_a_line_and_what_it_made_has_a_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, graph = tmp_path / "passes.json", tmp_path / "graph.json"
    assert main(["passes", *STEP, "--json", str(path), "--save-graph", str(graph)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "gpt2 compiled for h200"
    assert [line.split()[0] for line in lines[3:13]] == ["(as", *ORDER]
    assert "reductions made 12 x blocks.*.ffn_norm/add+native_layer_norm" in lines
    found = json.loads(path.read_text())
    assert [each["name"] for each in found] == ORDER
    for earlier, later in pairwise(found):
        assert later["kernels_before"] == earlier["kernels_after"]
        assert later["seconds_before"] == earlier["seconds_after"]
    assert found[-1]["seconds_after"] < found[0]["seconds_before"]
    assert main(["run", str(graph), "--chip", "h200"]) == 0  # what the passes leave is a target like any other
    assert f"{found[-1]['kernels_after']} operators" in capsys.readouterr().out


def test_compile_mode_shows_its_passes_and_is_faster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for mode in ("graph", "compile"):
        path = tmp_path / mode
        assert main(["run", *STEP, "--mode", mode, "--json", str(path)]) == 0
        assert ("Passes of the compiler" in capsys.readouterr().out) is (mode == "compile")
        found[mode] = json.loads(path.read_text())
    assert found["graph"]["passes"] == []
    assert found["compile"]["passes"][-1]["kernels_after"] == len(found["compile"]["operators"])
    assert found["compile"]["seconds"] < found["graph"]["seconds"]
    assert found["compile"]["model_flops"] == found["graph"]["model_flops"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["passes", *STEP, "--passes", "dead,reduction"],
            f"xpusim: unknown pass 'reduction'; did you mean 'reductions'? (known: {', '.join(PASSES)})",
        ),
        (
            ["run", *STEP, "--mode", "compiled"],
            "xpusim: unknown mode 'compiled'; did you mean 'compile'? (known: eager, graph, compile)",
        ),
    ],
)
def test_wrong_names(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.strip() == message


def test_no_passes_leave_the_program_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["passes", *STEP, "--passes", ""]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "no passes"
