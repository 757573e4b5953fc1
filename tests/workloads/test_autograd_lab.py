"""``xpusim lab N`` as a user types it."""

import json
from pathlib import Path
from typing import Any

import pytest

from hw_models import chip_names
from simulator.cli.lab import LABS
from simulator.cli.main import main


def run_lab(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    path = tmp_path / "lab.json"
    assert main(["lab", *arguments, "--json", str(path)]) == 0
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_lab_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_lab(tmp_path, "1")
    assert (found["lab"], found["chip"]) == ("1", "h200")
    data = found["data"]
    assert data["digits"]["accuracy"] > 0.95
    assert data["digits"]["bound"] == "launch"  # 32 rows of a tiny network keep no H200 busy
    forward, backward, update = data["wide"]["phases"]
    # three layers of 2048 x 2048 on 2048 rows: 2 m k n each forwards, five such products backwards
    assert forward["products"] == 3 * 2 * 2048**3
    assert backward["products"] == 5 * 2 * 2048**3
    # AdamW in bf16: 7 arrays of two bytes a parameter
    assert update["nbytes"] == 14 * 3 * (2048**2 + 2048)
    # 14 P bytes / 4.8 TB/s = 6 P rows FLOP / 989 TFLOP/s
    turn = data["update_outweighs_products_below_rows"]
    assert turn["data_sheet"] == pytest.approx(14 / 6 * 989.4e12 / 4.8e12, rel=1e-3)
    assert turn["simulated"] > turn["data_sheet"]  # memory is the floor of the update, not its time
    for row in data["law"]:
        assert (row["backward"], row["recompute"]) == (row["backward_formula"], row["recompute_formula"])
    shown = capsys.readouterr().out
    assert "lab 1 on h200: what do forward, backward and update of a training step cost?" in shown
    assert "2 - 1/L" in shown
    assert f"{found['bound']} bound. " in shown


def test_lab_3(tmp_path: Path) -> None:
    models = run_lab(tmp_path, "3")["data"]["models"]
    # all weights but the embedding and 65 norms of 4096, and 2 x 32 layers x 4096 x 1024 keys of attention
    products = 8_030_261_248 - 128_256 * 4096 - 65 * 4096
    assert models["llama-8b"]["decode"]["macs"] == products + 2 * 32 * 4096 * 1024
    assert models["llama-8b"]["parameters"] == 8_030_261_248


def test_lab_5(tmp_path: Path) -> None:
    chips = {row["chip"]: row for row in run_lab(tmp_path, "5")["data"]["chips"]}
    # weights without the embedding, 1024 positions of keys and values at 131,072 bytes: all over 4.8 TB/s
    moved = 2 * (8_030_261_248 - 128_256 * 4096) + 1024 * 131_072
    assert chips["h200"]["tokens_per_second_batch_1"] == pytest.approx(4.8e12 / moved, rel=1e-3)


@pytest.mark.parametrize("chip", chip_names())
@pytest.mark.parametrize("number", ["3", "5"])
def test_every_chip_is_answered(number: str, chip: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", number, "--chip", chip]) == 0
    assert " bound. " in capsys.readouterr().out


def test_more_bandwidth_raises_the_ceiling(tmp_path: Path) -> None:
    base, more = (
        run_lab(tmp_path, "5", *options)["data"]["models"][0]["tokens_per_second_batch_1"]
        for options in ((), ("--set", "memory.hbm.bandwidth=9.6TB/s"))
    )
    assert more == pytest.approx(2 * base, rel=1e-9)


def test_the_list_of_labs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == list(LABS)
    assert lines[0] == "lab 1  autograd: what forward, backward and update cost"


def test_a_lab_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "99"]) == 2
    labs = ", ".join(f"{key} ({subject.partition(':')[0]})" for key, (subject, _) in LABS.items())
    assert capsys.readouterr().err == f"xpusim: there is no lab 99; labs: {labs}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["1", "--chip", "h20"], "unknown chip 'h20'; did you mean 'h200'?"),
        (["5", "--json", "/nowhere/x.json"], "cannot write /nowhere/x.json: there is no folder /nowhere"),
    ],
)
def test_bad_input(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"xpusim: {message}")
