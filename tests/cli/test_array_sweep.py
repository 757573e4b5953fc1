"""``xpusim array sweep`` and ``xpusim lab 11`` as a user meets them."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from simulator.cli.main import main

GPT2 = ["array", "sweep", "gpt2", "--set", "cores=1"]
SMALL = ["--sizes", "16,32x64", "--sram", "256KiB,1MiB", "--bandwidth", "50GB/s,100GB/s"]


def test_a_sweep_prints_recommends_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {name: tmp_path / f"out.{name}" for name in ("json", "png", "html")}
    asked = ["--json", str(files["json"]), "--plot", str(files["png"]), "--html", str(files["html"])]
    assert main([*GPT2, *SMALL, *asked, "--phase", "decode", "--clock", "1GHz", "--threshold", "5%"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("gpt2 decode, batch 1 at 1,024 positions, bf16 on arrays of edge-npu, 1 core 8 points. ")
    assert "enough: 32x64 cells (ws), 256 KiB of SRAM, " in out
    assert re.search(r"- array 32x64: 16x16 would take \d+ % longer; 64x128 would save", out)
    assert "- SRAM 256 KiB: the smallest swept that works; 1 MiB would save" in out
    data = json.loads(files["json"].read_text())
    assert len(data["points"]) == 8
    assert data["threshold"] == 0.05
    assert data["clock_hz"] == 10**9
    assert data["axes"]["array_sizes"] == [[16, 16], [32, 64]]
    assert data["recommendation"]["rows"] == 32
    assert set(data["recommendation"]["axes"]) == {"array", "sram", "bandwidth"}
    for point in data["points"]:
        assert sum(point["seconds_by"].values()) == pytest.approx(point["seconds"])
        assert point["dram_bytes"] >= point["least_dram_bytes"]
        # bf16 on every fourth cell: 2 FLOP x cells / 4 x 1 GHz
        assert point["peak_flops_per_second"] == point["rows"] * point["columns"] * 10**9 // 2
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    page = files["html"].read_text()
    assert page.count("<svg") == 1
    assert page.count("<table>") == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sizes", ""], "--sizes '': an empty value; wanted values such as 64 or 64x128, with commas between"),
        (["--sizes", "16,,32"], "--sizes '16,,32': an empty value; wanted values such as 64 or 64x128, with commas "
         "between"),
        (["--sizes", "0"], "--sizes 0: must be at least 1"),
        (["--sizes", "4x"], "--sizes 4x: wanted a number of rows and columns, such as 64 or 64x128"),
        (["--sizes", "16,16x16"], "array sizes: 16x16 stands twice"),
        (["--sram", "256"], "--sram: '256' is not a quantity in B (expected the form '3.35 TB')"),
        (["--sram", "0KiB"], "--sram 0KiB: must be more than 0"),
        (["--sram", "1MiB,1024KiB"], "SRAM: 1 MiB stands twice"),
        (["--bandwidth", "64"], "--bandwidth: '64' is not a quantity in B/s (expected the form '3.35 TB/s')"),
        (["--clock", "1"], "--clock: '1' is not a quantity in Hz (expected the form '3.35 THz')"),
        (["--dataflow", "wss"], "--dataflow wss: unknown; did you mean 'ws'? (known: ws, os, is, best)"),
        (["--threshold", "10"], "--threshold 10: wanted a percentage above 0% and below 100%, such as 10%"),
        (["--dtype", "fp32"], "the arrays of edge-npu do not multiply fp32 (they multiply int8, int4, fp16, bf16)"),
        (["--dtype", "bf61"], "--dtype bf61: unknown; did you mean 'bf16'? (known: "),
        (["--json", "/nowhere/a.json"], "cannot write /nowhere/a.json: there is no folder /nowhere"),
        (["--plot", "a.txt"], "cannot write a.txt: wanted a name that ends in .png, .svg, .pdf"),
        (["--chip", "h200"], "chip h200 has no systolic array, which fidelity systolic needs: "),
        (["--sizes", ",".join(str(each) for each in range(1, 1001))],
         "1000 x 4 x 5 x 1 are 20,000 points, wanted at most 4,096"),
        (["--sizes", "512", "--sram", "64KiB"],
         "64 KiB of scratchpad cannot hold one fold of the smallest array, 512x512 bf16; the least is "
         f"{2 * 512 * 512 * 2 + 2 * 512 * 2 + 4 * 512:,} B"),  # two folds, two rows of activations, sums of one row
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*GPT2, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    whole = captured.err.removeprefix("xpusim: ").rstrip("\n")
    assert whole == message or (message.endswith((" ", ", ")) and whole.startswith(message))


def test_lab_11_sizes_a_core_of_ours_in_place_of_a_chip_without_arrays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lab.json"
    assert main(["lab", "11", "--json", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("lab 11 on h200: given the model, how large should the array of multipliers and the SRAM be?")
    assert "h200 has no systolic array; in its place one core of ours." in out
    data = json.loads(path.read_text())
    assert data["bound"] == "bandwidth"
    runs = {(run["model"], run["phase"]): run["by_bandwidth"] for run in data["data"]["runs"]}
    assert len(runs) == 4
    assert [each["columns"] for each in runs["llama-8b", "decode"]] == [16, 32, 64, 128, 256]
    # Twice the bandwidth, half the time, as long as the sizes follow.
    times = [each["seconds"] for each in runs["llama-8b", "decode"]]
    assert all(1.9 < one / other <= 2 for one, other in pairwise(times))
