"""Measured steps of the engine beside simulated ones, a served schedule played again, and what lab 6 says of chips."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hw_models import load_chip
from simulator.errors import SpecError
from simulator.serving import Limits
from simulator.serving.composed import Rows, StepShape
from simulator.variants import Resource
from tests.workloads.serving_models import H200
from workloads.gpt.generate import tiny
from workloads.gpt.model import Model
from workloads.inference import lab
from workloads.inference.__main__ import DATA, main
from workloads.inference.compare import MODELS, PARTS, Row, load, mape, mixed, of, rows
from workloads.inference.curve import Settings
from workloads.inference.engine import Engine
from workloads.inference.model import Runner
from workloads.inference.replay import replay


@cache
def facts() -> Any:
    return load(DATA)


@cache
def found() -> list[Row]:
    return rows(facts(), H200)


def test_bf16_steps_are_within_six_percent() -> None:
    for part in ("decode", "prefill"):
        together = [row for row in found() if (row.scheme, row.part) == ("none", part)]
        assert len(together) == {"decode": 54, "prefill": 21}[part]
        assert mape(together) < 0.06
        for model in MODELS:
            assert mape(of(found(), model, "none", part)) < 0.08, (model, part)


def test_other_steps_are_as_close_as_the_chapter_says() -> None:
    for scheme in ("none", "w4", "w8"):
        for part in PARTS:
            assert mape([row for row in found() if (row.scheme, row.part) == (scheme, part)]) < 0.1, (scheme, part)
    assert all(row.measured > 0 for row in found())


def test_the_order_of_weights_is_the_measured_one() -> None:
    # Small batches: fewer bits are faster, large ones: slower, both measured and simulated.
    for batch, faster in ((1, True), (8, True), (96, False), (128, False)):
        (bf16, w4) = (
            next(
                row for row in of(found(), "llama-8b", scheme, "decode") if (row.decodes, row.context) == (batch, 2048)
            )
            for scheme in ("none", "w4")
        )
        assert (w4.measured < bf16.measured, w4.simulated < bf16.simulated) == (faster, faster), batch


def test_a_mixed_step() -> None:
    assert mixed(16, 2048, 1536, 512) == StepShape(528, 17, Rows(16, 1, 2048), Rows(1, 512, 2048))
    assert mixed(0, 2048, 0, 512) == StepShape(512, 1, None, Rows(1, 512, 512))


def test_a_served_schedule_is_made_again() -> None:
    name = "served llama-1b none"
    found = replay("llama-1b", "none", facts()[name], H200)
    assert (found.same, len(found.steps), found.extra) == (303, 303, 0)
    assert len(found.captured) == 220
    assert -0.4 < found.total < 0  # copies into the graph's places are not simulated


def test_another_schedule_is_noticed() -> None:
    served = json.loads(json.dumps(facts()["served llama-1b none"]))
    served["requests"] = served["requests"][:10]
    served["steps"][0]["chunks"][0][1] -= 1
    found = replay("llama-1b", "none", served, H200)
    assert found.extra > 0
    assert not found.steps[0].same
    assert found.same < len(found.steps)


def test_the_engine_makes_the_steps_of_the_simulator() -> None:
    # A real engine on this machine, out of blocks at times: the same steps, preemptions included.
    limits = Limits(max_batch=4, max_tokens=16, context=64, block_size=4, blocks=14)
    engine = Engine(Runner(Model(tiny(), context=64).eval()), limits)
    for number in range(6):
        engine.add([number + 1] * (5 + 3 * number), 8)
    engine.run()
    steps = [
        {
            "us": 1.0, "device_us": 1.0, "replayed": True,
            "decodes": [start for _, start, count, _ in record.slices if count == 1],
            "chunks": [[start, count, int(samples)] for _, start, count, samples in record.slices if count > 1],
        }
        for record in engine.records
    ]  # fmt: skip
    served = {
        "limits": {name: getattr(limits, name) for name in Limits.__slots__},
        "requests": [[number, *asked] for number, asked in engine.asked.items()], "steps": steps,
    }  # fmt: skip
    found = replay("llama-1b", "none", served, H200)
    assert (found.same, found.extra) == (len(steps), 0)


def test_compare_prints_and_fills_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = {name: facts()[name] for name in ("provenance", "linear", "llama-1b none")}
    data = tmp_path / "small.json"
    data.write_text(json.dumps(small))
    assert main(["compare", "--data", str(data)]) == 0
    text = capsys.readouterr().out
    assert "Mean absolute error" in text
    assert "Decode of llama-1b" in text
    page = tmp_path / "page.md"
    names = ("errors", "linear", "decode llama-1b", "prompts llama-1b")
    page.write_text("".join(f"<!-- {name} -->\n<!-- end of {name} -->\n" for name in names))
    assert main(["compare", "--data", str(data), "--page", str(page)]) == 0
    assert capsys.readouterr().out == f"{page}: 4 tables\n"
    assert "| llama-1b | bf16 | " in page.read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("{}", "is no file of 'python -m workloads.inference device-run'"),
        ("[]", "is no file of 'python -m workloads.inference device-run'"),
    ],
)
def test_other_files(text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data.json"
    data.write_text(text)
    assert main(["compare", "--data", str(data)]) == 2
    assert capsys.readouterr().err == f"{data}: {message}\n"
    with pytest.raises(SpecError, match="No such file or directory"):
        load(tmp_path / "none.json")


def test_lab_6_on_the_chip_that_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "MODEL", "llama-1b")
    answer = lab.answer(H200)
    assert answer.tables[0].columns[1:4] == [">bf16 measured", ">simul.", ">error of time"]
    assert answer.sentence.startswith("Because a step reads its ")
    assert "(simulated, and measured)" in answer.sentence
    assert answer.bound is Resource.BANDWIDTH
    assert "a SoC should take packed weights as they are." in answer.verdict
    assert len(answer.data["measured"]) == 27  # 9 batches, 3 kinds of weights


def test_lab_6_where_weights_are_unpacked_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "MODEL", "llama-1b")
    chip = load_chip("edge-npu")
    answer = lab.answer(chip)
    assert answer.data["measured"] == []
    assert lab.unpacked_for_nothing(Settings(chip, 2048)) is None
    first, *_, last = answer.data["curves"]
    gain = first["points"][0]["seconds"] / last["points"][0]["seconds"]
    assert 2.5 < gain <= first["weights_bytes"] / last["weights_bytes"]


def test_lab_6_where_nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "MODEL", "llama-1b")
    answer = lab.answer(load_chip("edge-npu", ["memory.lpddr.capacity=500MB"]))
    assert answer.sentence == "Not one sequence of 2,048 positions of llama-1b fits, not even in w4."
    assert answer.bound is Resource.CAPACITY
    assert answer.verdict == "The weights alone leave no room at 2,048 positions: capacity comes first."


def test_free_unpacking_is_bound_by_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "MODEL", "llama-1b")
    settings = Settings(H200, 2048, (1, 16))
    (own,) = lab.curves_of(settings, ("w4",))
    free = lab.unpacked_for_nothing(settings)
    assert free is not None
    assert all(one.step > two.step for one, two in zip(own.points, free.points, strict=True))
