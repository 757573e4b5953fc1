"""The engine beside PyTorch, step by step from the same start, in float64."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import nn

from workloads.autograd import MLP, SGD, AdamW, Module, Tensor, cross_entropy
from workloads.autograd.modules import BatchNorm, Conv, LayerNorm
from workloads.autograd.networks import convolution
from workloads.autograd.optimizers import Optimizer

STEPS = {"adamw": 1000, "sgd with momentum": 200, "sgd": 200}
Pair = tuple[Callable[[list[Tensor]], Optimizer], Callable[[list[nn.Parameter]], torch.optim.Optimizer]]
OPTIMIZERS: dict[str, Pair] = {
    "adamw": (
        lambda p: AdamW(p, 3e-3, (0.9, 0.99), 1e-8, 0.05),
        lambda p: torch.optim.AdamW(p, 3e-3, (0.9, 0.99), 1e-8, 0.05),
    ),
    "sgd with momentum": (
        lambda p: SGD(p, 0.05, momentum=0.9, decay=0.01),
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.01),
    ),
    "sgd": (lambda p: SGD(p, 0.05), lambda p: torch.optim.SGD(p, 0.05)),
}


def pair(sizes: tuple[int, ...]) -> tuple[MLP, nn.Sequential]:
    """Return the same gelu network twice; PyTorch keeps its weights transposed."""
    ours = MLP(sizes, np.random.default_rng(1), Tensor.gelu)
    layers: list[nn.Module] = []
    for weight, bias in zip(ours.parameters()[::2], ours.parameters()[1::2], strict=True):
        inputs, outputs = weight.shape
        linear = nn.Linear(inputs, outputs, dtype=torch.float64)
        linear.weight.data, linear.bias.data = torch.tensor(weight.data.T), torch.tensor(bias.data)
        layers += [linear, nn.GELU()]
    return ours, nn.Sequential(*layers[:-1])


def farthest(ours: Module, theirs: nn.Module, what: str) -> float:
    """Largest difference over all parameters, of their values or gradients."""
    worst = 0.0
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        other = b.detach() if what == "data" else b.grad
        mine = a.data if what == "data" else a.grad
        assert other is not None
        assert mine is not None
        worst = max(worst, float(np.abs(mine - other.numpy().T).max()))
    return worst


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Operators this small wait longer for a second thread than they compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_step_by_step(name: str) -> None:
    make_ours, make_theirs = OPTIMIZERS[name]
    ours, theirs = pair((6, 16, 12, 4))
    a, b = make_ours(ours.parameters()), make_theirs(list(theirs.parameters()))
    generator = np.random.default_rng(2)
    images, labels = generator.normal(size=(200, 6)), generator.integers(0, 4, 200)
    for step in range(STEPS[name]):
        chosen = generator.integers(0, 200, 16)
        a.zero_grad()
        loss = cross_entropy(ours(Tensor(images[chosen])), labels[chosen])
        loss.backward()
        b.zero_grad()
        wanted = nn.functional.cross_entropy(theirs(torch.tensor(images[chosen])), torch.tensor(labels[chosen]))
        wanted.backward()  # type: ignore[no-untyped-call]
        assert abs(loss.item() - wanted.item()) < 1e-6, step
        assert farthest(ours, theirs, "grad") < 1e-6, step
        a.step()
        b.step()
        assert farthest(ours, theirs, "data") < 1e-6, step


NORMS: dict[str, tuple[Callable[[], Module], Callable[[], nn.Module], tuple[int, ...]]] = {
    "layer": (lambda: LayerNorm(5), lambda: nn.LayerNorm(5, dtype=torch.float64), (2, 3, 5)),
    "batch": (lambda: BatchNorm(5), lambda: nn.BatchNorm1d(5, dtype=torch.float64), (7, 5)),
    "images": (lambda: BatchNorm(3, images=True), lambda: nn.BatchNorm2d(3, dtype=torch.float64), (2, 3, 4, 4)),
}


@pytest.mark.parametrize("name", NORMS)
def test_norms(name: str) -> None:
    make_ours, make_theirs, shape = NORMS[name]
    ours, theirs = make_ours(), make_theirs()
    values = np.random.default_rng(3).normal(2, 3, shape)
    x, y = Tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    out, wanted = ours(x), theirs(y)
    np.testing.assert_allclose(out.data, wanted.detach().numpy(), atol=1e-12)
    (out**3).sum().backward()
    (wanted**3).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    np.testing.assert_allclose(x.grad, y.grad.numpy(), atol=1e-9)
    assert farthest(ours, theirs, "grad") < 1e-9


@pytest.mark.parametrize(("size", "stride"), [(3, 1), (3, 2), (7, 4), (1, 1)])
def test_convolution(size: int, stride: int) -> None:
    conv = Conv(3, 4, size, stride, np.random.default_rng(4))
    values = np.random.default_rng(5).normal(size=(2, 3, 9, 8))
    kernel = torch.tensor(conv.weight.data.T.reshape(4, 3, size, size), requires_grad=True)
    x, y = Tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    wanted = nn.functional.conv2d(y, kernel, torch.tensor(conv.bias.data), stride, size // 2)
    out = conv(x)
    np.testing.assert_allclose(out.data, wanted.detach().numpy(), atol=1e-12)
    (out * out).sum().backward()
    (wanted * wanted).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert y.grad is not None
    assert kernel.grad is not None
    assert conv.weight.grad is not None
    np.testing.assert_allclose(x.grad, y.grad.numpy(), atol=1e-9)
    np.testing.assert_allclose(conv.weight.grad, kernel.grad.numpy().reshape(4, -1).T, atol=1e-9)


def test_a_convolution_block_keeps_its_parameters_in_order() -> None:
    block = convolution(3, 4, 3, 1, np.random.default_rng(0))
    assert list(block.named_parameters()) == [
        "layers.0.weight", "layers.0.bias", "layers.1.gain", "layers.1.bias",
    ]  # fmt: skip
