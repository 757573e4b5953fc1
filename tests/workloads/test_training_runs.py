"""Whole runs: log, checkpoints, a kill, a loss that is no number, damaged files, the command line."""

import json
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
import torch

from simulator.errors import OutputError, UsageError
from tests.workloads.training_runs import TEXT, one_thread, small_run
from workloads.gpt.estimates import training_flops_per_token
from workloads.training import checkpoint
from workloads.training.__main__ import main
from workloads.training.config import Run
from workloads.training.errors import CheckpointError, OutOfMemoryError, TrainingError
from workloads.training.forecast import check_fits
from workloads.training.journal import read
from workloads.training.loop import Trainer
from workloads.training.memory import step_memory
from workloads.training.metrics import FLOP_CONVENTION, Peak
from workloads.training.packing import Order
from workloads.training.runs import start
from workloads.training.tracing import trace_run


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    with one_thread():
        yield


def trained(run: Run, folder: Path, *, resume: bool = False, base: Path | None = None) -> Trainer:
    trainer, journal = start(run, folder, resume=resume, base=base, peak=Peak(1e12, "fp32", "made up"))
    trainer.train(journal)
    return trainer


def options(run: Run) -> list[str]:
    """*run* as it is typed."""
    typed = [each for each in fields(Run) if each.type is not bool]
    return [word for each in typed for word in (f"--{each.name.replace('_', '-')}", str(getattr(run, each.name)))]


def test_the_log_of_a_run(tmp_path: Path) -> None:
    trainer = trained(small_run(tmp_path), tmp_path / "run")
    header, *lines = read(tmp_path / "run")
    assert header["run"] == asdict(trainer.run)
    assert header["peak"] == "made up, dense fp32, 1 TFLOP/s"
    assert header["mfu_convention"] == FLOP_CONVENTION
    assert header["memory"] == "peak of the whole process"
    assert header["text"].endswith("licence as its owner says, 2,040 bytes")
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 6]  # the first, every second, evaluations, the last
    assert [line["step"] for line in lines if "validation_loss" in line] == [3, 6]
    flops = training_flops_per_token(trainer.network.config, 32)
    for line in lines:
        assert line["tokens_per_second"] == pytest.approx(64 / line["step_seconds"])
        assert line["mfu"] == pytest.approx(flops * line["tokens_per_second"] / 1e12)
        assert line["memory_bytes"] > 50e6  # Python and torch alone are more
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert lines[-1]["validation_loss"] == pytest.approx(trainer.validate(), rel=1e-5)


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    trained(small_run(tmp_path), tmp_path / "run")
    assert [path.name for path in checkpoint.found(tmp_path / "run")] == ["step-00000004.pt", "step-00000006.pt"]


def test_a_killed_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    run = small_run(tmp_path, steps=400)
    folder = tmp_path / "killed"
    command = [sys.executable, "-m", "workloads.training", "train", "--out", str(folder), *options(run)]
    process = subprocess.Popen(command, env={"OMP_NUM_THREADS": "1", "PATH": ""}, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while len(checkpoint.found(folder)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        assert process.wait() == -signal.SIGKILL
    done = checkpoint.load(checkpoint.found(folder)[-1]).step
    assert 0 < done < 400
    end = small_run(tmp_path, steps=400)
    again, journal = start(end, folder, resume=True)
    assert again.step == done
    straight, other = start(end, tmp_path / "straight")
    target = done + 5
    for trainer in (again, straight):
        while trainer.step < target:
            trainer.one(_order(trainer))
            trainer.step += 1
    for name, wanted in straight.network.state_dict().items():
        assert torch.equal(again.network.state_dict()[name], wanted), name
    pairs = zip(straight.optimizer.state.values(), again.optimizer.state.values(), strict=True)
    assert all(torch.equal(a[key], b[key]) for a, b in pairs for key in ("exp_avg", "exp_avg_sq"))
    assert journal.header["run"] == other.header["run"]
    steps = [line["step"] for line in read(folder)[1:]]
    assert steps[-1] <= done  # what was logged after the checkpoint is undone with it
    assert steps == sorted(set(steps))


def _order(trainer: Trainer) -> Order:
    return Order(len(trainer.rows), trainer.run.batch * trainer.run.accumulate, trainer.run.seed)


def test_a_loss_that_is_no_number_stops_the_run(tmp_path: Path) -> None:
    run = small_run(tmp_path, log_every=1)
    trainer, journal = start(run, tmp_path / "run")

    class Poisoned:
        """Told of each step; spoils a parameter after the third."""

        def advance(self, step: int, said: dict[str, object]) -> None:
            if step == 3:
                next(iter(trainer.network.parameters())).data[:] = float("nan")

    trainer.progress = Poisoned()
    good = tmp_path / "run" / "step-00000002.pt"
    with pytest.raises(TrainingError) as caught:
        trainer.train(journal)
    assert str(caught.value) == f"loss is nan at step 4: stopped; the last good checkpoint is {good}"
    assert checkpoint.found(tmp_path / "run") == [good]
    assert all(torch.isfinite(each).all() for each in checkpoint.load(good).network.values())


def test_a_step_is_named_although_the_log_looks_only_now_and_then(tmp_path: Path) -> None:
    run = small_run(tmp_path, log_every=100, save_every=100, eval_every=100, lr=1e30, warmup=0, clip=1e30)
    trainer, journal = start(run, tmp_path / "run")
    with pytest.raises(TrainingError, match=r"^(loss|norm of the gradients) is (nan|inf) at step \d: stopped; no che"):
        trainer.train(journal)


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_corrupt_checkpoint_is_named_and_nothing_overwritten(tmp_path: Path, damage: str) -> None:
    run = small_run(tmp_path)
    trained(run, tmp_path / "run")
    older, newest = checkpoint.found(tmp_path / "run")
    content = bytearray(newest.read_bytes())
    if damage == "cut":
        del content[len(content) // 2 :]
    else:
        content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(CheckpointError) as caught:
        start(small_run(tmp_path, steps=8), tmp_path / "run", resume=True)
    why = str(caught.value)
    assert why.startswith(f"{newest}: corrupt checkpoint (")
    assert why.endswith(f"; nothing was overwritten; {older.name} is there too: move the damaged one away to go on "
                        "from it")  # fmt: skip
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    newest.unlink()
    assert trained(small_run(tmp_path, steps=8), tmp_path / "run", resume=True).step == 8


def _adds_a_field(content: dict[str, Any]) -> None:
    content["run"]["speed"] = 1


def _drops_a_field(content: dict[str, Any]) -> None:
    del content["run"]["seq"]


def _words_for_a_rate(content: dict[str, Any]) -> None:
    content["run"]["lr"] = "high"


def _names_no_model(content: dict[str, Any]) -> None:
    content["run"]["model"] = "huge"


def _drops_the_step(content: dict[str, Any]) -> None:
    del content["step"]


def _spells_the_step(content: dict[str, Any]) -> None:
    content["step"] = "six"


def _step_before_the_first(content: dict[str, Any]) -> None:
    content["step"] = 0


def _cuts_a_tensor(content: dict[str, Any]) -> None:
    content["network"]["embedding.weight"] = content["network"]["embedding.weight"][:7]


def _drops_a_tensor(content: dict[str, Any]) -> None:
    del content["network"]["embedding.weight"]


def _adds_a_tensor(content: dict[str, Any]) -> None:
    content["network"]["more"] = torch.zeros(2)


def _lists_for_a_tensor(content: dict[str, Any]) -> None:
    content["network"]["embedding.weight"] = [0.0]


def _empties_the_optimizer(content: dict[str, Any]) -> None:
    content["optimizer"] = {}


def _empties_the_state(content: dict[str, Any]) -> None:
    content["optimizer"]["state"] = {}


def _cuts_a_moment(content: dict[str, Any]) -> None:
    content["optimizer"]["state"][0]["exp_avg"] = torch.zeros(3)


def _joins_the_groups(content: dict[str, Any]) -> None:
    content["optimizer"]["param_groups"].pop()


def _adds_an_object(content: dict[str, Any]) -> None:
    content["more"] = Path("x")


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (_adds_a_field, "run has the unknown field 'speed'"),
        (_drops_a_field, "run has no seq"),
        (_words_for_a_rate, "lr of run is of type str, not float"),
        (_names_no_model, "run: unknown model 'huge'"),
        (_drops_the_step, "no step"),
        (_spells_the_step, "step is of type str, not int"),
        (_step_before_the_first, "step is 0"),
        (_cuts_a_tensor, "embedding.weight of network is float32 [7, 128], not float32 [320, 128]"),
        (_drops_a_tensor, "network has no embedding.weight"),
        (_adds_a_tensor, "network has the unknown tensor 'more'"),
        (_lists_for_a_tensor, "embedding.weight of network is of type list, not a tensor"),
        (_empties_the_optimizer, "optimizer has no param_groups"),
        (_empties_the_state, "optimizer has the state of 0 parameters, not of 52"),
        (_cuts_a_moment, "exp_avg of state 0 of optimizer is float32 [3], not float32 [320, 128]"),
        (_joins_the_groups, "param_groups of optimizer are those of another run"),
        (_adds_an_object, "its pickle is damaged or holds more than tensors, numbers and text"),
    ],
)
def test_a_checkpoint_that_is_whole_but_wrong_inside(
    spoil: Callable[[dict[str, Any]], None], fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run(tmp_path, steps=1, save_every=1)
    trained(run, tmp_path / "run")
    (path,) = checkpoint.found(tmp_path / "run")
    content = torch.load(path, weights_only=True)
    spoil(content)
    torch.save(content, path)
    before = {each: each.read_bytes() for each in (tmp_path / "run").iterdir()}
    other = ["train", "--out", str(tmp_path / "other"), *options(run)]
    for arguments in (
        ["train", "--out", str(tmp_path / "run"), "--resume", *options(run)],
        [*other, "--base", str(path)],
        ["sample", str(path), "def "],
    ):
        assert main(arguments) == 2
        message = capsys.readouterr().err
        assert message.startswith(f"{path}: corrupt checkpoint ({fault}")
        assert message.endswith("); nothing was overwritten\n")
        assert message.count("\n") == 1
    assert {each: each.read_bytes() for each in (tmp_path / "run").iterdir()} == before
    assert not (tmp_path / "other").exists()


def test_a_zip_of_something_else_is_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "step-00000001.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "nothing")
    whole = tmp_path / "list.pt"
    torch.save([1, 2], whole)
    for each in (path, whole):
        assert main(["sample", str(each), "x"]) == 2
        wanted = f"{each}: not a checkpoint of this program (format xpusim-training/1)\n"
        assert capsys.readouterr().err == wanted


def test_a_resumed_run_has_steps_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    trained(small_run(tmp_path), folder)
    before = {each: each.read_bytes() for each in folder.iterdir()}
    assert main(["train", "--out", str(folder), "--resume", *options(small_run(tmp_path, steps=5))]) == 2
    assert capsys.readouterr().err == f"{folder}: already at step 6, --steps 5 leaves nothing to do\n"
    assert {each: each.read_bytes() for each in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("--seed -1", "--seed -1: needs at least 0\n"),
        ("--seed 9223372036854775808", "--seed 9223372036854775808: needs at most 9223372036854775807\n"),
        ("--beta1 1", "--beta1 1.0: needs at least 0 and less than 1\n"),
        ("--beta2 -0.1", "--beta2 -0.1: needs at least 0 and less than 1\n"),
        ("--beta2 nan", "--beta2 nan: needs at least 0 and less than 1\n"),
        ("--lr nan", "--lr nan: needs a finite number\n"),
        ("--lr inf", "--lr inf: needs a finite number\n"),
        ("--lr -1", "--lr -1.0: needs at least 0\n"),
        ("--lr-end nan", "--lr-end nan: needs a finite number\n"),
        ("--weight-decay -1", "--weight-decay -1.0: needs at least 0\n"),
        ("--weight-decay inf", "--weight-decay inf: needs a finite number\n"),
        ("--clip 0", "--clip 0.0: needs more than 0\n"),
        ("--clip nan", "--clip nan: needs more than 0\n"),
    ],
)
def test_numbers_that_no_run_can_have(
    typed: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", "--out", str(tmp_path / "run"), *options(small_run(tmp_path)), *typed.split()]
    assert main(arguments) == 2
    assert capsys.readouterr().err == message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "typed", "message"),
    [
        ("x", "--tokens 0", "--tokens 0: needs at least 1\n"),
        ("x", "--temperature nan", "--temperature nan: needs 0 or a finite number of at least 1e-06\n"),
        ("x", "--temperature inf", "--temperature inf: needs 0 or a finite number of at least 1e-06\n"),
        ("x", "--temperature 1e-7", "--temperature 1e-07: needs 0 or a finite number of at least 1e-06\n"),
        ("x", "--temperature -1", "--temperature -1.0: needs 0 or a finite number of at least 1e-06\n"),
        ("x", "--seed -1", "--seed -1: needs 0 to 9223372036854775807\n"),
        ("x", "--seed 9223372036854775808", "--seed 9223372036854775808: needs 0 to 9223372036854775807\n"),
        ("ab\udcff", "", "prompt: character 3 is no text that UTF-8 can hold\n"),
    ],
)
def test_what_no_sample_can_have(text: str, typed: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sample", "none.pt", text, *typed.split()]) == 2
    assert capsys.readouterr().err == message


def test_a_sample_is_printed_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(small_run(tmp_path, steps=1), tmp_path / "run")
    (path,) = checkpoint.found(tmp_path / "run")
    drawn = "word " * 40 + "\t:smile: [bold]"
    monkeypatch.setattr("workloads.training.commands.sample", lambda *_, **__: list(drawn.encode()))
    for temperature in ("0", "1e-6"):
        assert main(["sample", str(path), "a\tb ", "--temperature", temperature]) == 0
        assert capsys.readouterr().out == f"a\tb {drawn}\n"


def test_another_run_does_not_continue(tmp_path: Path) -> None:
    trained(small_run(tmp_path), tmp_path / "run")
    newest = checkpoint.found(tmp_path / "run")[-1]
    with pytest.raises(CheckpointError) as caught:
        start(small_run(tmp_path, lr=0.5, batch=3), tmp_path / "run", resume=True)
    changed = "batch 2 -> 3, lr 0.001 -> 0.5"
    assert str(caught.value) == f"{newest}: saved by another run ({changed}); start it in another folder"
    with pytest.raises(UsageError, match=r"run: has step-00000006\.pt already; --resume goes on, --out names another"):
        start(small_run(tmp_path), tmp_path / "run")
    with pytest.raises(UsageError, match=r"empty: no checkpoint to resume from$"):
        start(small_run(tmp_path), tmp_path / "empty", resume=True)


def test_fine_tuning_starts_from_the_parameters_of_another_run(tmp_path: Path) -> None:
    trained(small_run(tmp_path), tmp_path / "base")
    base = checkpoint.found(tmp_path / "base")[-1]
    (tmp_path / "docs").mkdir()
    for name in "abcdefghijklmnopqrstuvwxyz":
        (tmp_path / "docs" / f"{name}.py").write_text(f'"""The letter {name}."""\n')
    run = small_run(tmp_path, stage="sft", seq=64, data=str(tmp_path / "docs"))
    trainer, journal = start(run, tmp_path / "sft", base=base)
    saved = checkpoint.load(base).network
    assert all(torch.equal(each, saved[name]) for name, each in trainer.network.state_dict().items())
    assert trainer.step == 0
    before = trainer.validate()
    trainer.train(journal)
    assert trainer.validate() < before
    asked = (
        f"26 questions about documented names of {tmp_path / 'docs'}, licence as its owner says; 0 too long for a row"
    )
    assert read(tmp_path / "sft")[0]["text"] == asked
    with pytest.raises(UsageError, match=r"holds model tiny with 320 tokens, this run asks for tiny with 384$"):
        start(small_run(tmp_path, vocab=384), tmp_path / "other", base=base)


def test_out_of_memory_is_predicted_before_anything_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = small_run(tmp_path, model="gpt2", vocab=50304, seq=1024, batch=4096)
    assert main(["train", "--out", str(tmp_path / "run"), *options(run)]) == 2
    message = capsys.readouterr().err
    assert message.startswith(
        "out of memory before the first step: gpt2 with --batch 4096 and --seq 1024 needs 5.04 TB, this machine has "
    )
    assert message.endswith("; less with a smaller --batch and more --accumulate or --checkpointing\n")
    assert not (tmp_path / "run").exists()


def test_the_smallest_device_that_is_enough(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    need = step_memory(trace_run(run)).peak
    check_fits(run, need, "a device")
    with pytest.raises(OutOfMemoryError, match=r", a device has .* \(parameters 3\.47 MB, optimizer 6\.94 MB, "):
        check_fits(run, need - 1, "a device")


def test_a_run_and_a_sample_as_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["train", "--out", str(tmp_path / "run"), *options(small_run(tmp_path)), "--peak", "1 TFLOP/s"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "867,072 parameters; 57 rows of " in shown  # 9 tenths of 2,040 bytes and a separator, in rows of 32
    assert "MFU of cpu, dense fp32, 1 TFLOP/s: model FLOP a token = 6 x matrix parameters" in " ".join(shown.split())
    assert shown.count("step ") == 5
    assert "held out" in shown
    assert main(["sample", str(tmp_path / "run" / "step-00000006.pt"), "def ", "--tokens", "5"]) == 0
    assert capsys.readouterr().out.startswith("def ")
    assert json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[0])["rows"] == 57


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--out", "{tmp}/run", "--data", "{tmp}/empty"], "empty corpus: {tmp}/empty holds no text\n"),
        (["train", "--out", "{tmp}/run", "--peak", "989"], "--peak: '989' is not a quantity in FLOP/s"),
        (["train", "--out", "{tmp}/run", "--data", "{tmp}/text.py", "--stage", "sft"], "empty corpus: {tmp}/text.py"),
        (["train", "--out", "{tmp}/text.py/run", "--data", "{tmp}/text.py"], "cannot write {tmp}/text.py/run: "),
        (["sample", "{tmp}/none.pt", "x"], "{tmp}/none.pt: no such checkpoint\n"),
        (["sample", "{tmp}/text.py", "x"], "{tmp}/text.py: corrupt checkpoint (file is not a zip file); nothing was"),
        (["predict", "--chip", "h20"], "unknown chip 'h20'; did you mean 'h200'?"),
        (["predict", "--json", "{tmp}/no/x.json"], "cannot write {tmp}/no/x.json: there is no folder {tmp}/no\n"),
        (["compare", "--data", "{tmp}/none.json"], "cannot read {tmp}/none.json: No such file or directory\n"),
        (["compare", "--data", "{tmp}/text.py"], "{tmp}/text.py: no JSON (Expecting value: line 1 column 1 (char 0))"),
        (["compare", "--data", "{tmp}/list.json"], "{tmp}/list.json: no measurements of this lab (it has no object"),
        (["compare", "--data", "{tmp}/half.json"], "{tmp}/half.json: configuration 'a': unknown field 'stepz' of a "),
    ],
)
def test_bad_input(arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.py").write_text(TEXT)
    (tmp_path / "empty").mkdir()
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "half.json").write_text('{"configurations": {"a": {"run": {"stepz": 1}}}}')
    small = ["--seq", "32", "--batch", "2", "--steps", "1"] if arguments[0] == "train" else []
    assert main([each.format(tmp=tmp_path) for each in arguments] + small) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(message.format(tmp=tmp_path))
    assert shown.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_that_cannot_be_written_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, _ = start(small_run(tmp_path), tmp_path / "run")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("workloads.training.checkpoint.os.fsync", full)
    with pytest.raises(OutputError, match=r"step-00000001\.pt: \[Errno 28\] No space left on device$"):
        checkpoint.save(tmp_path / "run", trainer.run, 1, trainer.network, trainer.optimizer)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["log.jsonl"]
