"""``xpusim array`` as its user types it: one GEMM, tables, SCALE-Sim's files, and every wrong input word for word."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from simulator.cli.main import main
from simulator.version import VERSION

DATA = "hw_models/data/scalesim/gemm_cycles.csv"
SMALL = ("--rows", "4", "--cols", "4", "--gemm", "7,5,9")
MEMORY = ("--sram", "1KiB,1KiB,1KiB", "--dram-bandwidth", "4GB/s")


def rows_of(tmp_path: Path, *arguments: str) -> list[dict[str, Any]]:
    """Run ``xpusim array`` and return the rows that it writes."""
    out = tmp_path / "out.json"
    assert main(["array", *arguments, "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found.keys() == {"version", "rows"}
    assert found["version"] == VERSION
    rows: list[dict[str, Any]] = found["rows"]
    return rows


def test_one_gemm_by_hand(tmp_path: Path) -> None:
    # 3 folds of k (4, 4, 1) by 2 of n (4, 1), 7 steps each; the stalls are worked out in test_array_sizing.py.
    (row,) = rows_of(tmp_path, *SMALL, *MEMORY, "--clock", "500MHz")
    assert row["phases"] == {"preload": 4, "fill": 3, "stream": 42, "drain": 4}
    # At 500 MHz 4 GB/s are 8 words a cycle.  16 weights: 2; 28 + 16 words, 28 + 11 + ...: each within 7 cycles.
    assert (row["cycles"], row["stall_free_cycles"], row["stall_cycles"]) == (55, 53, 2)
    assert row["seconds"] == pytest.approx(110e-9)
    # ifmap words are read for both folds of n; the accumulators keep partial sums.
    assert (row["sram_ifmap_reads"], row["sram_filter_reads"], row["sram_ofmap_writes"]) == (126, 45, 35)
    assert (row["dram_ifmap_reads"], row["dram_filter_reads"], row["dram_ofmap_writes"]) == (63, 45, 35)
    assert (row["sram_bytes"], row["dram_bytes"]) == (206, 143)
    assert row["accumulator_bytes"] == 7 * 4 * 4
    assert row["mapping_efficiency"] == pytest.approx(45 / (6 * 16))
    assert row["utilisation"] == pytest.approx(315 / (16 * 55))
    assert row["bound"] == "compute"


def test_words_of_bf16_are_two_bytes(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, *SMALL, "--dtype", "bf16", "--sram", "1KiB,1KiB,1KiB", "--dram-bandwidth", "8GB/s")
    assert (row["stall_cycles"], row["dram_bytes"]) == (11, 286)  # 4 words a cycle again
    assert row["word_bytes"] == 2


def test_without_scratchpads_there_is_no_dram(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, *SMALL)
    assert (row["cycles"], row["stall_cycles"]) == (53, 0)
    assert [row[key] for key in ("dram_ifmap_reads", "dram_bytes", "least_bandwidth", "least_sram_bytes")] == [None] * 4


def test_both_conventions_and_every_dataflow(tmp_path: Path) -> None:
    # SCALE-Sim: 45 folds of 4 + 4 + 50 - 2; ours: 9 x 5 folds stream 50 each, fill 6, the last row of tiles holds 1.
    gemm = ("--rows", "4", "--cols", "4", "--gemm", "33,17,50")
    (theirs,) = rows_of(tmp_path, *gemm, "--dataflow", "os", "--convention", "scalesim")
    (ours,) = rows_of(tmp_path, *gemm, "--dataflow", "os")
    assert (theirs["cycles"], ours["cycles"]) == (45 * 56, 45 * 50 + 6 + 1)
    # is lays K over rows and M over columns: 13 x 9 folds of 17 steps; 4 + 3 + 117 x 17 + 4
    (row,) = rows_of(tmp_path, *gemm, "--dataflow", "is")
    assert row["cycles"] == 2000


def test_cores_share_a_gemm(tmp_path: Path) -> None:
    # 64 x 8 x 4 over 4 arrays: 16 rows each, 2 folds: 4 + 3 + 32 + 4 = 43
    (row,) = rows_of(tmp_path, "--rows", "4", "--cols", "4", "--gemm", "64,8,4", "--cores", "4")
    assert (row["grid"], row["block"], row["cycles"]) == ([4, 1, 1], [16, 8, 4], 43)
    assert row["utilisation"] == pytest.approx(64 * 8 * 4 / (4 * 16 * 43))


def test_accumulators_of_a_given_depth_run_in_blocks(tmp_path: Path) -> None:
    # 10 rows in blocks of 4, 4 and 2, one fold each: 4 + 3 + 10 + 4.  Each load hides behind the 4 rows before it.
    (row,) = rows_of(tmp_path, "--rows", "4", "--cols", "4", "--gemm", "10,4,4", "--depth", "4")
    assert (row["cycles"], row["accumulator_bytes"]) == (21, 4 * 4 * 4)


def test_the_page_says_what_binds_and_what_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    array = ("--rows", "128", "--cols", "128", "--dataflow", "ws", "--clock", "1GHz", "--gemm", "1024,2304,768")
    assert main(["array", *array, "--sram", "256KiB,256KiB,128KiB", "--dram-bandwidth", "64GB/s"]) == 0
    title, verdict, *rest = capsys.readouterr().out.splitlines()
    assert title == "GEMM 1024 x 2304 x 768 (M x N x K) int8 on 128 x 128 ws at 1 GHz, cycles as in our RTL"
    assert verdict.startswith("Capacity bound. Words come again because a scratchpad is too small: ifmap ")
    text = "\n".join(rest)
    for expected in ("stream    110,592", "moves 15.17 times", "of DRAM bandwidth.", "accumulators         512 KiB"):
        assert expected in text
    assert main(["array", *array, "--sram", "2MiB,256KiB,128KiB", "--dram-bandwidth", "1TB/s"]) == 0
    assert "Compute bound. The cells are 100 % busy; 128 x 256 cells would take 50 % less." in capsys.readouterr().out
    assert main(["array", "--gemm", "1,4096,4096", "--sram", "8KiB,1MiB,8KiB", "--dram-bandwidth", "10GB/s"]) == 0
    assert "Bandwidth bound. Waits for DRAM " in capsys.readouterr().out


def test_a_table_of_runs_keeps_its_order_and_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(tmp_path, "--data", DATA)
    with Path(DATA).open() as file:
        theirs = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [row["id"] for row in theirs]
    for row, their in zip(rows, theirs, strict=True):
        assert row["cycles"] - row["stall_cycles"] == int(their["total_cycles"]) - int(their["stall_cycles"]) + 1
        assert row["sram_ifmap_reads"] == int(their["sram_ifmap_reads"])
        assert row["sram_filter_reads"] == int(their["sram_filter_reads"])
        assert all(isinstance(row[f"dram_{name}"], int) for name in ("ifmap_reads", "filter_reads", "ofmap_writes"))
    words = capsys.readouterr().out.split()
    assert words[:6] == [f"{DATA},", "cycles", "as", "in", "SCALE-Sim", "56"]
    assert " ".join(words).count("cycles without stalls (total_cycles - stall_cycles + 1) 56 56") == 1


def test_a_table_can_be_run_with_our_cycles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(tmp_path, "--data", DATA, "--convention", "rtl")
    assert rows[0]["cycles"] == 6 + 4 + 4  # 4 x 4 x 4 on 4 x 4 os: fill, stream, drain
    assert "SCALE-Sim's own figures" not in capsys.readouterr().out


def test_files_of_scalesim_are_run(tmp_path: Path) -> None:
    config, topology = tmp_path / "scale.cfg", tmp_path / "topology.csv"
    config.write_text(
        "[architecture_presets]\nArrayHeight : 4\nArrayWidth : 4\nIfmapSramSzkB : 64\nFilterSramSzkB : 64\n"
        "OfmapSramSzkB : 64\nDataflow : os\n"
    )
    topology.write_text("Layer,M,N,K,\nfirst,33,17,50,\nsecond,4,4,4\n")
    rows = rows_of(tmp_path, "--scalesim", str(config), str(topology))
    assert [(row["id"], row["cycles"]) for row in rows] == [("first", 2520), ("second", 10)]  # SCALE-Sim: 2519 and 9


BAD = [
    ("", "array: nothing to run; give --gemm M,N,K, --data CSV or --scalesim CFG TOPOLOGY"),
    ("--gemm 1,2", "--gemm 1,2: 2 sizes, wanted three: M,N,K, as in --gemm 1024,2304,768"),
    ("--gemm 1,2,x", "--gemm 1,2,x: K is 'x', wanted a whole number"),
    ("--gemm 1,0,3", "--gemm 1,0,3: N is 0, wanted at least 1"),
    ("--gemm 99999999999999999999,2,3",
     "--gemm 99999999999999999999,2,3: M is 99999999999999999999, wanted at most 2,147,483,647"),
    ("--gemm 1,2,3 --rows 1048577", "--rows is 1048577, wanted at most 1,048,576"),
    ("--gemm 1,2,3 --cores 1000000007", "--cores is 1000000007, wanted at most 4,096"),
    ("--gemm 1,2,3 --depth 99999999999999999999", "--depth is 99999999999999999999, wanted at most 2,147,483,647"),
    ("--gemm 1,2,3 --sram 1KiB,99999999999999TiB,1KiB", "--sram is 99999999999999TiB, wanted at most 1e+18 B"),
    ("--gemm 1,2,3 sweep gpt2", "--gemm does not go with array sweep, which runs a TARGET; leave out one of the two"),
    ("--gemm -1,2,3", "--gemm -1,2,3: M is -1, wanted at least 1"),
    ("--gemm 1,2,3 --rows 0", "--rows is 0, wanted at least 1"),
    ("--gemm 1,2,3 --cols -4", "--cols is -4, wanted at least 1"),
    ("--gemm 1,2,3 --cores 0", "--cores is 0, wanted at least 1"),
    ("--gemm 1,2,3 --depth 0", "--depth is 0, wanted at least 1"),
    ("--gemm 1,2,3 --depth 4 --dataflow os", "depth is 4, but rtl os has no accumulators"),
    ("--gemm 1,2,3 --dataflow wss", "--dataflow wss: unknown; did you mean 'ws'? (known: ws, os, is)"),
    ("--gemm 1,2,3 --dtype int4", "--dtype int4: unknown; did you mean 'int8'? (known: int8, bf16)"),
    ("--gemm 1,2,3 --convention scale", "--convention scale: unknown; did you mean 'scalesim'? (known: rtl, scalesim)"),
    ("--gemm 1,2,3 --clock 1000",
     "--clock: '1000' is not a whole number of Hz with its unit (write it as in --clock 1GHz)"),
    ("--gemm 1,2,3 --clock 0Hz", "--clock is 0Hz, wanted more than 0"),
    ("--gemm 1,2,3 --sram 256,256,128",
     "--sram: '256' is not a whole number of B with its unit (write it as in --sram 256KiB,256KiB,128KiB)"),
    ("--gemm 1,2,3 --sram 256KiB",
     "--sram 256KiB: 1 sizes, wanted three: ifmap,filter,ofmap, as in --sram 256KiB,256KiB,128KiB"),
    ("--gemm 1,2,3 --sram 1KiB,1KiB,1KiB --dram-bandwidth 64",
     "--dram-bandwidth: '64' is not a whole number of B/s with its unit (write it as in --dram-bandwidth 64GB/s)"),
    ("--gemm 1,2,3 --dram-bandwidth 64GB/s", "--dram-bandwidth needs --sram: without scratchpads nothing is fetched "
     "(add, say, --sram 256KiB,256KiB,128KiB)"),
    # twice one fold of 64 x 64 weights, twice 64 activations, in bf16
    ("--gemm 64,64,64 --rows 64 --cols 64 --dtype bf16 --sram 255B,16383B,1KiB",
     "--sram holds no fold of 64 x 64: ifmap has 254 B, wanted at least 256 B; "
     "filter has 16,382 B, wanted at least 16,384 B"),
    (f"--gemm 1,2,3 --data {DATA}", "--gemm and --data exclude each other; give one of them"),
    (f"--data {DATA} --scalesim a b", "--data and --scalesim exclude each other; give one of them"),
    (f"--data {DATA} --dram-bandwidth 1GB/s",
     "--dram-bandwidth goes with --gemm only; with --data the array is described in the file"),
    ("--data no.csv", "cannot read no.csv: there is no such file"),
    ("--gemm 1,2,3 --json no/out.json", "cannot write no/out.json: there is no folder no"),
    ("--data no.csv --json no/out.json", "cannot write no/out.json: there is no folder no"),  # before any work
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_wrong_input_is_one_line_and_exit_code_2(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["array", *arguments.split()]) == 2
    captured = capsys.readouterr()
    assert captured.err == f"xpusim: {message}\n"
    assert captured.out == ""


def test_a_malformed_topology_is_refused_by_file_line_and_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, topology = tmp_path / "scale.cfg", tmp_path / "topology.csv"
    config.write_text(
        "[architecture_presets]\nArrayHeight: 4\nArrayWidth: 4\nIfmapSramSzkB: 64\nFilterSramSzkB: 64\n"
        "OfmapSramSzkB: 64\nDataflow: os\n"
    )
    topology.write_text("Layer,M,N,K\nfirst,33,1.5,50\n")
    assert main(["array", "--scalesim", str(config), str(topology)]) == 2
    message = f"xpusim: {topology}, line 2, column 3 (N): '1.5' is not a whole number of at least 1\n"
    assert capsys.readouterr().err == message


def test_a_word_that_is_no_subcommand_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["array", "sweeep"])
    assert caught.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
