"""``xpusim chips``, ``xpusim show`` and ``xpusim op``, as a user types them."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from hw_models import chip_names
from simulator.cli import chips, op
from simulator.errors import OutputError, SpecError, UsageError


def xpusim(*words: str) -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    chips.add_parser(commands)
    op.add_parser(commands)
    options = parser.parse_args(words)
    code: int = options.run(options)
    return code


TOY = ("--chip", "systolic-toy", "--fidelity", "roofline")


def test_the_list_has_one_line_for_each_chip(capsys: pytest.CaptureFixture[str]) -> None:
    assert xpusim("chips") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0] == "chip"
    assert [line.split()[0] for line in lines[1 : 1 + len(chip_names())]] == chip_names()
    (h200,) = [line.split() for line in lines if line.startswith("h200")]
    assert h200 == ["h200", "2024", "TSMC", "4N", "989.4", "1978.9", "141", "GB", "4800", "206.1"]


def test_show_prints_values_under_the_paths_that_set_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert xpusim("show", "h200", "--set", "memory.hbm.bandwidth=6TB/s") == 0
    text = capsys.readouterr().out
    assert "memory.hbm.bandwidth  6 TB/s" in text
    assert "memory.sram.bandwidth  253.44 GB/s" in text
    assert "matrix.macs_per_cycle.bf16  2048" in text
    assert "source: NVIDIA H200 data sheet: 141 GB HBM3e, 4.8 TB/s." in text
    assert "bf16     989.4 TFLOP/s  133.8 TFLOP/s  164.9" in text  # ridge: 989.4 / 6


def test_an_operator_on_the_toy(capsys: pytest.CaptureFixture[str]) -> None:
    # 64x64x64: 524288 FLOP at 32 GFLOP/s = 16.384 us; 24576 B at 16 GB/s = 1.536 us
    assert xpusim("op", "gemm", "M=64", "N=64", "K=64", *TOY) == 0
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "gemm M=64 N=64 K=64 bf16 on systolic-toy (roofline)",
        "time        16.38 us on the matrix unit",
        "arithmetic  524 kFLOP (multiply-add = 2): 32 GFLOP/s, 100.0% of the dense bf16 peak of 32 GFLOP/s",
        "traffic     24.6 kB: 1.5 GB/s, 9.4% of the 16 GB/s of the dram",
        "bound by    compute: with infinite compute it would take 1.536 us",
        "made of     arithmetic 16.38 us, traffic 1.536 us, fixed 0 s",
        "intensity   21.33 FLOP/B; the ridge point is 2",
        "roofline    16.38 us, 100.0% of the time",
        "how         21.33 FLOP/B, ridge 2",
    ]


def test_the_same_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "op.json"
    assert xpusim("op", "gemm", "M=4", "N=4", "K=4", *TOY, "--json", str(path)) == 0
    assert "gemm" in capsys.readouterr().out
    found = json.loads(path.read_text())
    # 4 ns of compute, 6 ns of memory, which decides
    assert (found["seconds"], found["compute_seconds"], found["bound"]) == (6e-9, 4e-9, "bandwidth")
    assert found["savings_seconds"]["bandwidth"] == 2e-9
    assert (found["flops"], found["bytes"], found["ridge_point"]) == (128, 96, 2.0)
    assert (found["operator"], found["dtype"], found["chip"]) == ("gemm M=4 N=4 K=4", "bf16", "systolic-toy")


@pytest.mark.parametrize("name", ["h200", "apple-m4", "tpu-v5e", "edge-npu"])
@pytest.mark.parametrize(
    "words",
    ["gemm M=512 N=512 K=512", "attention B=1 H=8 Hkv=2 Sq=1 Skv=512 D=64", "attention B=1 H=8 Sq=64 D=64 causal=true",
     "softmax R=64 C=512", "norm R=64 C=512", "copy R=64 C=512", "pointwise R=64 C=512", "embedding T=8 V=99 C=64"],
)  # fmt: skip
def test_every_kind_of_chip_answers_for_every_kind_of_operator(name: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "op.json"
    assert xpusim("op", *words.split(), "--chip", name, "--json", str(path)) == 0
    found = json.loads(path.read_text())
    assert found["seconds"] >= found["compute_seconds"] - 1e-12
    assert found["seconds"] > 0
    assert found["bound"] in {"compute", "bandwidth", "launch", "capacity"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gemm", "M=--3"], "gemm: 'M=--3' is no size; expected NAME=NUMBER, such as M=4096 or causal=true"),
        (["gemm", "M"], "gemm: 'M' is no size; expected NAME=NUMBER, such as M=4096 or causal=true"),
        (["gemm", "M=1e3"], "gemm: 'M=1e3' is no size; expected NAME=NUMBER, such as M=4096 or causal=true"),
        (["gemm", "M=3", "M=3"], "gemm: M is given twice"),
        (["copy", "R=1", "C=1", "--dtype", "bf61"], "--dtype bf61: unknown; did you mean 'bf16'? (known: fp64, fp32, "
         "tf32, fp16, bf16, fp8, int64, int32, int16, int8, int4, bool)"),
    ],
)  # fmt: skip
def test_words_that_are_no_operator(words: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        xpusim("op", *words, *TOY)
    assert str(caught.value) == message


def test_errors_of_chip_and_output() -> None:
    with pytest.raises(SpecError, match=r"^unknown chip 'h20'; did you mean 'h200'\?"):
        xpusim("show", "h20")
    with pytest.raises(OutputError, match=r"^cannot write /nope/x: No such file or directory$"):
        xpusim("op", "copy", "R=1", "C=1", *TOY, "--json", "/nope/x")


def test_importing_the_commands_loads_nothing_heavy() -> None:
    code = (
        "import sys; import simulator.cli.chips, simulator.cli.op; "
        "heavy = ('torch', 'yaml', 'pydantic', 'rich', 'numpy', 'networkx', 'hw_models'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
