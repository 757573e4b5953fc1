"""Real training: the digits are learnt in seconds, and a loss that is not a number stops the run."""

import time
from pathlib import Path

import numpy as np
import pytest

from simulator.errors import UsageError
from workloads.autograd import MLP, SGD, AdamW
from workloads.autograd.__main__ import main
from workloads.autograd.digits import load_digits
from workloads.autograd.training import DivergedError, train, train_step


def test_the_data_are_whole() -> None:
    data = load_digits()
    assert (data.train.shape, data.test.shape, data.train.dtype.name) == ((1437, 64), (360, 64), "float32")
    assert (data.train.min(), data.train.max()) == (0, 1)
    counts = np.bincount(np.concatenate([data.train_labels, data.test_labels]))
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # as published


@pytest.mark.parametrize("seed", range(3))
def test_two_layers_learn_the_digits(seed: int) -> None:
    started = time.process_time()
    model = MLP((64, 128, 10), np.random.default_rng(seed)).cast(np.float32)
    *_, last = train(model, AdamW(model.parameters(), 3e-3), load_digits(seed), epochs=15, batch=32, seed=seed)
    assert last.accuracy > 0.95
    assert last.steps == 15 * 45
    assert time.process_time() - started < 10


def test_equal_seeds_give_equal_parameters() -> None:
    runs = []
    for _ in range(2):
        model = MLP((64, 16, 10), np.random.default_rng(7))
        list(train(model, SGD(model.parameters(), 0.1, momentum=0.9), load_digits(), epochs=1, batch=64))
        runs.append(model.parameters()[0].data)
    assert (runs[0] == runs[1]).all()


def test_a_loss_that_is_not_a_number_stops_before_the_step() -> None:
    model = MLP((64, 16, 10), np.random.default_rng(0))
    optimizer = SGD(model.parameters(), 0.1)
    before = [each.data.copy() for each in model.parameters()]
    images = load_digits().train[:8].copy()
    images[3, 5] = np.nan
    with pytest.raises(DivergedError) as caught:
        train_step(model, optimizer, images, load_digits().train_labels[:8], step=12)
    assert str(caught.value) == "loss is nan at step 12: the step is not taken; try a learning rate below 0.1"
    assert all((a == b.data).all() for a, b in zip(before, model.parameters(), strict=True))


def test_a_learning_rate_that_is_too_large_is_noticed() -> None:
    model = MLP((64, 16, 10), np.random.default_rng(0)).cast(np.float32)
    with pytest.raises(DivergedError, match=r"^loss is (nan|inf) at step \d+: .* below 1e\+20$"):
        list(train(model, SGD(model.parameters(), 1e20), load_digits(), epochs=5, batch=32))


def test_epochs_and_batches_are_at_least_one() -> None:
    model = MLP((64, 10), np.random.default_rng(0))
    with pytest.raises(UsageError, match=r"^training: 0 epochs in batches of 32: both must be at least 1$"):
        list(train(model, SGD(model.parameters(), 0.1), load_digits(), epochs=0, batch=32))


def test_the_command_trains_and_says_how_far_it_got(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--epochs", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["step", "45"], ["step", "90"]]


def test_the_command_draws(tmp_path: Path) -> None:
    assert main(["draw", str(tmp_path / "graph.svg")]) == 0
    assert (tmp_path / "graph.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--hidden", "0"], "Linear(64, 0): both sizes must be at least 1"),
        (["train", "--rate", "0"], "learning rate 0.0: must be above 0"),
        (["train", "--rate", "1e30"], "loss is nan at step 2: the step is not taken; try a learning rate below 1e+30"),
        (["draw", "graph"], "cannot draw graph: the name must end in .png, .svg, .pdf"),
    ],
)
def test_the_command_refuses_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"{message}\n"
