"""Lab 9: kernels, FLOPs and bytes of fused programs against the numbers of others."""

import csv
import json

import pytest
import torch
from torch import Tensor, nn

from frontends import trace, trace_training_step
from hw_models import load_chip
from simulator.graph import OperatorGraph
from simulator.passes import INDUCTOR
from simulator.simulation import compiled_graph, simulate
from tests.workloads.lab_cases import CASES
from workloads import build


def rows() -> dict[str, str]:
    with CASES.open(newline="") as file:
        return {row["id"]: row["expected"] for row in csv.DictReader(file) if row["lab"] == "9"}


EXPECTED = rows()


def compiled(graph: OperatorGraph, *more: str) -> OperatorGraph:
    return compiled_graph(graph, load_chip("h200"), passes=(*INDUCTOR, *more)).graph


def meta(*shape: int) -> Tensor:
    return torch.empty(shape, device="meta")


class Convolutions(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return x.sum()


def step(optimizer: str, *layers: nn.Module) -> int:
    """Kernels of one training step, compiled as one model with the loss in it."""
    model = nn.Sequential(Convolutions(*layers))
    graph = trace_training_step(model, [torch.empty(2, 3, 4, 4)], loss=lambda out, *_: out, optimizer=optimizer)
    return len(compiled(graph))


def test_kernels_of_an_optimizer_step() -> None:
    adam, sgd, two = json.loads(EXPECTED["L09-X1"])
    sgd_two, adam_two = two
    pair = nn.Conv2d(3, 16, 3, bias=False), nn.Conv2d(16, 32, 2, bias=False)
    assert step("adamw", nn.Conv2d(3, 32, 3)) == 6 <= adam
    assert step("adamw", *pair) == 10 <= adam_two
    # With SGD one (three) more than tinygrad: it writes convolutions itself, so that a relu is part of them, where a
    # compiler that calls the library has a kernel; and the gradient of the loss, a one, is a constant to it.
    assert step("sgd", nn.Conv2d(3, 32, 3)) == 6 == sgd + 1
    assert step("sgd", *pair) == 10 == sgd_two + 3


class Product(nn.Module):
    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return (a @ b).relu() + c


def test_flops_and_bytes_of_a_product_with_an_epilogue() -> None:
    flops, nbytes = json.loads(EXPECTED["L09-X2"])
    graph = compiled(trace(Product(), [meta(1024, 1024) for _ in range(3)], dtype="fp32"), "epilogue")
    assert len(graph) == 1
    # three operands and the result, 4 MiB each
    assert sum(op.nbytes for op in graph) == nbytes == 4 * 2**22
    # tinygrad counts the comparison of relu, this project counts it as no FLOP: 1,024^2 less
    assert graph.flops == flops - 1024**2


class RMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(meta(4096))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain


def test_bytes_of_a_norm() -> None:
    wanted = json.loads(EXPECTED["L09-X3"])["fused"]
    eager = trace(RMSNorm(), [meta(4096, 4096)], dtype="bf16")
    fused = compiled(eager)
    assert (len(eager), len(fused)) == (6, 1)
    assert sum(op.nbytes for op in fused) == wanted == 2 * 2 * 4096**2 + 2 * 4096
    assert sum(op.nbytes for op in eager) >= 3 * wanted


@pytest.mark.parametrize(("batch", "length"), [(4, 256), (4, 1024)])
def test_gain_of_compilation_in_training(batch: int, length: int) -> None:
    program = build("gpt2", "train", batch=batch, seq=length)
    graph = trace_training_step(
        program.module, program.args, program.kwargs, loss=program.loss, workload=program.workload, dtype="bf16"
    )
    chip = load_chip("a100")
    gain = simulate(graph, chip, "eager").time / simulate(graph, chip, "compile").time
    assert gain == pytest.approx(float(EXPECTED["L09-X5"]), abs=0.1)
