"""The engine's step as an operator graph beside the one that is traced from PyTorch, and the law on both."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from frontends import trace_training_step
from hw_models import load_chip
from simulator.dims import MatmulDims, RowDims
from simulator.dtypes import DType
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role
from simulator.simulation import simulate
from workloads.autograd import MLP, SGD, AdamW, Tensor, cross_entropy, softmax
from workloads.autograd.export import owner_of, recording, touched
from workloads.autograd.lab import step_graph
from workloads.autograd.law import Case, cases, count
from workloads.autograd.modules import Embedding, LayerNorm, Linear, Sequential
from workloads.autograd.networks import resnet9
from workloads.autograd.optimizers import Optimizer

ROWS = 32


def ours(sizes: tuple[int, ...], make: type[Optimizer] = AdamW) -> OperatorGraph:
    model = MLP(sizes, np.random.default_rng(0)).cast(np.float32)
    optimizer = make(model.parameters(), 1e-3)
    x, labels = Tensor(np.ones((ROWS, sizes[0]), np.float32)), np.zeros(ROWS, np.int64)
    with recording(model, optimizer) as step:
        cross_entropy(model(x), labels).backward()
        optimizer.step()
    return step.graph


def theirs(sizes: tuple[int, ...], optimizer: str) -> OperatorGraph:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    labels = torch.zeros(ROWS, dtype=torch.int64, device="meta")

    def loss(logits: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits, labels)

    return trace_training_step(
        nn.Sequential(*layers[:-1]), (torch.ones(ROWS, sizes[0]),), loss=loss, optimizer=optimizer
    )


def rows_of(op: Operator) -> RowDims | None:
    """Sizes of products differ: PyTorch keeps weights transposed."""
    return op.dims if isinstance(op.dims, RowDims) else None


@pytest.mark.parametrize("sizes", [(64, 128, 10), (16, 8), (32, 64, 64, 64, 4)], ids=str)
@pytest.mark.parametrize(("make", "name"), [(AdamW, "adamw"), (SGD, "sgd")])
def test_operator_for_operator_what_pytorch_does(sizes: tuple[int, ...], make: type[Optimizer], name: str) -> None:
    ours_list, theirs_list = (
        [(op.phase, op.target, op.kind, op.flops, op.reads, rows_of(op)) for op in graph]
        for graph in (ours(sizes, make), theirs(sizes, name))
    )
    assert ours_list == theirs_list


@pytest.mark.parametrize("sizes", [(64, 128, 10), (32, 64, 64, 64, 4)], ids=str)
def test_bytes_and_products_of_each_phase_are_pytorchs(sizes: tuple[int, ...]) -> None:
    for phase in Phase:
        ours_of, theirs_of = (  # torch's loss has a second output: the sum of weights
            [
                sum(op.writes for op in graph if op.phase is phase and op.target != "aten.nll_loss_forward"),
                sum(op.flops for op in graph if op.phase is phase and op.kind is OpKind.MATMUL),
            ]
            for graph in (ours(sizes), theirs(sizes, "adamw"))
        )
        assert ours_of == theirs_of


def test_by_hand() -> None:
    # 32 rows, 64 -> 128 -> 10.  forward 2 x 32 x (64 x 128 + 128 x 10); backward: W of both layers, x of the second
    graph = ours((64, 128, 10))
    found = count(graph)
    assert found.forward == 2 * 32 * (64 * 128 + 128 * 10)
    assert found.backward == found.forward + 2 * 32 * 128 * 10
    first = graph.operators[0]
    assert (first.module, first.dims) == ("layers.0", MatmulDims(m=32, n=128, k=64))
    assert first.reads == 4 * (32 * 64 + 64 * 128 + 128)  # rows, weights, bias
    update = graph.operators[-1]
    parameters = 64 * 128 + 128 + 128 * 10 + 10
    assert (update.phase, update.flops, update.nbytes) == (Phase.OPTIMIZER, 14 * parameters, 7 * 4 * parameters)


def test_roles_names_and_phases() -> None:
    graph = ours((64, 128, 10))
    parameters = 4 * (64 * 128 + 128 + 128 * 10 + 10)
    assert graph.bytes_of(Role.WEIGHT) == graph.bytes_of(Role.GRADIENT) == parameters
    assert graph.bytes_of(Role.OPTIMIZER) == 2 * parameters
    assert graph.bytes_of(Role.INPUT) == 4 * 32 * 64 + 8 * 32  # images and labels
    assert [s.name for s in graph.storages if s.role is Role.GRADIENT] == [
        "layers.2.weight.grad", "layers.2.bias.grad", "layers.0.weight.grad", "layers.0.bias.grad",
    ]  # fmt: skip
    assert Counter(op.module for op in graph if op.phase is Phase.BACKWARD) == {
        "": 2, "layers.2": 3, "layers.1": 1, "layers.0": 2,
    }  # fmt: skip


def test_momentum_is_a_state_that_the_update_reads_and_writes() -> None:
    model = MLP((8, 4), np.random.default_rng(0)).cast(np.float32)
    sgd = SGD(model.parameters(), 0.1, momentum=0.9)
    with recording(model, sgd) as step:
        model(Tensor(np.ones((3, 8), np.float32))).sum().backward()
        sgd.step()
    update = step.graph.operators[-1]
    assert (update.flops, update.reads, update.writes) == (4 * 36, 3 * 4 * 36, 2 * 4 * 36)


def test_the_same_step_takes_the_same_time_on_a_chip() -> None:
    chip = load_chip("h200")
    mine, other = (simulate(graph, chip) for graph in (ours((64, 128, 10)), theirs((64, 128, 10), "adamw")))
    assert mine.time == pytest.approx(other.time, rel=0.02)
    assert mine.peak_memory_bytes == pytest.approx(other.peak_memory_bytes, rel=0.02)
    assert mine.uncovered == {}


def test_rows_by_the_axes_of_the_work() -> None:
    x = Tensor(np.ones((2, 3, 4)))
    with recording(MLP((4, 2), np.random.default_rng(0))) as step:
        softmax(x, 1)
        x.sum((0, 1))
        x.mean(-1)
        x.max()
    # softmax along 3 elements that are 4 apart; 4 sums of 6; 6 means of 4; one maximum of 24
    assert [op.dims for op in step.graph] == [RowDims(8, 3, 4), RowDims(4, 6, 4), RowDims(6, 4), RowDims(1, 24)]


def test_a_type_of_the_device_replaces_numpys() -> None:
    graph = step_graph((64, 128, 10), 32)
    assert {op.dtype for op in graph} == {DType.BF16}
    assert graph.bytes_of(Role.WEIGHT) == 2 * (64 * 128 + 128 + 128 * 10 + 10)
    assert graph.bytes_of(Role.INPUT) == 2 * 32 * 64 + 8 * 32  # labels stay as they are


def test_an_embedding_multiplies_nothing() -> None:
    generator = np.random.default_rng(0)
    model = Sequential(Embedding(100, 16, generator), LayerNorm(16), Linear(16, 100, generator)).cast(np.float32)
    words = np.arange(20) % 7
    with recording(model) as step:
        cross_entropy(model(Tensor(words)), words).backward()
    found = count(step.graph)
    assert (found.forward, found.backward) == (2 * 20 * 16 * 100, 2 * 2 * 20 * 16 * 100)
    gather = next(op for op in step.graph if op.target == "aten.index")
    assert (gather.reads, gather.flops) == (4 * 20 * 16 + 8 * 20, 0)  # rows, not the table, and the indices


def test_a_convolution_is_a_product() -> None:
    model = resnet9(np.random.default_rng(0)).cast(np.float32)
    with recording(model) as step:
        model(Tensor(np.ones((1, 3, 32, 32), np.float32))).sum().backward()
    # output positions x inputs x taps x outputs of each layer, 8 x 8 after the first, then 4 x 4, 2 x 2, 1 x 1
    macs = 64 * 3 * 49 * 16 + 16 * 16 * 9 * 32 + 2 * 16 * 32 * 9 * 32 + 4 * 32 * 9 * 64 + 64 * 9 * 128
    macs += 2 * 128 * 9 * 128 + 128 * 128 + 128 * 10
    assert count(step.graph).forward == 2 * macs


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_the_law_and_its_exceptions(case: Case) -> None:
    found = count(case.graph())
    assert found.backward / found.forward == case.backward
    assert found.recompute / found.forward == case.recompute


def test_the_engine_obeys_the_law_in_the_middle_of_a_network() -> None:
    model = MLP((16, 16, 16), np.random.default_rng(0))
    for needs, ratio in ((True, 2.0), (False, 1.5)):
        with recording(model) as step:
            model(Tensor(np.ones((4, 16)), requires_grad=needs)).sum().backward()
        found = count(step.graph)
        assert found.backward == ratio * found.forward


def test_views_lead_to_their_owner_and_repeats_count_once() -> None:
    array = np.zeros((4, 6))
    windows = np.lib.stride_tricks.sliding_window_view(array, 3, axis=1)
    for view in (array.T, array.reshape(24)[3:], np.broadcast_to(array, (5, 4, 6)), windows):
        assert owner_of(view) is array
    assert touched(np.broadcast_to(array, (5, 4, 6))) == 24
    assert touched(windows) == 24


def test_a_recording_ends_even_when_the_program_fails() -> None:
    model = MLP((8, 4), np.random.default_rng(0))
    with pytest.raises(ZeroDivisionError), recording(model):
        raise ZeroDivisionError
    with recording(model) as second:
        model(Tensor(np.ones((3, 8))))
    assert len(second.graph) == 1
