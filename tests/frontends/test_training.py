"""Training steps: phases, module paths, roles, the optimizer, what stays alive and when it dies."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from frontends import trace, trace_training_step
from simulator.graph import OperatorGraph, OpKind, Phase, Role
from tests.frontends.models import Function, Gpt, Mlp, tokens


def peak(graph: OperatorGraph) -> int:
    """Most bytes alive at once, by the rule that `OperatorGraph.released` states, in the order of the operators."""
    last = {s.id: len(graph) - 1 for s in graph.storages if s.role.resident or s.id in graph.outputs}
    first = {s.id: 0 for s in graph.storages if s.role.resident}
    for op in graph:
        for tensor in op.inputs + op.outputs:
            first.setdefault(tensor.storage, op.id)
            last[tensor.storage] = max(last.get(tensor.storage, 0), op.id, graph.released.get(tensor.storage, 0))
    change = [0] * (len(graph) + 1)
    for storage, start in first.items():
        change[start] += graph.storages[storage].nbytes
        change[last[storage] + 1] -= graph.storages[storage].nbytes
    alive, most = 0, 0
    for delta in change:
        alive += delta
        most = max(most, alive)
    return most


def test_phases_and_module_paths() -> None:
    graph = trace_training_step(Mlp(), (torch.ones(4, 8),))
    assert [(op.module, op.target, op.phase.value) for op in graph] == [
        ("up", "aten.addmm", "forward"),
        ("", "aten.silu", "forward"),
        ("down", "aten.mm", "forward"),
        ("", "aten.sum", "forward"),  # the default loss of an output that is no language model's
        ("", "aten.ones_like", "forward"),
        ("down", "aten.mm", "backward"),  # of its weight
        ("down", "aten.mm", "backward"),  # of its input
        ("", "aten.silu_backward", "backward"),
        ("up", "aten.mm", "backward"),
        ("up", "aten.sum", "backward"),  # of its bias
        ("", "adamw", "optimizer"),
    ]
    assert graph.uncovered == {}


def test_names_carry_module_and_phase() -> None:
    graph = trace_training_step(Gpt(2), tokens())
    names = {op.name for op in graph}
    assert {"blocks.1.proj/aten.addmm", "blocks.1.proj/aten.mm (backward)", "adamw (optimizer)"} <= names
    assert {op.module for op in graph if op.kind is OpKind.ATTENTION} == {"blocks.0", "blocks.1"}


def test_recomputed_operators_are_named_so() -> None:
    plain, again = trace_training_step(Gpt(2), tokens()), trace_training_step(Gpt(2, again=True), tokens())
    recomputed = [(op.module, op.target) for op in again if op.phase is Phase.RECOMPUTE]
    forward = [(op.module, op.target) for op in plain if op.phase is Phase.FORWARD]
    for block in ("blocks.0", "blocks.1"):
        # torch stops the recomputation at the last saved tensor: the last product and the sum after it save nothing
        whole = [each for each in forward if each[0].startswith(block)]
        assert [each for each in recomputed if each[0].startswith(block)] == whole[:-2]
    assert plain.model_flops == again.model_flops
    wide = tokens(32, 32)
    assert peak(trace_training_step(Gpt(4, again=True), wide)) < 0.6 * peak(trace_training_step(Gpt(4), wide))


def test_roles_and_sizes() -> None:
    graph = trace_training_step(Mlp(), (torch.ones(4, 8),), dtype="bf16")
    parameters = 8 * 32 + 32 + 32 * 8
    assert graph.bytes_of(Role.WEIGHT) == 2 * parameters
    assert graph.bytes_of(Role.GRADIENT) == 2 * parameters
    assert graph.bytes_of(Role.OPTIMIZER) == 2 * 2 * parameters
    assert graph.bytes_of(Role.INPUT) == 2 * 4 * 8
    gradients = [storage.name for storage in graph.storages if storage.role is Role.GRADIENT]
    assert gradients == ["down.weight.grad", "up.weight.grad", "up.bias.grad"]


@pytest.mark.parametrize(("optimizer", "reads", "writes"), [("adamw", 4, 3), ("sgd", 2, 1)])
def test_the_optimizer_is_one_operator(optimizer: str, reads: int, writes: int) -> None:
    graph = trace_training_step(Mlp(), (torch.ones(4, 8),), optimizer=optimizer)
    step = graph.operators[-1]
    parameters = 4 * (8 * 32 + 32 + 32 * 8)
    assert (step.target, step.phase, step.reads, step.writes) == (
        optimizer,
        Phase.OPTIMIZER,
        reads * parameters,
        writes * parameters,
    )


def test_without_an_optimizer_the_step_ends_with_the_backward_pass() -> None:
    graph = trace_training_step(Mlp(), (torch.ones(4, 8),), optimizer=None)
    assert graph.operators[-1].phase is Phase.BACKWARD
    assert graph.bytes_of(Role.OPTIMIZER) == 0


def test_a_tied_weight_is_one_storage_with_one_gradient() -> None:
    graph = trace_training_step(Gpt(1), tokens())
    assert [s.name for s in graph.storages if s.role is Role.WEIGHT].count("wte.weight") == 1
    assert "head.weight" not in {storage.name for storage in graph.storages}
    # its two gradients are added: of the head and of the lookup
    assert [op.target for op in graph if op.outputs[0].shape == (100, 64) and op.phase is Phase.BACKWARD] == [
        "aten.mm",
        "aten.embedding_dense_backward",
        "aten.add",
    ]


def test_frozen_parameters_get_no_gradient() -> None:
    model = Mlp()
    model.up.requires_grad_(requires_grad=False)
    graph = trace_training_step(model, (torch.ones(4, 8),))
    assert {s.name for s in graph.storages if s.role is Role.GRADIENT} == {"down.weight.grad"}


def test_a_loss_of_the_user() -> None:
    def loss(output: Tensor, x: Tensor) -> Tensor:
        return F.mse_loss(output, x)

    graph = trace_training_step(Mlp(), (torch.ones(4, 8),), loss=loss)
    assert "aten.mse_loss" in {op.target for op in graph}


def test_the_default_loss_of_a_language_model_is_cross_entropy_in_float32() -> None:
    graph = trace_training_step(Gpt(1), tokens(), dtype="bf16")
    (softmax,) = [op for op in graph if op.target == "aten._log_softmax"]
    assert (softmax.inputs[0].shape, softmax.dtype) == ((32, 100), "fp32")


def test_dropout_is_one_kernel_in_training_and_none_in_inference() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1))
    trained = trace_training_step(model, (torch.ones(4, 8),), optimizer=None)
    assert [op.target for op in trained if "dropout" in op.target] == [
        "aten.native_dropout",
        "aten.native_dropout_backward",
    ]
    assert len(trace(model, (torch.ones(4, 8),))) == 1


def test_what_the_program_holds_lives_on_and_what_it_drops_dies() -> None:
    def drops(x: Tensor) -> Tensor:
        for _ in range(4):
            x = x + 1
        return x

    def holds(x: Tensor) -> Tensor:
        kept = [x]
        for _ in range(4):
            kept.append(kept[-1] + 1)
        return kept[-1]

    x = torch.ones(256)  # 1 KiB each: the input, and two at a time against all four
    assert peak(trace(Function(drops), (x,))) == 3 * 1024
    assert peak(trace(Function(holds), (x,))) == 5 * 1024


class Rotary(nn.Module):
    """The shape of the measured Llama's attention: queries that are contiguous by heads."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (z.reshape(b, t, 4, 16).transpose(1, 2) for z in self.qkv(x).split(d, -1))
        a = F.scaled_dot_product_attention(q.contiguous(), k, v)
        return self.out(a.transpose(1, 2).reshape(b, t, d))  # type: ignore[no-any-return]


def test_attention_by_heads_needs_a_copy_back_to_rows() -> None:
    # measured on an H200: one more [tokens, width] a layer stays for the backward pass of Llama, none of GPT-2
    targets = [op.target for op in trace(Rotary(), (torch.ones(2, 8, 64),))]
    assert targets == ["aten.addmm", "aten.clone", "xpusim.attention", "aten.clone", "aten.addmm"]
    by_rows = [op.target for op in trace(Gpt(1), tokens()) if op.module.startswith("blocks")]
    assert "aten.clone" not in by_rows
