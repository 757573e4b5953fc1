"""The cases of lab 1.  L01-X3, the tolerance of gradient checks, is kept by test_autograd_gradients.py beside this."""

import csv
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.workloads.lab_cases import CASES
from workloads.autograd import Tensor, linear
from workloads.autograd.modules import BatchNorm, LayerNorm
from workloads.autograd.networks import mlp_resnet, residual_block, resnet9


def expected(case: str) -> Any:
    with CASES.open(newline="") as file:
        (row,) = [row for row in csv.DictReader(file) if row["id"] == case]
    return json.loads(row["expected"])


def sizes() -> list[int]:
    generator = np.random.default_rng(0)
    networks = (
        residual_block(15, 2, BatchNorm, generator),
        residual_block(784, 100, LayerNorm, generator),
        mlp_resnet(150, 100, 5, 10, generator),
        mlp_resnet(10, 100, 1, 100, generator),
    )
    return [network.count() for network in networks]


COUNTS: dict[str, Callable[[], object]] = {
    "L01-X1": sizes,
    "L01-X2": lambda: resnet9(np.random.default_rng(0)).count(),
}


@pytest.mark.parametrize("case", COUNTS)
def test_parameters(case: str) -> None:
    assert COUNTS[case]() == expected(case)


def test_xor() -> None:
    """L01-X4: two layers with leaky relu of slope 0.5, one step's results and loss."""
    wanted = expected("L01-X4")
    x, y = Tensor([[0, 0], [0, 1], [1, 0], [1, 1]]), Tensor([[0], [1], [1], [0]])
    # the source keeps a neuron's weights in a row: W^T of ours
    w1 = Tensor(np.array([[0.2985, -0.5792], [0.0913, 0.4234]]).T, requires_grad=True)
    b1 = Tensor([-0.4939, 0.189], requires_grad=True)
    w2, b2 = Tensor([[0.5266], [0.2958]], requires_grad=True), Tensor([0.6358], requires_grad=True)
    hidden = linear(x, w1, b1).leaky_relu(0.5)
    out = linear(hidden, w2, b2).leaky_relu(0.5)
    loss = ((out - y) ** 2).mean()
    np.testing.assert_allclose(hidden.data, wanted["H1"], atol=1e-3)
    np.testing.assert_allclose(out.data[:, 0], wanted["H2"], atol=1e-3)
    assert loss.item() == pytest.approx(wanted["loss"], abs=1e-3)
    loss.backward()
    assert b2.grad is not None
    # by hand: all outputs are positive, so d loss / d b2 = 2 x mean(out - y)
    assert b2.grad.item() == pytest.approx(2 * (out.data - y.data).mean(), rel=1e-12)


def test_the_networks_compute() -> None:
    generator = np.random.default_rng(0)
    assert mlp_resnet(8, 6, 2, 3, generator)(Tensor(generator.random((5, 8)))).shape == (5, 3)
    assert resnet9(generator)(Tensor(generator.random((2, 3, 32, 32)))).shape == (2, 10)
