"""``xpusim fit``: it finds constants again that made the data, keeps half of the rows back, and names their source."""

import csv
import json
from pathlib import Path

import pytest

from hw_models import load_chip
from hw_models.fit import GROUPS, Row, fit, mape, split, value
from hw_models.tile import TileModel
from hw_models.tile.kernels import kernel_graph
from hw_models.tile.machine import machine
from simulator.cli.main import main
from simulator.dtypes import DType

TRUTH = "h200", ["calibration.dram=0.75", "calibration.vector.launch=0.9"]
SIZES = [(rows, columns) for rows in (1, 64, 700, 4096, 16384) for columns in (512, 1600, 4096)]


def table(path: Path) -> Path:
    """Kernel times of a chip whose constants are known: pointwise kernels of another bandwidth and launch."""
    model = TileModel(load_chip(*TRUTH))
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("op", "dtype", "shape", "us"))
        for op in ("copy", "add", "mul_scalar"):
            for r, c in SIZES:
                graph = kernel_graph(op, DType.BF16, {"R": r, "C": c})
                assert graph is not None
                time = sum(cost.time for cost in model.costs(graph)) / 1e6
                rows.writerow((op, "bf16", json.dumps({"R": r, "C": c}), time))
    return path


def run(tmp_path: Path, *arguments: str) -> Path:
    out = tmp_path / "mine.yaml"
    data = str(table(tmp_path / "mine.csv"))
    assert main(["fit", "h200", "--data", data, "--groups", "vector", "--out", str(out), *arguments]) == 0
    return out


def test_constants_that_made_the_data_are_found_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chip = load_chip(str(run(tmp_path, "--evaluations", "400")))
    assert value(machine(chip).calibration, "dram") == pytest.approx(0.75, rel=0.02)
    assert value(machine(chip).calibration, "vector.launch") == pytest.approx(0.9, rel=0.05)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "h200: 24 kernels fitted, 21 only predicted"
    (total, _) = [line.split() for line in lines if line.startswith("all")]
    assert float(total[5].rstrip("%")) > 10  # rows not fitted, before
    assert float(total[6].rstrip("%")) < 1.5  # and after


def test_the_file_says_where_its_constants_are_from(tmp_path: Path) -> None:
    chip = load_chip(str(run(tmp_path, "--evaluations", "20")))
    assert chip.calibration is not None
    source = chip.calibration.source
    assert source.startswith("fitted by xpusim 0.")
    assert "to 24 kernels of mine.csv (sha256 " in source
    assert "21 rows of the other half (seed 0), not fitted: " in source
    assert chip.name == "mine"
    assert chip.cores == load_chip("h200").cores


def test_a_file_can_be_fitted_again(tmp_path: Path) -> None:
    first = run(tmp_path, "--evaluations", "20")
    again = tmp_path / "again.yaml"
    data = str(tmp_path / "mine.csv")
    assert (
        main(["fit", str(first), "--data", data, "--groups", "vector", "--evaluations", "9", "--out", str(again)]) == 0
    )
    assert again.read_text().startswith("extends: ./mine.yaml\nname: again\n")
    assert load_chip(str(again)).cores == 132


def test_a_held_out_table_takes_the_place_of_the_half(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, "--evaluations", "9", "--held-out", "hw_models/data/h200-heldout/ops.csv")
    assert "h200: 45 kernels fitted, 348 only predicted" in capsys.readouterr().out


def rows_of(path: Path) -> list[Row]:
    found = []
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            graph = kernel_graph(line["op"], DType.BF16, json.loads(line["shape"]))
            assert graph is not None
            found.append(Row(line["op"], graph, float(line["us"]) * 1e6, line["op"]))
    return found


def test_halves_share_no_row_and_depend_on_the_seed(tmp_path: Path) -> None:
    rows = rows_of(table(tmp_path / "t.csv"))
    train, test = split(rows, 0)
    assert {id(row) for row in train} | {id(row) for row in test} == {id(row) for row in rows}
    assert not {id(row) for row in train} & {id(row) for row in test}
    assert [sum(row.op == op for row in train) for op in ("copy", "add", "mul_scalar")] == [8, 8, 8]
    assert [id(row) for row in split(rows, 1)[0]] != [id(row) for row in train]


def test_a_short_search_is_never_worse_than_no_search(tmp_path: Path) -> None:
    rows, chip = rows_of(table(tmp_path / "t.csv")), load_chip(*TRUTH)
    assert mape(chip, rows) < 1e-6
    assert mape(fit(chip, rows, GROUPS["vector"].bounds, 5, 0), rows) < 1e-6


BAD = [
    (["--groups", "vectr"], "--groups: unknown group 'vectr'; did you mean 'vector'? (known: "),
    (["--evaluations", "0"], "--evaluations: must be at least 1, got 0\n"),
    (["--seed", "-1"], "--seed: must be at least 0, got -1\n"),
    (["--out", "x.txt"], "--out x.txt: a chip file ends in .yaml\n"),
    (["--out", "nowhere/x.yaml"], "cannot write nowhere/x.yaml: there is no folder nowhere\n"),
    (
        ["--data", "hw_models/data/h200/models.csv"],
        "hw_models/data/h200/models.csv: a table of steps; constants are fitted to kernel times only\n",
    ),
    (
        ["--data", "hw_models/data/h200/energy.csv"],
        "hw_models/data/h200/energy.csv: a table of energies; constants are",
    ),
]


@pytest.mark.parametrize(("arguments", "says"), BAD)
def test_bad_input(arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["fit", "h200", "--data", str(table(tmp_path / "t.csv")), "--out", str(tmp_path / "o.yaml"), *arguments]
    assert main(given) == 2
    assert capsys.readouterr().err.startswith(f"xpusim: {says}")


def test_a_file_is_not_fitted_into_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = run(tmp_path, "--evaluations", "5")
    before = first.read_text()
    assert main(["fit", str(first), "--data", str(tmp_path / "mine.csv"), "--out", str(first)]) == 2
    says = f"--out {first}: is the chip that is fitted, which the new file extends; give another name"
    assert capsys.readouterr().err == f"xpusim: {says}\n"
    assert first.read_text() == before


def test_a_table_of_unknown_kernels_and_one_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = tmp_path / "t.csv", str(tmp_path / "o.yaml")
    for row, says in (
        ('frobnicate,bf16,"{""R"": 1}",1\n', f"{data}: no kernel in it is known"),
        ('copy,bf16,"{""R"": 1, ""C"": 64}",1\n', f"{data}: 1 rows are too few to keep half of them back"),
    ):
        data.write_text("op,dtype,shape,us\n" + row)
        assert main(["fit", "h200", "--data", str(data), "--out", out]) == 2
        assert capsys.readouterr().err == f"xpusim: {says}\n"
