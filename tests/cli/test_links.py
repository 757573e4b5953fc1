"""``xpusim links`` as its user types it."""

import json
from pathlib import Path

import pytest

from simulator.cli.main import main

SMALL = ("gpt2", "--system", "dgx-a100", "--seq", "256", "--batch", "16", "--parallel", "dp=2,tp=4,sp")


def test_the_bandwidth_found_keeps_the_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "links.json"
    assert main(["links", *SMALL, "--loss", "10%", "--json", str(path)]) == 0
    out = capsys.readouterr().out
    assert "For a loss of at most 10 %: nvlink: " in out
    needs = {each["parallelism"]: each for each in json.loads(path.read_text())}
    assert needs.keys() == {"tp", "dp", "all"}
    assert all(each["bandwidth"] == 300e9 for each in needs.values())
    assert needs["all"]["needed"] >= needs["tp"]["needed"] > needs["dp"]["needed"] * 0.99
    # what is lost with the bandwidth that was found is what was allowed
    wired = f"links.nvlink.bandwidth={needs['tp']['needed'] // 10**9} GB/s"
    assert main(["links", *SMALL, "--loss", "10%", "--json", str(path), "--set", wired]) == 0
    again = {each["parallelism"]: each for each in json.loads(path.read_text())}
    assert again["tp"]["loss"] == pytest.approx(0.10, abs=0.04)  # protocols may change with the bandwidth


def test_one_chip_asks_for_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    one = ("gpt2", "--system", "dgx-a100", "--set", "links.nvlink.size=1", "--seq", "64", "--parallel", "dp=1")
    assert main(["links", *one]) == 0
    assert "Nothing is sent: one chip has no links to ask for." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--loss", "5"), "--loss 5: expected a percentage above 0 and below 100, such as 5%"),
        (("--loss", "0%"), "--loss 0%: expected a percentage above 0 and below 100, such as 5%"),
        (("--loss", "x%"), "--loss x%: expected a percentage above 0 and below 100, such as 5%"),
        (("--phase", "prefill"), "--phase prefill: links are asked for training; for inference compare runs"),
    ],
)
def test_what_cannot_be_asked(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["links", *SMALL, *arguments]) == 2
    assert capsys.readouterr().err == f"xpusim: {message}\n"


def test_a_plan_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["links", "gpt2", "--system", "dgx-a100"]) == 2
    assert capsys.readouterr().err == "xpusim: --parallel missing; example: --parallel dp=4,tp=8,pp=4,sp\n"
