"""The commands of the lab: what they print, and what they say when asked for nonsense."""

import re

import pytest

from workloads.distributed.__main__ import main
from workloads.distributed.commands import verdict
from workloads.distributed.job import Job


def test_run_prints_losses_bytes_and_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--world", "2", "--parallel", "dp=1,tp=2", "--model", "mlp", "--steps", "2"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("mlp, fp32, dp=1 x tp=2: 2 processes over gloo\n")
    # Three sums of 8 x 16 x 64 fp32 (the batch needs no gradient); each of two ranks sends 2 x 1/2 of them.
    assert len(re.findall(r"^[01] +98,304 B +98,304 B +ring$", text, re.MULTILINE)) == 2
    assert "losses equal to the single process" in text
    assert "bytes on the wire equal to the prediction on all ranks" in text


def test_run_with_torchs_collectives_counts_calls(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--world", "2", "--parallel", "tp=2", "--model", "mlp", "--collectives", "torch"]) == 0
    assert len(re.findall(r"not seen +98,304 B +3 of 98,304 B$", capsys.readouterr().out, re.MULTILINE)) == 2


def test_a_difference_is_said() -> None:
    job = Job("mlp", dp=1, tp=2, steps=1, ring=True)
    ranks = [{"losses": [2.0], "sent": [96]}, {"losses": [2.0], "sent": [100]}]
    right, text = verdict(job, {"losses": [2.002]}, ranks, [96, 96])
    assert not right
    assert text == (
        "losses NOT EQUAL to the single process (largest difference 1.0e-03, allowed 1e-05)\n"
        "bytes on the wire NOT EQUAL to the prediction on all ranks"
    )


def test_ring_prints_bytes_and_bandwidth(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ring", "--world", "3", "--bytes", "30kB"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("all-reduce of 29.3 KiB over 3 processes, best of 5\n")
    assert len(re.findall(r"^[012] +40,000 B +40,000 B ", text, re.MULTILINE)) == 3  # 2 x 2/3 of 30 kB
    assert re.search(r"bus bandwidth .*B/s by the ring, .*B/s by torch; largest difference \d", text)


def test_volume_prints_paper_and_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["volume", "llama-1b", "--parallel", "dp=2,tp=8", "--seq", "512"]) == 0
    text = capsys.readouterr().out
    # 4 x 16 layers x 512 tokens x 2048 x 2 B = 134 MB; a rank sends 2 x 7/8 of it.
    assert re.search(r"^tensor x 8 +134 MB +134 MB +235 MB ", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run", "--world", "4", "--parallel", "dp=3"], "--world 4 does not factor into dp=3, tp=1, which has 3"),
        (["run", "--parallel", "dp=2,pp=2"], "--parallel: this lab knows dp and tp, got 'pp'"),
        (["run", "--parallel", "dp"], "cannot read 'dp' of the mesh 'dp'; expected the form dp=2,tp=4"),
        (["run", "--parallel", "dp=0,tp=2"], "--parallel: every dimension has at least one rank, got dp=0,tp=2"),
        (["run", "--collectives", "nccl"], "--collectives is ring or torch, got 'nccl'"),
        (["ring", "--bytes", "1"], "--bytes: '1' is not a quantity in B (expected the form '3.35 TB')"),
        (["ring", "--bytes", "6B"], "--bytes: a tensor of fp32 has a positive multiple of 4 bytes, got 6"),
        (["ring", "--world", "1"], "--world: a ring has at least 2 ranks, got 1"),
        (["volume", "llama-8b", "--parallel", "dp=1"], "--parallel: one rank sends nothing; write, say, dp=8,tp=8"),
        (["volume", "llama-8b", "--parallel", "tp=16"], "tp=16 does not divide the 8 key/value heads of llama-8b"),
    ],
)
def test_nonsense_is_one_line(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"{text}\n"
