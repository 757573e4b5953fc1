"""From PyTorch to executed MLIR: equal numbers at every level, and what cannot be imported says why."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from simulator.errors import TraceError
from workloads.compiler.dialect import canonicalise, from_torch, parse, run, show, to_linalg, to_loops
from workloads.compiler.dialect.text import context
from workloads.compiler.levels import levels


def net(*widths: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for first, second in pairwise(widths):
        layers += [nn.Linear(first, second), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@pytest.mark.parametrize("widths", [(4, 3), (5, 7, 3), (6, 6, 6)])  # the last: shapes do not say what is transposed
def test_an_mlp_gives_what_pytorch_gives(widths: tuple[int, ...]) -> None:
    model, x = net(*widths), torch.linspace(-2, 2, 2 * widths[0]).reshape(2, -1)
    wanted = model(x).detach().numpy()
    module = from_torch(model, x)
    assert run(parse(show(module)), x.numpy())[0] == pytest.approx(wanted, abs=1e-6)
    canonicalise(module, context())
    linalg = to_linalg(module)
    for each in (module, linalg, to_loops(linalg)):
        assert np.allclose(run(each, x.numpy())[0], wanted, atol=1e-6)


def test_transposed_weights_are_folded() -> None:
    module = from_torch(net(5, 7, 3), torch.ones(2, 5))
    assert show(module).count("lab.transpose") == 2
    canonicalise(module, context())
    assert "lab.transpose" not in show(module)


class Written(nn.Module):
    """A network of bare parameters and operators: mm, sub, mul, add of whole tensors and of a row."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = nn.Parameter(torch.randn(4, 6)), nn.Parameter(torch.randn(6, 3))
        self.shift: Tensor
        self.register_buffer("shift", torch.randn(3))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Apply it."""
        hidden = torch.relu(x @ self.first)
        return (hidden @ self.second - y) * y + self.shift


def test_bare_parameters_and_two_arguments() -> None:
    model, x, y = Written(), torch.randn(2, 4), torch.randn(2, 3)
    module = from_torch(model, x, y)
    got = run(to_loops(to_linalg(module)), x.numpy(), y.numpy())[0]
    assert got == pytest.approx(model(x, y).detach().numpy(), abs=1e-5)


class Alpha(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.add(x, y, alpha=2)


class Scaled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Shaped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x.reshape(-1))


@pytest.mark.parametrize(
    ("model", "count", "message"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.GELU()), 1,
         "1/aten.gelu: the dialect has no operation for it "
         "(known: aten.addmm, aten.relu, aten.add, aten.sub, aten.mul, aten.mm)"),
        (Alpha(), 2,
         "the imported program does not give what the module gives: the graph holds no arguments and no strides, "
         "so factors of add, views and transposed activations get lost"),
        (Scaled(), 1, "aten.mul: its other operand is a number, which the graph does not hold"),
        (Shaped(), 1, "aten.relu reads args[0] of [3, 3] as [9]"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported(model: nn.Module, count: int, message: str) -> None:
    with pytest.raises(TraceError) as error:
        from_torch(model, *(torch.ones(3, 3) for _ in range(count)))
    assert str(error.value) == message


def test_the_levels_of_the_lab() -> None:
    found = levels()
    assert [each.name for each in found] == ["imported", "canonicalised", "linalg on memrefs", "loops"]
    assert max(each.error for each in found) < 1e-6
    # two linear layers: weight, bias, product and sum each; two transposes; relu and return
    assert sum(found[0].operations.values()) == 2 * 4 + 2 + 2
    assert sum(found[1].operations.values()) == 2 * 4 + 2  # transposes are folded into the weights
