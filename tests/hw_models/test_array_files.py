"""The readers of SCALE-Sim's files: layers as SCALE-Sim counts them, and every wrong line by file, line and column."""

from pathlib import Path

import pytest

from hw_models.array_model.agreement import Agreement, agreement
from hw_models.array_model.runs import Request, read_runs, run_all
from hw_models.array_model.scalesim import Layer, Setup, read_config, read_topology
from hw_models.systolic import Array, Convention, Dataflow, Scratchpads
from simulator.errors import SpecError, UsageError

DATA = Path("hw_models/data/scalesim/gemm_cycles.csv")
CONVOLUTIONS = """\
Layer name,IFMAP Height,IFMAP Width,Filter Height,Filter Width,Channels,Num Filter,Strides,
A,14,15,3,3,8,20,2,
B,9,9,3,2,5,33,1,
DP1,8,8,3,3,3,1,1,
F,1,1,1,1,64,100,1,
"""
CONFIG = """\
[general]
run_name = any
[architecture_presets]
ArrayHeight : 16
ArrayWidth : 8
IfmapSramSzkB : 64
FilterSramSzkB : 32
OfmapSramSzkB : 16
IfmapOffset : 0
Dataflow : ws
Bandwidth : 10
[run_presets]
InterfaceBandwidth : CALC
"""


def written(tmp_path: Path, text: str, name: str = "t.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_convolution_is_the_gemm_that_it_unrolls_to(tmp_path: Path) -> None:
    # A: ceil((14 - 3 + 2) / 2) = 7 by ceil((15 - 3 + 2) / 2) = 7 results, 20 filters of 3 x 3 x 8 = 72
    # B: 7 by 8, 33 filters of 3 x 2 x 5 = 30; DP1: 6 by 6, one filter of 3 x 3 for each of 3 channels
    assert read_topology(written(tmp_path, CONVOLUTIONS)) == [
        Layer("A", 49, 20, 72, 14 * 15 * 8),
        Layer("B", 56, 33, 30, 9 * 9 * 5),
        *(Layer(f"DP1Channel_{channel}", 36, 1, 9, 8 * 8) for channel in range(3)),
        Layer("F", 1, 100, 64, 64),
    ]


@pytest.mark.parametrize(
    ("dataflow", "last_cycle"),
    # "Total Cycles" of SCALE-Sim 3.0.0 (numpy 2.3.5) for these layers on 16 x 8, run on 2026-12-01 by
    # tests/benchmarks/scalesim_runner.py; it counts the last index, so cycles are one more.
    [
        ("ws", [1304, 939, 73, 73, 73, 2027]),
        ("os", [1127, 1039, 92, 92, 92, 1117]),
        ("is", [2029, 993, 194, 194, 194, 551]),
    ],
)
def test_layers_take_the_cycles_that_scalesim_says(dataflow: str, last_cycle: list[int], tmp_path: Path) -> None:
    setup = read_config(written(tmp_path, CONFIG.replace(": ws", f": {dataflow}"), "scale.cfg"))
    rows = run_all([Request(layer, setup) for layer in read_topology(written(tmp_path, CONVOLUTIONS))])
    assert [row["cycles"] - 1 for row in rows] == last_cycle
    assert {row["stall_cycles"] for row in rows} == {0}


@pytest.mark.parametrize("dataflow", ["ws", "os", "is"])
def test_an_input_that_is_held_comes_once(dataflow: str, tmp_path: Path) -> None:
    # 16 x 16 x 4; 17 x 15 x 3; 9 x 9 for each channel; of the last, stride 3 reads only 6 x 6 x 4 words: as SCALE-Sim
    # unrolls it, ceil(15 / 3) + 1 a side.  Unrolled the first would be 14 x 14 x 36 = 7,056.
    layers = "C1,16,16,3,3,4,8,1,\nC2,17,15,3,5,3,8,2,\nDP,9,9,3,3,2,1,1,\nS,16,16,1,1,4,8,3,\n"
    topology = read_topology(written(tmp_path, TITLES + layers))

    def run(config: str) -> list[int]:
        setup = read_config(written(tmp_path, config.replace(": ws", f": {dataflow}"), "scale.cfg"))
        return [row["dram_ifmap_reads"] for row in run_all([Request(layer, setup) for layer in topology])]

    assert run(CONFIG) == [1024, 765, 81, 81, 144]
    # Half of 1 kB is 512 words, which hold the depthwise channels only.
    first, second, *rest = run(CONFIG.replace("IfmapSramSzkB : 64", "IfmapSramSzkB : 1"))
    assert first >= 7056
    assert second >= 48 * 45
    assert rest == [81, 81, 144]


def test_commas_at_the_end_blank_lines_and_more_columns_change_nothing(tmp_path: Path) -> None:
    want = [Layer("fc", 7, 5, 9), Layer("out", 1, 2, 3)]
    for text in (
        "Layer,M,N,K,\nfc,7,5,9,\nout,1,2,3,\n",
        "Layer,M,N,K\nfc,7,5,9\nout,1,2,3",
        "\ufeffLayer name, M, N, K, Sparsity\n\nfc, 7, 5, 9, 1:1\n,,,\nout, 1, 2, 3, 1:1\n",
    ):
        assert read_topology(written(tmp_path, text)) == want


def test_two_strides_may_differ(tmp_path: Path) -> None:
    header = "Layer name,IFMAP Height,IFMAP Width,Filter Height,Filter Width,Channels,Num Filter,Stride height,"
    (layer,) = read_topology(written(tmp_path, f"{header}Stride width,\nC,9,9,3,3,2,4,2,3,\n"))
    assert layer == Layer("C", 4 * 3, 4, 18, 9 * 9 * 2)  # ceil(8 / 2) by ceil(9 / 3)


def test_a_configuration_says_array_scratchpads_and_bandwidth(tmp_path: Path) -> None:
    array = Array(16, 8, Dataflow.WEIGHT, Convention.SCALESIM)
    pads = Scratchpads(65_536, 32_768, 16_384)
    assert read_config(written(tmp_path, CONFIG)) == Setup(array, pads)
    user = CONFIG.replace("CALC", "USER")
    assert read_config(written(tmp_path, user)).bandwidth == 30  # one figure for each of three ports
    assert read_config(written(tmp_path, user.replace("Bandwidth : 10", "Bandwidth : 1,2,4"))).bandwidth == 7


HEADER = "Layer,M,N,K\n"
TITLES = CONVOLUTIONS.splitlines()[0] + "\n"
HINT = "(a topology has 'Layer,M,N,K' or 'Layer name,IFMAP Height,IFMAP Width,Filter Height,...')"
BAD_TOPOLOGIES = [
    ("", f": empty, expected layers {HINT}"),
    ("Layer,M,N,Q\n", f", line 1: missing columns: K {HINT}"),
    ("Layer name,IFMAP Height,Filter Height,Filter Width,Channels\n", ", line 1: missing columns: IFMAP Width, "
     f"Num Filter, Strides {HINT}"),
    (HEADER, ": has a header and no layers"),
    (f"{HEADER}a,1,2,3\nb,4,x,6\n", ", line 3, column 3 (N): 'x' is not a whole number of at least 1"),
    (f"{HEADER}a,1,0,3\n", ", line 2, column 3 (N): '0' is not a whole number of at least 1"),
    (f"{HEADER}a,-1,2,3\n", ", line 2, column 2 (M): '-1' is not a whole number of at least 1"),
    (f"{HEADER}a,1,2\n", ", line 2, column 4 (K): the line ends after 3 columns"),
    (f"{HEADER},1,2,3\n", ", line 2, column 1 (Layer): a layer needs a name"),
    (f"{TITLES}c,8,8,9,3,1,1,1,\n", ", line 2, column 4 (Filter Height): a filter of 9 is larger than its input of 8"),
    (f"{HEADER}a,2147483648,2,3\n", ", line 2, column 2 (M): 2147483648 is too large, wanted at most 2,147,483,647"),
    (f"{HEADER}a,{'9' * 5000},2,3\n", f", line 2, column 2 (M): {'9' * 40}... is too large, wanted at most "
     "2,147,483,647"),
    (f"{HEADER}a,{'x' * 131_073},2,3\n", ", line 2: field larger than field limit (131072)"),
    ("Layer,M,N,K,m\na,1,2,3,4\n", ", line 1, column 5 (m): the same title as column 2, wanted each column once"),
    ("Layer,M,N,K,Batch Size\na,1,2,3,1\nb,1,2,3,4\n",
     ", line 3, column 5 (Batch Size): a batch of 4 is not supported, wanted 1"),
    (f"{TITLES}DP,9,9,3,3,50000000,1,1,\n", ", line 2, column 6 (Channels): 50,000,000 channels of a depthwise "
     "convolution, wanted at most 65,536: a GEMM each"),
    (f"{TITLES}c,8,8,3,3,1,1,0,\n", ", line 2, column 8 (Strides): '0' is not a whole number of at least 1"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD_TOPOLOGIES)
def test_a_wrong_topology_is_refused_by_line_and_column(text: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SpecError) as caught:
        read_topology(path)
    assert str(caught.value) == f"{path}{message}"


BAD_CONFIGS = [
    ("ArrayHeight : 16\n", "", "[architecture_presets] lacks ArrayHeight"),
    ("ArrayHeight : 16", "ArrayHeight : 0", "ArrayHeight is '0', wanted a whole number of at least 1"),
    ("Dataflow : ws", "Dataflow : wss", "unknown dataflow 'wss'; did you mean 'ws'? (known: ws, os, is)"),
    ("ArrayHeight : 16", "ArrayHeight : 1048577", "ArrayHeight is 1048577, wanted at most 1,048,576"),
    ("SzkB : 64", f"SzkB : {'9' * 20}", f"IfmapSramSzkB is {'9' * 20}, wanted at most 2,147,483,647"),
    ("[run_presets]", "[sparsity]\nSparsitySupport : True\n[run_presets]",
     "[sparsity] SparsitySupport is on, but sparsity is not supported, wanted false"),
    ("CALC", "CALK", "InterfaceBandwidth is 'CALK'; did you mean 'CALC'? (known: CALC, USER)"),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "message"), BAD_CONFIGS)
def test_a_wrong_configuration_is_refused(right: str, wrong: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, CONFIG.replace(right, wrong), "scale.cfg")
    with pytest.raises(SpecError) as caught:
        read_config(path)
    assert str(caught.value) == f"{path}: {message}"


def test_percent_signs_and_sparsity_that_is_off_are_read_over(tmp_path: Path) -> None:
    text = CONFIG.replace("any", "90%") + "[sparsity]\nSparsitySupport : false\n"
    assert read_config(written(tmp_path, text)).array.rows == 16


RUNS = "array_rows,array_cols,dataflow,M,N,K\n"
WITH_PADS = RUNS.strip() + ",ifmap_sram_kb,filter_sram_kb,ofmap_sram_kb\n"
WITH_MODE = RUNS.strip() + ",bandwidth_mode\n"
BAD_RUNS = [
    ("M,N,K\n", "line 1: missing columns: array_rows, array_cols, dataflow"),
    (RUNS, "line 1: a header and no rows"),
    (f"{RUNS}4,4,ws,7,5,9\n4,4,sw,7,5,9\n", "line 3, column 3 (dataflow): unknown dataflow 'sw'; did you mean 'ws'? "
     "(known: ws, os, is)"),
    (f"{RUNS}4,4,ws,7,5,0\n", "line 2, column 6 (K): '0' is not a whole number of at least 1"),
    (f"{RUNS}4,4,ws,{'9' * 20},5,9\n", f"line 2, column 4 (M): {'9' * 20} is too large, wanted at most 2,147,483,647"),
    (f"{RUNS}4,1048577,ws,7,5,9\n", "line 2, column 2 (array_cols): 1048577 is too large, wanted at most 1,048,576"),
    ("array_rows,array_cols,dataflow,M,N,K,M\n4,4,ws,7,5,9,8\n",
     "line 1, column 7 (M): the same title as column 4, wanted each column once"),
    (f"{WITH_PADS}4,4,ws,7,5,9,1,1,\n", "line 2, column 9 (ofmap_sram_kb): ofmap_sram_kb is empty and others are not, "
     "wanted all of ifmap_sram_kb, filter_sram_kb, ofmap_sram_kb or none"),
    (f"{RUNS.strip()},ifmap_sram_kb\n4,4,ws,7,5,9,1\n", "line 2: filter_sram_kb is empty and others are not, "
     "wanted all of ifmap_sram_kb, filter_sram_kb, ofmap_sram_kb or none"),
    (f"{WITH_MODE}4,4,ws,7,5,9,CALK\n", "line 2, column 7 (bandwidth_mode): unknown bandwidth mode 'CALK'; did you "
     "mean 'CALC'? (known: CALC, USER)"),
    (f"{WITH_MODE}4,4,ws,7,5,9,USER\n", "line 2: there is no column read_bw_words_per_cycle, wanted a whole number of "
     "at least 1"),
    (f"{RUNS}4,-4,ws,7,5,9\n", "line 2, column 2 (array_cols): '-4' is not a whole number of at least 1"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD_RUNS)
def test_a_wrong_table_of_runs_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SpecError) as caught:
        read_runs(path)
    assert str(caught.value).startswith(f"{path}, {message}")


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        read_topology(tmp_path / "no.csv")
    assert str(caught.value) == f"cannot read {tmp_path}/no.csv: there is no such file"
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match=r"t\.csv: not a text file$"):
        read_topology(tmp_path / "t.csv")


def test_a_layer_that_does_not_fit_is_named(tmp_path: Path) -> None:
    array = Array(64, 64, Dataflow.WEIGHT, Convention.SCALESIM)
    layers = [Layer("small", 4, 4, 4), Layer("large", 64, 64, 64)]
    with pytest.raises(UsageError) as caught:
        run_all([Request(layer, Setup(array, Scratchpads(1024, 1024, 1024))) for layer in layers])
    # twice one fold of 64 x 64
    assert str(caught.value) == (
        "large: the filter scratchpad holds 1024 words, wanted at least 8192 for one fold"
    )  # fmt: skip


def test_a_row_that_is_too_long_is_named_by_file_and_line(tmp_path: Path) -> None:
    path = written(tmp_path, f"{RUNS}4,4,ws,7,5,9\n1,1,ws,3000000,3000000,3000000\n")
    with pytest.raises(UsageError) as caught:
        run_all(read_runs(path))
    assert str(caught.value) == (
        f"{path}, line 3: 2: a GEMM of 2.7e+19 multiply-adds and up to 2.7e+19 cycles, "
        "wanted at most 1.15e+18 of either"
    )  # fmt: skip


def test_rows_keep_their_order_whatever_arrays_they_run_on(tmp_path: Path) -> None:
    text = f"{RUNS}4,4,ws,7,5,9\n8,8,os,7,5,9\n4,4,ws,4,4,4\n"
    rows = run_all(read_runs(written(tmp_path, text), Convention.RTL))
    # ws: preload 4, fill 3, stream 6 x 7, drain 4.  os 8 x 8: fill 14, stream 9, drain 7.  ws: 4 + 3 + 4 + 4.
    assert [(row["id"], row["rows"], row["cycles"]) for row in rows] == [("1", 4, 53), ("2", 8, 30), ("3", 4, 15)]
    assert rows[0]["dram_ifmap_reads"] is None


def test_sound_figures_of_scalesim_are_equal_on_every_row() -> None:
    found = agreement(DATA, run_all(read_runs(DATA)))
    sound = [each for each in found if each.sound]
    assert [each.rows for each in sound] == [56, 56, 56, 56, 37]
    assert all(each.equal == each.rows for each in sound)
    stalls = next(each for each in found if each.what == "stall cycles")
    assert not stalls.sound
    assert stalls.equal < stalls.rows


def test_a_figure_that_differs_is_counted_and_an_empty_one_is_not(tmp_path: Path) -> None:
    header = RUNS.strip() + ",sram_ifmap_reads\n"
    # 4 x 4 ws reads an ifmap word once for each of ceil(5 / 4) = 2 folds along N: 7 x 9 x 2 = 126
    path = written(tmp_path, f"{header}4,4,ws,7,5,9,126\n4,4,ws,7,5,9,127\n4,4,ws,7,5,9,\n")
    assert agreement(path, run_all(read_runs(path))) == [Agreement("SRAM ifmap reads", 1, 2, sound=True)]
    for wrong in ("many", "nan", "inf"):
        path = written(tmp_path, f"{header}4,4,ws,7,5,9,{wrong}\n")
        with pytest.raises(SpecError) as caught:
            agreement(path, run_all(read_runs(path)))
        assert str(caught.value) == f"{path}, line 2, column 7 (sram_ifmap_reads): '{wrong}' is not a number"
