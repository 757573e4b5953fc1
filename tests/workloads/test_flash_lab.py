"""``xpusim lab 8`` as a user meets it, and the output of Nsight Compute as ``device-run`` reads it."""

import json
import sys
from pathlib import Path

import pytest

from simulator.cli.main import main
from workloads.flash_attention.traffic import block_sram


def test_lab_8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lab.json"
    assert main(["lab", "8", "--chip", "edge-npu", "--json", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith(
        "lab 8 on edge-npu: why does fusion make attention compute-bound, and what does it ask of a SoC?"
    )
    assert "(42 FLOP a byte, at any length: less than the ridge of 156)" in out
    assert "compute bound. It is bound by arithmetic from 256 queries at 8,192 keys on, so decode never is." in out
    data = json.loads(path.read_text())
    assert data["bound"] == "compute"
    last = data["data"]["lengths"][-1]
    # 6 score matrices of 8 x 8192^2 x 2 B and Q, K, V and the output, 16.8 MB each
    assert last["written_bytes"] == 6 * 8 * 8192**2 * 2 + 4 * 8 * 8192 * 128 * 2
    assert last["fused_bytes"] == 4 * 8 * 8192 * 128 * 2 + 8 * 8192 * 4
    assert (last["written_bound"], last["fused_bound"]) == ("bandwidth", "compute")
    assert data["data"]["sram"][0] == {
        "sram_bytes": 16384, "queries": 0, "bytes": None, "seconds": None, "bound": None
    }  # fmt: skip


def test_a_chip_whose_ridge_is_low(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "8", "--chip", "apple-m4"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "apple-m4 has a ridge of 31 FLOP a byte, which attention written out reaches too (42)" in out


def test_blocks_that_are_tried_fit_the_shared_memory_of_an_h200() -> None:
    if sys.platform != "linux":
        pytest.skip("Triton exists for Linux only")
    from workloads.flash_attention.device_run import FORWARD, HEAD  # noqa: PLC0415

    used = [block_sram(each.queries, each.keys, HEAD, 2, each.stages) for each in FORWARD]
    assert max(used) == 224 * 1024  # of 227 KiB that one block may have
    assert len(set(FORWARD)) == len(FORWARD)


def test_counters_are_read_from_the_csv_of_ncu() -> None:
    if sys.platform != "linux":
        pytest.skip("Triton exists for Linux only")
    from workloads.flash_attention.device_run import counted  # noqa: PLC0415

    head = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
    lines = ["==PROF== connected", head]
    for number, name in enumerate(("forward", "forward")):
        lines += [
            f'"{number}","{name}","dram__bytes_read.sum","byte","{number + 1},000"',
            f'"{number}","{name}","dram__bytes_write.sum","byte","7"',
            f'"{number}","{name}","gpu__time_duration.sum","ns","12.5"',
        ]
    assert list(counted("\n".join(lines))) == [
        {"case": case, "expected": "forward", "kernel": "forward", "dram_read_bytes": read, "dram_write_bytes": 7.0,
         "ns": 12.5}
        for case, read in (("forward full 8192 8 128", 1000.0), ("forward causal 8192 8 128", 2000.0))
    ]  # fmt: skip
    assert list(counted("==ERROR== no permission")) == []
