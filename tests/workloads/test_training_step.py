"""One optimizer step: accumulation, checkpointing, casts, decay, clipping, evaluation, sampling."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from simulator.errors import UsageError
from tests.workloads.training_runs import one_thread
from workloads.training.config import Run, checked
from workloads.training.evaluate import evaluate
from workloads.training.network import Network, summed_loss
from workloads.training.packing import IGNORED, Rows
from workloads.training.sampling import sample
from workloads.training.step import accumulate, make_optimizer, train_step

RUN = Run(seq=32, batch=4)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    with one_thread():
        yield


def network(run: Run = RUN) -> Network:
    torch.manual_seed(0)
    return Network(checked(run), run.precision, run.checkpointing)


def batch(rows: int = 4, seq: int = 32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 256, (rows, seq + 1), generator=generator)
    targets = ids[:, 1:].clone()
    targets[0, : seq // 2] = IGNORED  # parts with unequal numbers of targets
    return ids[:, :-1], targets


def gradients(model: Network, parts: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    accumulate(model, parts)
    return {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}


def test_accumulated_gradients_are_those_of_the_big_batch() -> None:
    x, y = batch()
    whole = gradients(network(), [(x, y)])
    for size in (1, 2):  # rows of a part
        parts = gradients(network(), list(zip(torch.split(x, size), torch.split(y, size), strict=True)))
        for name, gradient in whole.items():
            torch.testing.assert_close(parts[name], gradient, rtol=1e-4, atol=1e-6)


def test_the_loss_of_a_step_is_the_mean_over_targets_that_count() -> None:
    x, y = batch()
    loss = accumulate(network(), [(x[:1], y[:1]), (x[1:], y[1:])])
    logits = network()(x)
    by_hand = -logits.log_softmax(-1).gather(-1, y.clamp(min=0)[..., None])[..., 0][y != IGNORED].mean()
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_checkpointing_changes_no_gradient(precision: str) -> None:
    run = replace(RUN, precision=precision)
    kept, again = (gradients(network(replace(run, checkpointing=on)), [batch()]) for on in (False, True))
    assert kept.keys() == again.keys()
    for name, gradient in kept.items():
        assert torch.equal(again[name], gradient), name


def test_autocast_multiplies_in_bf16_over_fp32_parameters() -> None:
    model = network(replace(RUN, precision="bf16"))
    x, y = batch()
    logits = model(x)
    assert logits.dtype == torch.bfloat16
    assert summed_loss(logits, y).dtype == torch.float32
    assert {each.dtype for each in gradients(model, [(x, y)]).values()} == {torch.float32}
    assert model.eval()(x).dtype == torch.float32  # outside of training everything is as the parameters are


def test_only_matrices_decay() -> None:
    model = network()
    matrices, others = make_optimizer(model, replace(RUN, weight_decay=0.3)).param_groups
    assert (matrices["weight_decay"], others["weight_decay"]) == (0.3, 0.0)
    assert {each.dim() for each in matrices["params"]} == {2}
    assert {each.dim() for each in others["params"]} == {1}
    assert len(matrices["params"]) + len(others["params"]) == len(list(model.parameters()))


def test_one_step_of_adamw_by_hand() -> None:
    # the first step of AdamW: both moments are corrected to g and g^2, so that a parameter p moves to
    # p (1 - lr x decay) - lr x g / (|g| + 1e-8), g being the gradient after clipping
    run = replace(RUN, weight_decay=0.1)
    model, twin = network(), network()
    gradient = gradients(twin, [batch()])
    norm = torch.stack([each.norm() for each in gradient.values()]).norm()
    optimizer = make_optimizer(model, run)
    done = train_step(model, optimizer, [batch()], lr=0.01, clip=0.5)
    assert done.norm.item() == pytest.approx(norm.item(), rel=1e-5)
    assert norm > 0.5  # so that it is clipped
    for name, before in twin.named_parameters():
        g = gradient[name] * 0.5 / (norm + 1e-6)
        decay = 0.1 if before.dim() == 2 else 0.0
        wanted = before * (1 - 0.01 * decay) - 0.01 * g / (g.abs() + 1e-8)
        torch.testing.assert_close(model.get_parameter(name), wanted, rtol=1e-4, atol=2e-5)
    assert all(each.grad is None for each in model.parameters())


def test_evaluation_is_the_mean_over_held_out_targets() -> None:
    x, y = batch()
    rows = Rows(x.numpy(), y.numpy())
    model = network()
    with torch.no_grad():
        wanted = summed_loss(model(x), y).item() / int((y != IGNORED).sum())
    assert evaluate(model, rows, count=100, batch=3, device="cpu") == pytest.approx(wanted, rel=1e-5)
    some = evaluate(model, rows, count=2, batch=3, device="cpu")  # rows 0 and 3, evenly spread
    with torch.no_grad():
        wanted = summed_loss(model(x[[0, 3]]), y[[0, 3]]).item() / int((y[[0, 3]] != IGNORED).sum())
    assert some == pytest.approx(wanted, rel=1e-5)


def test_a_model_that_learned_one_row_says_it_again() -> None:
    text = np.frombuffer(b"abcdefgh" * 5, dtype=np.uint8).astype(np.int64)
    x, y = torch.from_numpy(text[None, :32]), torch.from_numpy(text[None, 1:33])
    model = network()
    optimizer = make_optimizer(model, RUN)
    losses = [train_step(model, optimizer, [(x, y)], 3e-3, 1.0).loss.item() for _ in range(25)]
    assert losses[-1] < 0.2 < losses[0]
    assert bytes(sample(model, list(b"abcdefghab"), 12, temperature=0)) == b"cdefghabcdef"
    assert sample(model, list(b"abcdefghab"), 12, temperature=0, stop=ord("f")) == list(b"cde")
    drawn = [sample(model, list(b"xyz"), 8, temperature=2.0, seed=seed) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_what_cannot_be_sampled() -> None:
    with pytest.raises(UsageError, match=r"^empty prompt: needs at least one token$"):
        sample(network(), [], 3)
    with pytest.raises(UsageError, match=r"^200 tokens of prompt and 100 new ones: the model's context is 256$"):
        sample(network(), [1] * 200, 100)
