"""``xpusim run --system --parallel`` as its user types it: output, files, and wrong input word for word."""

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.cli.main import main

SMALL = ("gpt2", "--phase", "train", "--seq", "256", "--batch", "16", "--system", "dgx-a100")


def run_json(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    path = tmp_path / "run.json"
    assert main(["run", *arguments, "--json", str(path)]) == 0
    found: dict[str, Any] = json.loads(path.read_text())
    return found


BOTH = "; example: --system dgx-h200x16 --parallel dp=4,tp=8,pp=4,sp"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gpt2",), "--chip CHIP missing; or --system SYSTEM and --parallel PLAN for a model over many chips"),
        (("gpt2", "--chip", "h200", "--parallel", "dp=2"), f"--chip is for one chip; --system missing{BOTH}"),
        (
            ("gpt2", "--system", "dgx-a100", "--zero", "1", "--html", "x", "--save-graph", "y"),
            f"--html and --save-graph are for one chip; --parallel missing{BOTH}",
        ),
        (
            (*SMALL, "--parallel", "dp=2,tp=3,pp=16"),
            "plan dp=2,tp=3,pp=16,ep=1: pp=16 stages for 12 layers; dp x tp x pp = 2 x 3 x 16 = 96 ranks on 8 chips",
        ),
        (
            (*SMALL, "--parallel", "dp=1,tp=8,sp", "--batch", "3", "--microbatch", "2", "--seq", "255"),
            "plan dp=1,tp=8,pp=1,ep=1,sp: tp=8 does not divide 12 attention heads; tp=8 and 12 key/value heads: "
            "neither divides the other; sp: tp=8 does not divide a sequence of 255; a global batch of 3 is not "
            "divisible by dp x microbatch = 1 x 2 = 2",
        ),
        (
            (*SMALL, "--parallel", "dp=8", "--schedule", "1f1b:2"),
            "--schedule 1f1b:2: only interleaved has chunks; expected the form interleaved:3",
        ),
        (
            (*SMALL, "--parallel", "dp=4,pp=2", "--schedule", "gpip", "--recompute", "some", "--zero", "4"),
            "plan dp=4,tp=1,pp=2,ep=1: schedule is 'gpip'; did you mean 'gpipe'? (known: 1f1b, gpipe, interleaved); "
            "recompute is 'some'; did you mean 'none'? (known: none, selective, full); zero is 4; the "
            "stages are 0 to 3",
        ),
        ((*SMALL, "--parallel", "dp=8,tq=2"), "unknown part 'tq' of the plan 'dp=8,tq=2'; did you mean 'tp'?"),
        (
            ("gpt2", "--phase", "train", "--system", "dgx-b100", "--parallel", "dp=8"),
            "unknown system 'dgx-b100'; did you mean 'dgx-h100'? (known: dgx-a100, dgx-h100, dgx-h200, tpu-v5e-pod, "
            "tpu-v5p-pod, xpu-board; a system description of your own is given as a path that ends in .yaml)",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_run(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *arguments]) == 2
    assert capsys.readouterr().err == f"xpusim: {message}\n"


def test_a_system_in_pieces_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pieces.yaml"
    source = "source: made up for the tests"
    file.write_text(
        f"name: pieces\ndescription: two pairs\n{source}\nchip: a100\nlinks:\n  wire:\n    topology: links\n"
        f"    size: 4\n    bandwidth: 1 GB/s\n    edges: [[0, 1], [2, 3]]\n    {source}\n"
    )
    assert main(["run", "gpt2", "--phase", "train", "--system", str(file), "--parallel", "dp=4"]) == 2
    message = (
        f"xpusim: {file}: not a valid system description:\n"
        "  links.wire (line 6): disconnected: member 0 reaches 2 of 4 members, and not member 2\n"
    )
    assert capsys.readouterr().err == message


def test_a_step_is_written_and_adds_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timeline = tmp_path / "timeline.json"
    plan = ("--parallel", "dp=2,tp=2,pp=2,sp", "--zero", "1", "--microbatch", "2", "--timeline", str(timeline))
    found = run_json(tmp_path, *SMALL, *plan)
    assert found["devices"] == 8
    assert sum(found["bounds"].values()) == pytest.approx(found["seconds"])
    assert sum(found["exposed_seconds"].values()) == pytest.approx(found["bounds"]["interconnect"])
    assert found["tokens_per_second"] == pytest.approx(16 * 256 / found["seconds"])
    assert found["fits"]
    assert len(found["memory_by_stage"]) == 2
    assert found["elasticity"].keys() == {"nvlink"}
    spans = [each for each in json.loads(timeline.read_text())["traceEvents"] if each["ph"] == "X"]
    # 4 microbatches on each of 2 stages, forward and backward, and an optimizer each
    assert len(spans) == 2 * (2 * 4 + 1)
    assert max(each["ts"] + each["dur"] for each in spans) == pytest.approx(found["seconds"] * 1e6)
    out = capsys.readouterr().out
    assert "on 8 chips of dgx-a100: dp=2 tp=2 pp=2 sp, zero 1, microbatch 2, 1f1b, recompute none" in out
    assert "Fits. Bound by " in out


def test_events_do_not_grow_with_replicas(tmp_path: Path) -> None:
    one = run_json(tmp_path, *SMALL, "--parallel", "dp=8")
    pod = ("--system", "dgx-a100x4", "--batch", "64")  # the same work for each of 32 chips
    many = run_json(tmp_path, *SMALL, *pod, "--parallel", "dp=32")
    assert many["bounds"]["compute"] == pytest.approx(one["bounds"]["compute"], rel=0.2)
    assert many["model_flops"] == 4 * one["model_flops"]


def test_what_does_not_fit_says_by_how_much(capsys: pytest.CaptureFixture[str]) -> None:
    short = ("--set", "chip.memory.hbm.capacity=2GB")
    assert main(["run", *SMALL, "--parallel", "dp=8", *short]) == 0
    assert "Does not fit: a rank of stage 0 needs" in capsys.readouterr().out


def test_decode_over_tensor_parallel_ranks(tmp_path: Path) -> None:
    step = ("gpt2", "--phase", "decode", "--context", "512", "--batch", "4", "--system", "dgx-a100")
    half = ("--set", "links.nvlink.size=4")
    found = run_json(tmp_path, *step, *half, "--parallel", "dp=2,tp=2")
    assert found["tokens_per_second"] == pytest.approx(4 / found["seconds"])
    assert found["exposed_seconds"].keys() == {"tp"}
    # blocks have 85,054,464 parameters, of which the products' 84,934,656 are halved; 2 sequences x 12 layers x 2 x 512
    # positions x 384 columns x 2 bytes of cache
    assert found["memory"]["weights"] < 2 * 124_439_808 * 0.7
    assert found["memory"]["activations"] > 2 * 12 * 2 * 512 * 384 * 2


def test_options_of_training_are_refused_in_inference(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = (
        "gpt2",
        "--phase",
        "decode",
        "--system",
        "dgx-a100",
        "--parallel",
        "dp=8",
        "--zero",
        "1",
        "--schedule",
        "1f1b",
    )
    assert main(["run", *wrong]) == 2
    assert capsys.readouterr().err == "xpusim: --zero and --schedule are for --phase train\n"
