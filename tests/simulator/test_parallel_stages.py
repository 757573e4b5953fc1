"""Pipeline stages: which layers, what is sent, what two stages share."""

from time import process_time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from frontends import building, trace_training_step
from frontends.hf import hf_arguments, load_hf
from simulator.errors import UsageError
from simulator.graph import Phase, Role
from simulator.parallel.plan import Plan
from simulator.parallel.shard import shard
from simulator.parallel.stages import layers_of_stages
from tests.simulator.shards import BATCH, SEQ, calls, collectives, model_flops, small, step
from workloads import build

ACTIVATION = BATCH * SEQ * 64 * 2


@given(st.integers(1, 90), st.integers(1, 90))
def test_layers_are_divided_evenly_and_in_order(layers: int, stages: int) -> None:
    found = layers_of_stages(layers, stages)
    assert [layer for each in found for layer in each] == list(range(layers))
    assert max(map(len, found)) - min(map(len, found)) <= 1


@pytest.mark.parametrize("name", ["gpt2", "llama-8b"])
@pytest.mark.parametrize("plan", [Plan(pp=2), Plan(pp=4), Plan(pp=2, interleave=2, schedule="interleaved")])
def test_each_stage_sends_one_activation(name: str, plan: Plan) -> None:
    stages = shard(step(small(name)), plan)
    assert [stage.index for stage in stages] == list(range(plan.chunks))
    assert [stage.send_bytes for stage in stages] == [ACTIVATION] * (plan.chunks - 1) + [0]


def test_with_sequence_parallelism_each_rank_sends_its_tokens() -> None:
    stages = shard(step(small("llama-8b")), Plan(pp=2, tp=4, sp=True))
    assert stages[0].send_bytes == ACTIVATION // 4


def test_stages_hold_the_model_together() -> None:
    graph = step(small("llama-8b"))
    stages = shard(graph, Plan(pp=4))
    for role, held in ((Role.WEIGHT, "weight_bytes"), (Role.GRADIENT, "gradient_bytes")):
        assert sum(getattr(stage, held) for stage in stages) == graph.bytes_of(role)
    assert model_flops(stages) == graph.model_flops
    assert stages[1].activation_bytes == stages[2].activation_bytes
    assert [len(stage.forward) for stage in stages[1:3]] == [len(stages[1].forward)] * 2


def test_an_embedding_that_is_the_head_too_is_on_both_ends_and_summed() -> None:
    graph = step(small("gpt2"))
    stages = shard(graph, Plan(pp=2, tp=2))
    table = 256 * 64 * 2 // 2
    assert [calls(stage.optimizer) for stage in stages] == [{("all_reduce", table): 1}] * 2
    assert {op.group for stage in stages for op in collectives(stage.optimizer)} == {(0, 2)}
    assert (
        sum(stage.weight_bytes for stage in stages)
        == sum(
            -(-each.nbytes // 2) if divided(each.name) else each.nbytes
            for each in graph.storages
            if each.role is Role.WEIGHT
        )
        + table
    )


def divided(name: str) -> bool:
    """Whether tensor parallelism divides a parameter of GPT-2: matrices and column biases, no norms, no positions."""
    whole = ("norm", "position", "o.bias", "down.bias")
    return not any(each in name for each in whole)


def test_collectives_of_a_stage_are_between_its_own_ranks() -> None:
    stages = shard(step(small("llama-8b")), Plan(dp=2, tp=2, pp=2))
    groups = [{op.group for op in collectives(stage.last_backward)} for stage in stages]
    assert groups == [{(0, 1), (0, 2)}, {(4, 5), (4, 6)}]


def test_rotations_and_masks_are_made_on_each_stage() -> None:
    sizes = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 4}
    module = load_hf("llama", {**sizes, "intermediate_size": 128, "vocab_size": 256})
    args, kwargs = hf_arguments(module, "train", BATCH, SEQ)
    graph = trace_training_step(module, args, kwargs, dtype="bf16")
    stages = shard(graph, Plan(pp=2))
    assert stages[0].send_bytes == ACTIVATION
    assert [sum(op.target == "aten.cos" for op in stage.forward) for stage in stages] == [1, 1]


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        shard(step(small("llama-8b")), Plan(pp=5, tp=3))
    assert str(caught.value) == (
        "plan dp=1,tp=3,pp=5,ep=1: tp=3 does not divide 8 attention heads; tp=3 and 4 key/value heads: neither divides "
        "the other; pp=5 stages for 4 layers"
    )


def test_stages_of_a_model_without_layers_are_refused() -> None:
    with building():
        module, args = nn.Linear(4, 4), (torch.empty(2, 4),)
    with pytest.raises(UsageError) as caught:
        shard(trace_training_step(module, args), Plan(pp=2))
    assert str(caught.value) == "plan dp=1,tp=1,pp=2,ep=1: pp=2, but no layers are repeated in the model"


def test_70b_is_divided_in_seconds() -> None:
    made = build("llama-70b", phase="train", batch=1, seq=4096)
    graph = trace_training_step(made.module, made.args, loss=made.loss, workload=made.workload, dtype="bf16")
    start = process_time()
    stages = shard(graph, Plan(dp=4, tp=8, pp=4, sp=True, zero=1))
    assert process_time() - start < 4
    assert model_flops(stages) * 8 == graph.model_flops
    assert {op.phase for stage in stages for op in stage.forward} == {Phase.FORWARD}
