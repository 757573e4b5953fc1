"""``xpusim validate`` as its user types it: numbers, groups, every wrong input word for word."""

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.cli.main import main

DATA = Path("hw_models/data")
OPS, STEPS = DATA / "h200" / "ops.csv", DATA / "h200" / "models.csv"
MODELS = str(DATA / "h200" / "user_models.py")
HEADER = "op,dtype,shape,us\n"
GEMM = '"{""M"": 16, ""N"": 4096, ""K"": 4096}"'


def validate(tmp_path: Path, text: str, *arguments: str, chip: str = "h200") -> dict[str, Any]:
    """Validate a table with that *text* and return the JSON object."""
    table, out = tmp_path / "t.csv", tmp_path / "out.json"
    table.write_text(text)
    assert main(["validate", chip, "--data", str(table), "--json", str(out), *arguments]) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_the_measured_kernels_are_predicted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = validate(tmp_path, OPS.read_text())
    assert found["predicted"] == 581
    assert found["not_predicted"] == 0
    assert found["mape"] < 0.09
    assert found["mape"] < found["roofline_mape"] / 5
    assert found["median"] <= found["mape"] <= found["p90"]
    assert {"gemm bf16", "sdpa", "softmax"} <= set(found["groups"]["operator"])
    assert set(found["groups"]["regime"]) <= {"compute", "bandwidth", "launch", "capacity", "none"}
    assert [row["line"] for row in found["rows"]] == list(range(2, 583))
    text = capsys.readouterr().out
    assert text.startswith("h200: 581 measured kernels, fidelity tile\nMAPE ")
    assert "plain roofline on the same rows" in text


def test_a_row_holds_its_inputs_and_the_prediction(tmp_path: Path) -> None:
    found = validate(tmp_path, f"op,dtype,shape,us,note\ngemm,bf16,{GEMM},13.6,mine\n")
    (row,) = found["rows"]
    assert row["op"] == "gemm"
    assert row["shape"] == {"M": 16, "N": 4096, "K": 4096}
    assert (row["line"], row["measured"], row["note"]) == (2, 13.6, "")
    assert row["error"] == pytest.approx(row["predicted"] / 13.6 - 1)
    assert found["mape"] == pytest.approx(abs(row["error"]))


def test_an_unknown_operator_is_counted_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = validate(tmp_path, f'{HEADER}gemm,bf16,{GEMM},13.6\nsofmax,bf16,"{{""R"": 1, ""C"": 768}}",4\n')
    assert (found["predicted"], found["not_predicted"]) == (1, 1)
    assert found["rows"][1]["predicted"] is None
    assert "1 rows: unknown operator 'sofmax'; did you mean 'softmax'?" in capsys.readouterr().out


def test_an_override_changes_the_prediction(tmp_path: Path) -> None:
    text = f"{HEADER}gemm,bf16,{GEMM},13.6\n"
    slow = validate(tmp_path, text, "--set", "memory.hbm.bandwidth=1TB/s")
    assert slow["rows"][0]["predicted"] > 2 * validate(tmp_path, text)["rows"][0]["predicted"]


def test_roofline_can_be_validated_too(tmp_path: Path) -> None:
    found = validate(tmp_path, f"{HEADER}gemm,bf16,{GEMM},13.6\n", "--fidelity", "roofline")
    assert found["mape"] == found["roofline_mape"]


def test_whole_steps_are_traced_and_predicted(tmp_path: Path) -> None:
    header, *lines = STEPS.read_text().splitlines()
    single = [line for line in lines if ",gpt2," in line and '""B"": 1,' in line]
    wanted = single + [line for line in lines if "llama-1b" in line and "decode" in line]
    found = validate(tmp_path, "\n".join([header, *wanted]) + "\n", "--models", MODELS)
    assert found["format"] == "steps"
    assert found["not_predicted"] == 0
    assert found["mape"] < 0.12
    assert found["peak_bytes_mape"] < 0.15
    assert {"prefill eager", "prefill graph", "decode graph"} <= set(found["groups"]["operator"])
    row = found["rows"][0]
    assert row["predicted_peak_bytes"] == pytest.approx(307491840, rel=0.2)


ENERGY = DATA / "h200" / "energy.csv"


def test_measured_energies_are_predicted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for line in ENERGY.read_text().splitlines(keepends=True) if "llama" not in line]
    found = validate(tmp_path, "".join(lines))
    assert (found["format"], found["unit"]) == ("energies", "mJ")
    assert (found["predicted"], found["not_predicted"]) == (16, 1)
    assert found["mape"] < 0.1
    big = found["rows"][-3]
    assert (big["op"], big["measured"]) == ("sdpa", 707.02187)
    assert "1 rows: idle: what the chip's description is taken from" in capsys.readouterr().out


def test_energies_of_whole_steps_need_their_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = 'op,shape,mJ_per_call\nllama-1b decode,"{""B"": 1, ""ctx"": 64}",500\n'
    found = validate(tmp_path, text, "--models", MODELS)
    assert 100 < found["rows"][0]["predicted"] < 1500
    assert main(["validate", "h200", "--data", str(tmp_path / "t.csv")]) == 2
    says = "line 2: llama-1b decode needs --models FILE: the file whose MODELS were measured"
    assert capsys.readouterr().err.endswith(f"xpusim: {says}\n")


def test_a_chip_that_says_nothing_about_energy_is_not_guessed(tmp_path: Path) -> None:
    found = validate(tmp_path, 'op,shape,mJ_per_call\ncopy,"{""n"": 1024}",5\n', chip="apple-m4")
    assert found["mape"] is None
    assert found["rows"][0]["note"] == "apple-m4 says nothing about energy: power.idle and power.energy are needed"


def test_a_compiled_step_is_fused_and_counts(tmp_path: Path) -> None:
    text = 'phase,model,config,mode,ms\nprefill,gpt2,"{""B"": 8, ""S"": 1024}",compile,4.68733\n'
    found = validate(tmp_path, text, "--models", MODELS)
    assert found["mape"] is not None
    assert found["mape"] < 0.1  # without fusion and padding of the vocabulary it would be 1.19


def test_the_tables_of_an_a100_are_read(tmp_path: Path) -> None:
    for name in ("gemm", "attention_context", "attention_generation"):
        text = "\n".join((DATA / "a100" / f"{name}.csv").read_text().splitlines()[:20]) + "\n"
        assert validate(tmp_path, text, chip="a100")["predicted"] == 19


def test_without_a_table_all_that_come_with_the_project_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "all.json"
    assert main(["validate", "a100", "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert [(each["table"], each["predicted"]) for each in found["tables"]] == [
        ("a100/gemm.csv", 1540), ("a100/attention_context.csv", 1364), ("a100/attention_generation.csv", 1358),
    ]  # fmt: skip
    assert all(each["mape"] < each["roofline_mape"] / 3 for each in found["tables"])
    text = capsys.readouterr().out
    assert "half of the rows" in text
    assert "a100/gemm.csv: gemm in ms" in text


def test_a_chip_that_nobody_has_measured_needs_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "apple-m4"]) == 2
    says = "no measurements of apple-m4 come with xpusim (there are some of: h200, a100); give --data CSV"
    assert capsys.readouterr().err == f"xpusim: {says}\n"
    assert main(["validate", "h200", "--models", MODELS]) == 2
    assert capsys.readouterr().err == "xpusim: --models goes with --data\n"


BAD = [
    ("", "{0}: empty, expected a table of measurements"),
    (HEADER, "{0}: no rows under the header"),
    (
        "op,dtype,shapes,us\n",
        "{0}, line 1: no column 'shape'; is it 'shapes'? (a table of kernels has: op, dtype, shape, us)",
    ),
    (f"{HEADER}gemm,bf16,{GEMM}\n", "{0}, line 2: 3 cells under 4 columns"),
    (f"{HEADER}gemm,bf16,{GEMM},fast\n", "{0}, line 2, column us: must be a number, got 'fast'"),
    (f"{HEADER}gemm,bf16,{GEMM},-1\n", "{0}, line 2, column us: must be a number above zero, got '-1'"),
    (f"{HEADER}gemm,bf16,{GEMM},0\n", "{0}, line 2, column us: must be a number above zero, got '0'"),
    (f"{HEADER}gemm,bf16,{GEMM},nan\n", "{0}, line 2, column us: must be a number above zero, got 'nan'"),
    (
        f"{HEADER}gemm,bf61,{GEMM},1\n",
        "{0}, line 2, column dtype: unknown dtype 'bf61'; did you mean 'bf16'? (known: fp64, fp32, tf32, fp16, bf16, "
        "fp8, int64, int32, int16, int8, int4, bool)",
    ),
    (
        f"{HEADER}gemm,bf16,{{M: 1}},1\n",
        "{0}, line 2, column shape: not JSON: Expecting property name enclosed in double quotes at character 2 of "
        "'{{M: 1}}'",
    ),
    (
        f"{HEADER}gemm,bf16,[],1\n",
        "{0}, line 2, column shape: must be an object of sizes such as {{\"M\": 16}}, got '[]'",
    ),
    (
        f'{HEADER}gemm,bf16,"{{""M"": 0}}",1\n',
        "{0}, line 2, column shape: M must be a whole number of at least 1, got 0",
    ),
    (f'{HEADER}gemm,bf16,"{{""M"": 1, ""N"": 1}}",1\n', "line 2, column shape: gemm needs a size 'K'"),
    (
        'phase,model,config,mode,ms\nprefill,gpt2,"{""B"": 1}",graph,1\n',
        "a table of steps needs --models FILE: the file whose MODELS were measured",
    ),
    (
        "dtype,m,n,k,latency_ms\nbfloat16,1,x,1,1\n",
        "{0}, line 2, column n: must be a whole number of at least 1, got 'x'",
    ),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_bad_tables(text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "t.csv"
    table.write_text(text)
    assert main(["validate", "h200", "--data", str(table)]) == 2
    assert capsys.readouterr().err == f"xpusim: {message.format(table)}\n"


BAD_STEPS = [
    ('prefill,gpt2,"{""B"": 1}",graph,1', "line 2, column config: prefill needs a size 'S'", MODELS),
    ('prefill,gpt2,"{""B"": 1}",graph,1', "cannot read missing.py: not a Python file", "missing.py"),
]


@pytest.mark.parametrize(("line", "message", "models"), BAD_STEPS)
def test_bad_steps(line: str, message: str, models: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "t.csv"
    table.write_text(f"phase,model,config,mode,ms\n{line}\n")
    assert main(["validate", "h200", "--data", str(table), "--models", models]) == 2
    assert capsys.readouterr().err == f"xpusim: {message}\n"


def test_a_file_without_models_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, models = tmp_path / "t.csv", tmp_path / "mine.py"
    table.write_text('phase,model,config,mode,ms\nprefill,gpt2,"{""B"": 1}",graph,1\n')
    models.write_text("raise ValueError('no')\n")
    assert main(["validate", "h200", "--data", str(table), "--models", str(models)]) == 2
    assert capsys.readouterr().err == f"xpusim: {models}: ValueError: no\n"
    models.write_text("x = 1\n")
    assert main(["validate", "h200", "--data", str(table), "--models", str(models)]) == 2
    message = "has no MODELS, a dictionary of names and functions that make a module"
    assert capsys.readouterr().err == f"xpusim: {models}: {message}\n"


def test_an_unknown_model_phase_or_mode_is_not_predicted(tmp_path: Path) -> None:
    lines = [
        'prefill,gpt3,"{""B"": 1}",graph,1',
        'prefil,gpt2,"{""B"": 1}",graph,1',
        'prefill,gpt2,"{""B"": 1}",grap,1',
    ]
    found = validate(tmp_path, "phase,model,config,mode,ms\n" + "\n".join(lines) + "\n", "--models", MODELS)
    assert [row["note"] for row in found["rows"]] == [
        "user_models.py has no model 'gpt3'; did you mean 'gpt2'?",
        "unknown phase 'prefil'; did you mean 'prefill'?",
        "unknown mode 'grap'; did you mean 'graph'?",
    ]
    assert found["mape"] is None


def test_a_missing_table_and_an_unwritable_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "no.csv"
    assert main(["validate", "h200", "--data", str(missing)]) == 2
    assert capsys.readouterr().err == f"xpusim: cannot read {missing}: No such file or directory\n"
    table, out = tmp_path / "t.csv", tmp_path / "no" / "out.json"
    table.write_text(f"{HEADER}gemm,bf16,{GEMM},13.6\n")
    assert main(["validate", "h200", "--data", str(table), "--json", str(out)]) == 2
    assert capsys.readouterr().err == f"xpusim: cannot write {out}: there is no folder {out.parent}\n"
