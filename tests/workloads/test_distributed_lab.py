"""``xpusim lab 10``: the bandwidth that training needs, and whether a chip has it."""

import json
from pathlib import Path

import pytest

from hw_models import load_chip
from simulator.cli.main import main
from workloads.distributed.lab import link_bandwidth, tensor_bandwidth


def test_links_are_counted_in_one_direction() -> None:
    assert link_bandwidth(load_chip("h100")) == 18 * 25 * 10**9
    assert link_bandwidth(load_chip("apple-m4")) == 0


def test_a_layer_of_12_h_squared_needs_what_the_formula_says() -> None:
    # h 4096, t 8, T 1000: 2 x 7/8 x 8 T h B = 57.3 MB beside 72 T h^2 / 8 = 151 GFLOP, 151 us at 1 PFLOP/s.
    sent, flops = 2 * 7 / 8 * 8 * 1000 * 4096, 72 * 1000 * 4096**2 / 8
    assert tensor_bandwidth(4096, 8, 1e15) == pytest.approx(sent / (flops / 1e15))


def test_the_lab_answers_with_paper_and_trace_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lab.json"
    assert main(["lab", "10", "--chip", "h100", "--json", str(path)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("lab 10 on h100: how much chip-to-chip bandwidth does training need?\n")
    assert "interconnect bound. h100's links of 450 GB/s hide the gradients" in text
    data = json.loads(path.read_text())["data"]
    assert [each["payload"] for each in data["volumes"]] == [each["payload_paper"] for each in data["volumes"]]
    # llama-8b: 4 x 32 layers x 4096 tokens x 4096 x 2 B, of which a rank of 8 sends 2 x 7/8.
    assert data["volumes"][1]["payload"] == 4 * 32 * 4096 * 4096 * 2
    assert data["volumes"][1]["sent"] == 1.75 * data["volumes"][1]["payload"]
