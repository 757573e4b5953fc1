"""Lab 7: predictions beside the ladder that was measured on an H200, the curve, the cases, and the answer."""

import hashlib
import json
from pathlib import Path

import pytest

from hw_models import load_chip
from hw_models.systolic import Array, Dataflow, phases
from simulator.errors import SpecError
from tests.workloads.lab_cases import cases
from workloads.gemm import tables
from workloads.gemm.__main__ import main
from workloads.gemm.compare import load, mape, order, rows
from workloads.gemm.curve import KIB, candidates, curve, enough, storage
from workloads.gemm.predict import Rate, ladder, predict
from workloads.gemm.steps import LADDER, Config, Step, step

ROOT = Path(__file__).parents[2]
DATA = ROOT / "docs" / "data" / "lab07_h200.json"
H200 = load_chip("h200")
TILES = [each.name for each in LADDER if each.kernel != "elements"]


def test_the_measured_kernels_are_those_in_the_tree() -> None:
    text = b"".join((ROOT / "workloads/gemm" / name).read_bytes() for name in ("kernels.py", "launch.py", "steps.py"))
    assert hashlib.sha256(text).hexdigest() == load(DATA)["provenance"]["kernels_sha256"]


@pytest.mark.parametrize("size", [4096, 8192])
def test_order_and_times_of_the_ladder(size: int) -> None:
    found = rows(H200, size, load(DATA))
    assert order(found) == 1
    assert mape([row.error for row in found]) < 0.13  # 8.0 and 11.2 %
    assert all(row.error is not None and abs(row.error) < 0.36 for row in found)


def test_dram_bytes_of_the_ladder_beside_counters() -> None:
    for size, missed in ((4096, {"naive", "coalesced"}), (8192, {"shared"})):
        errors = {row.prediction.step.name: row.dram_error for row in rows(H200, size, load(DATA))}
        wrong = {name for name, error in errors.items() if error is not None and abs(error) > 0.1}
        assert wrong == missed  # whose programs do not stay in step, as docs/lab07.md says


@pytest.mark.parametrize("size", [4096, 8192])
def test_the_best_configuration_reaches_85_percent_of_the_library(size: int) -> None:
    assert load(DATA)[f"search {size}"]["duel"]["share_of_torch"] > 0.85


def test_every_measured_product_was_right() -> None:
    found = load(DATA)
    for size in (4096, 8192):
        assert all(found[f"ladder {size}"][each.name]["correct"] for each in LADDER)
    assert all(each.get("correct", "refused" in each) for each in found["odd sizes bf16"].values())


def test_one_tile_by_hand() -> None:
    # one slice of 128 x 256 x 64: 2,097,152 multiply-adds at 0.8866 x 2048 a cycle are 1155 cycles of 1.83 GHz.
    # L2: 48 KiB at an 132nd of 8 TB/s are 811 ns.  Port, 253.44 GB/s: 48 KiB written, 128 rows read once and 256
    # columns twice, 80 KiB: 517 ns.  The first slice takes all three and 600 cycles of latency; the tile, 64 KiB,
    # leaves through the L2 in 1081 ns.  A rate that serves one slice after the other adds its own time.
    own = predict(H200, Step("", "descriptor", Config(128, 256, 64, stages=3), ""), (128, 256, 64))
    arithmetic, latency = 1155 / 1.83, 600 / 1.83
    ends = arithmetic + 811 + 517 + latency + 1081
    assert own.parts[Rate.COMPUTE] / 1e3 == pytest.approx(ends + arithmetic, rel=2e-3)
    assert own.parts[Rate.PORT] / 1e3 == pytest.approx(ends + 517, rel=2e-3)


def test_no_step_beats_the_roofline() -> None:
    for size in (64, 1000, 4096):
        for own in ladder(H200, (size, size, size)):
            assert own.flops_per_second < 989.5e12
            assert own.time / 1e12 > own.traffic.dram / H200.dram_bandwidth


def test_what_the_steps_are_bound_by() -> None:
    bound = {own.step.name: own.bound for own in ladder(H200, (4096, 4096, 4096))}
    assert bound["naive"] is Rate.PORT
    assert bound["registers"] is Rate.LATENCY
    assert bound["grouped"] is Rate.COMPUTE


def test_more_on_chip_memory_is_never_slower() -> None:
    points = curve(H200, (1024, 1024, 1024))
    times = [point.prediction.time for point in points]
    assert times == sorted(times, reverse=True)
    assert times[0] > 5 * times[-1]
    assert all(storage(point.config, 2) <= point.capacity for point in points)
    assert enough(points).prediction.time <= times[-1] / 0.95


def test_storage_by_hand() -> None:
    # three slices of (16 + 16) x 16 x 2 B and 16 x 16 sums of 4 B: 4 KiB exactly
    assert storage(Config(16, 16, 16, stages=3), 2) == 3072 + 1024 == 4 * KIB
    assert candidates(4 * KIB, 2) == [Config(16, 16, 16, warps=8, stages=3, group=8)]
    assert candidates(4 * KIB - 1, 2) == []


def test_x1_coalescing_is_worth_a_factor_of_ten_on_an_h100() -> None:
    wanted = cases("L07-X1")["L07-X1"]
    naive, coalesced = ladder(load_chip("h100"), (4096, 4096, 4096))[:2]
    assert naive.time / coalesced.time == pytest.approx(wanted.expected[0], rel=0.2)


def test_x3_a_double_buffer_does_not_help_where_other_programs_hide_the_latency() -> None:
    shared, registers = (predict(H200, step(name), (4096, 4096, 4096)) for name in ("shared", "registers"))
    assert shared.bound is not Rate.LATENCY  # nine programs a core: there is nothing for a second buffer to hide
    assert registers.bound is Rate.LATENCY  # one program a core: pipelining halves the time


def test_x6_eight_rows_take_eight_cycles_of_the_stream() -> None:
    assert int(phases(Array(128, 128, Dataflow.WEIGHT), 8, 128, 128).stream) == 8


def test_files_that_are_no_device_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    with pytest.raises(SpecError) as error:
        load(other)
    assert str(error.value) == (
        f"{other} is not a file of 'python -m workloads.gemm device-run': no provenance, ladder 4096, ladder 8192"
    )
    assert main(["compare", "--data", str(tmp_path / "no.json")]) == 2
    assert capsys.readouterr().err.startswith(f"cannot read {tmp_path / 'no.json'}: ")
    assert main(["predict", "--size", "0"]) == 2
    assert capsys.readouterr().err == "--size 0: needs at least 1\n"


def test_the_chapter_holds_the_tables_of_the_data(tmp_path: Path) -> None:
    copy = tmp_path / "lab07.md"
    text = (ROOT / "docs" / "lab07.md").read_text()
    copy.write_text(text)
    measured = load(DATA)
    tables.write_chapter(copy, [tables.ladder_table(size, rows(H200, size, measured), "h200") for size in (4096, 8192)])
    assert copy.read_text() == text
    copy.write_text("no marks")
    with pytest.raises(SpecError, match="wanted the lines"):
        tables.write_chapter(copy, [])


def test_the_figures_are_drawn(tmp_path: Path) -> None:
    from workloads.figure import save  # noqa: PLC0415
    from workloads.gemm.plot import onchip, roofline  # noqa: PLC0415

    measured = load(DATA)
    save(roofline(H200, rows(H200, 4096, measured)), tmp_path / "roofline.png")
    save(onchip(H200, curve(H200, (512, 512, 512)), measured["tiles"]), tmp_path / "onchip.png")
    assert (tmp_path / "roofline.png").stat().st_size > 10_000
    assert (tmp_path / "onchip.png").stat().st_size > 10_000


@pytest.mark.parametrize("chip", ["h200", "edge-npu"])
def test_the_answer(chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from workloads.gemm import lab  # noqa: PLC0415

    monkeypatch.setattr(lab, "CPU_SIZE", 64)
    found = lab.answer(load_chip(chip))
    kib = found.data["enough_bytes"] // KIB
    assert found.sentence.startswith(f"On {chip}, {kib} KiB a core for slices and sums is enough for 4096^3: tiles of ")
    assert [len(table.rows) for table in found.tables][1:] == [8, 7]
    assert json.loads(json.dumps(found.data)) == found.data
