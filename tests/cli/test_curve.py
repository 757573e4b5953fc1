"""``xpusim curve`` as its user types it: tables, files, measured points, and every wrong input word for word."""

import json
from pathlib import Path

import pytest

from simulator.cli.main import main
from workloads.inference.measured import MeasuredPoint, read_measured

SMALL = ("curve", "gpt2", "--chip", "h200", "--context", "512", "--batches", "1,8,64")


def curve(*arguments: str) -> int:
    return main([*SMALL, *arguments])


def test_rates_knee_limit_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, picture = tmp_path / "curve.json", tmp_path / "curve.png"
    assert curve("--json", str(out), "--plot", str(picture)) == 0
    text = capsys.readouterr().out
    for word in (
        "Rate against batch",
        "What binds the step",
        "largest batch that fits",
        "launch bound. One step reads ",
    ):
        assert word in text
    data = json.loads(out.read_text())
    assert [each["name"] for each in data["curves"]] == ["bf16", "w8", "w4"]
    for each in data["curves"]:
        for point in each["points"]:
            assert point["tokens_per_second"] == pytest.approx(point["batch"] / point["seconds"])
    weights = [each["weights_bytes"] for each in data["curves"]]
    assert weights == sorted(weights, reverse=True)
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_measured_points_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "curve.json"
    assert curve("--quant", "none", "--json", str(out)) == 0
    step = json.loads(out.read_text())["curves"][0]["points"][1]["seconds"]
    measured = tmp_path / "measured.csv"
    measured.write_text(f"quant,batch,seconds\nbf16,8,{step / 1.25}\nbf16,3,1\n")
    capsys.readouterr()
    picture = tmp_path / "curve.svg"
    assert curve("--quant", "none", "--measured", str(measured), "--plot", str(picture)) == 0
    text = capsys.readouterr().out
    assert "+25.0%" in text
    assert "Mean absolute error 25.0% over 1 points, worst 25.0%." in text


def test_measurements_of_the_engine_are_those_of_the_model_and_context(tmp_path: Path) -> None:
    path = tmp_path / "lab.json"
    steps = [{"batch": 8, "context": 512, "us": 600.5}, {"batch": 8, "context": 2048, "us": 900}]
    path.write_text(json.dumps({"provenance": {}, "gpt2 none": {"decode": steps}, "other none": {"decode": steps}}))
    assert read_measured(path, "gpt2", 512) == [MeasuredPoint("none", 8, 600_500_000)]


def test_a_draft_model_makes_more_tokens_of_a_step(tmp_path: Path) -> None:
    out = tmp_path / "curve.json"
    assert curve("--quant", "none", "--speculate", "draft=gpt2,tokens=2,acceptance=1", "--json", str(out)) == 0
    point = json.loads(out.read_text())["curves"][0]["points"][0]
    assert point["tokens_per_second"] == pytest.approx(3 / point["seconds"])  # two proposals and its own


def test_a_context_that_never_fits(capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ("--set", "memory.hbm.capacity=300MB")
    assert curve("--quant", "none", *tiny) == 0
    assert "capacity bound. Not one sequence of 512 positions fits beside the weights." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--quant", "none,w3"), "unknown quantisation 'w3'; did you mean 'w8'? (known: none, w8, w4)"),
        (("--batches", "1,x"), "--batches 1,x: wanted numbers from 1 to 4096, such as 1,8,64"),
        (("--context", "0"), "--context 0: must be at least 1"),
        (("--context", "2000"), "--context 2000: gpt2 has room for 1,024 positions"),
        (("--plot", "x.gif"), "--plot x.gif: wanted a name that ends with .png, .svg or .pdf"),
        (("--measured", "none.csv"), "none.csv: cannot be read: No such file or directory"),
        (("--mode", "compile"), "--mode compile: a served step is eager or a captured graph"),
    ],
)
def test_wrong_input_is_one_line(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert curve(*arguments) == 2
    assert capsys.readouterr().err == f"xpusim: {message}\n"


def test_all_faults_of_a_file_of_measurements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps([{"quant": "w5", "batch": 1, "seconds": 1}, {"quant": "w4", "seconds": 1}]))
    assert curve("--measured", str(path)) == 2
    assert capsys.readouterr().err == (
        f"xpusim: {path}: row 1: quant 'w5' is not one of bf16, fp16, none, w8, w4\n{path}: row 2: no batch\n"
    )
    path.write_text('{"x": 1}')
    assert curve("--measured", str(path)) == 2
    wanted = 'wanted a list of objects with quant, batch and seconds, or one under "points"'
    assert capsys.readouterr().err == f"xpusim: {path}: {wanted}\n"


def test_the_plain_module_is_slower(tmp_path: Path) -> None:
    seconds = []
    for program in ("engine", "module"):
        out = tmp_path / f"{program}.json"
        assert curve("--quant", "none", "--program", program, "--json", str(out)) == 0
        seconds.append(json.loads(out.read_text())["curves"][0]["points"][0]["seconds"])
    assert seconds[0] < seconds[1]  # hardly, for gpt2: its norms and gelu are the framework's in both


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--program", "modul"), "--program modul: unknown; did you mean 'module'? (known: engine, module)"),
        (
            ("--dtype", "bf17"),
            "--dtype bf17: unknown; did you mean 'bf16'? (known: fp64, fp32, tf32, fp16, bf16, fp8, int64, int32, "
            "int16, int8, int4, bool)",
        ),
    ],
)
def test_programs_and_types_that_there_are_not(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert curve(*arguments) == 2
    assert capsys.readouterr().err == f"xpusim: {message}\n"
