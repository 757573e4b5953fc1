"""Tensor parallelism by graph passes: against closed forms, and against the same program written with DTensor."""

from collections import Counter

import pytest
import torch
from torch import nn

from frontends import building, trace, trace_ranks, trace_training_step
from frontends.hf import hf_arguments, load_hf
from simulator.dims import AttentionDims
from simulator.errors import UsageError
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role
from simulator.parallel.plan import Plan, parse_plan
from simulator.parallel.shard import shard, shard_inference
from simulator.parallel.stage import Stage
from tests.frontends.parallel import Stack, inputs, tensor_parallel
from tests.simulator.shards import BATCH, EXPERTS, SEQ, calls, collectives, dims, inference, model_flops, small, step
from workloads.gpt.config import Config

ACTIVATION = BATCH * SEQ * 64 * 2  # b s h in bf16
ROWS = BATCH * SEQ * 4  # a number in fp32 for each token
MODELS = [small("gpt2"), small("llama-8b"), small("qwen3-0.6b"), small("llama-8b", parallel=True)]


@pytest.mark.parametrize("config", MODELS, ids=lambda config: config.name)
@pytest.mark.parametrize("plan", ["tp=2", "tp=4,sp", "tp=4,pp=2", "tp=2,pp=4,sp"])
def test_ranks_do_the_work_of_one_device_together(config: Config, plan: str) -> None:
    graph, made = step(config), parse_plan(plan)
    stages = shard(graph, made)
    assert model_flops(stages) * made.tp == graph.model_flops
    assert all(not stage.notes for stage in stages)


@pytest.mark.parametrize("config", MODELS[:3], ids=lambda config: config.name)
def test_a_layer_reduces_its_activations_twice_each_way(config: Config) -> None:
    # Shoeybi et al. 2019, section 3: four all-reduces of b s h a layer; one more each way for the vocabulary
    # (embedding forward, head backward), and three of a number a token for the cross entropy.
    stage = shard(step(config), Plan(tp=4))[0]
    assert calls(stage.forward) == {("all_reduce", ACTIVATION): 2 * 4 + 1, ("all_reduce", ROWS): 3}
    assert calls(stage.backward) == {("all_reduce", ACTIVATION): 2 * 4 + 1}
    assert {op.group for op in collectives(stage.forward)} == {(0, 1, 2, 3)}


@pytest.mark.parametrize("config", MODELS[:3], ids=lambda config: config.name)
def test_sequence_parallelism_gathers_and_scatters_the_same_bytes(config: Config) -> None:
    # Korthikanti et al. 2022, section 4.2.2: an all-reduce becomes a reduce-scatter and an all-gather, and in the
    # backward pass the divided input of each column-parallel group is gathered once more.
    stage = shard(step(config), Plan(tp=4, sp=True))[0]
    pairs, rows = 2 * 4 + 1, Counter({("all_reduce", ROWS): 3})
    both = {("all_gather", ACTIVATION): pairs, ("reduce_scatter", ACTIVATION): pairs}
    assert calls(stage.forward) == Counter(both) + rows
    assert calls(stage.backward) == Counter(both) + Counter({("all_gather", ACTIVATION): pairs})


def test_a_block_that_adds_both_branches_at_once_reduces_once_each_way() -> None:
    # GPT-J and PaLM: attention and feed-forward read one norm, so its gradient is one sum; forward each adds its own.
    stage = shard(step(small("llama-8b", parallel=True)), Plan(tp=4))[0]
    assert calls(stage.backward)[("all_reduce", ACTIVATION)] == 4 + 1


def test_weights_are_divided_and_norms_are_not() -> None:
    config = small("llama-8b")
    stage = shard(step(config), Plan(tp=4))[0]
    # q, o: 64 x 64; k, v: 64 x 32; gate, up, down: 64 x 128; embedding, head: 256 x 64; 2 norms a layer, 1 more.
    divided = 4 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128) + 2 * 256 * 64
    expected = (divided // 4 + 9 * 64) * 2
    assert (stage.weight_bytes, stage.gradient_bytes, stage.optimizer_bytes) == (expected, expected, 2 * expected)


def test_sequence_parallelism_sums_what_each_rank_has_of_a_norms_gradient() -> None:
    # Nine norms of 64; in GPT-2 also the bias behind each row-parallel product, and the positions.
    assert calls(shard(step(small("qwen3-0.6b", qk_norm=False)), Plan(tp=4, sp=True))[0].optimizer) == {
        ("all_reduce", 9 * 64 * 2): 1
    }
    assert calls(shard(step(small("gpt2")), Plan(tp=4, sp=True))[0].optimizer) == {
        ("all_reduce", (2 * 9 * 64 + 2 * 4 * 64 + 64 * 64) * 2): 1
    }


def test_norms_over_heads_are_summed_over_the_ranks_that_share_them() -> None:
    # Qwen3: a norm of head_dim 8 over queries and one over keys, in each of 4 layers.
    assert calls(shard(step(small("qwen3-0.6b")), Plan(tp=4))[0].optimizer) == {("all_reduce", 4 * 2 * 8 * 2): 1}


def test_key_value_heads_are_held_by_several_ranks_if_there_are_too_few() -> None:
    config = small("llama-8b", kv_heads=2)
    graph = step(config)
    stage = shard(graph, Plan(tp=8))[0]
    assert stage.notes == ("2 key/value heads for tp=8: 4 ranks hold each",)
    heads = {(op.dims.heads, op.dims.kv_heads) for op in stage.forward if isinstance(op.dims, AttentionDims)}
    assert heads == {(1, 1)}
    # The 4 ranks of a head have its gradient for their own queries: 64 x 8 of K and of V, in 4 layers.
    assert calls(stage.optimizer) == {("all_reduce", 4 * 2 * 64 * 8 * 2): 1}
    assert collectives(stage.optimizer)[0].group == (0, 1, 2, 3)
    # K and V projections, 64 x 16 each, are done 4 times: three products of 2 x 64 tokens, forward and backward.
    again = 4 * 2 * 3 * 2 * BATCH * SEQ * 64 * 16 * (4 - 1)
    assert model_flops([stage]) * 8 == graph.model_flops + again


def test_a_vocabulary_that_does_not_divide_is_padded() -> None:
    stage = shard(step(small("llama-8b", vocab=257)), Plan(tp=4))[0]
    rows = {
        each.nbytes // (64 * 2) for each in stage.forward.storages if each.name in ("embedding.weight", "head.weight")
    }
    assert rows == {65}


def test_a_router_stays_whole_and_is_reported() -> None:
    config = small("qwen3-0.6b", experts=EXPERTS)
    graph = step(config)
    stage = shard(graph, Plan(tp=4))[0]
    assert stage.notes == (
        "blocks.*.ffn.router.weight stays whole: blocks.*.ffn/aten.topk needs all of its columns (4x)",
    )
    routers = 4 * 3 * 2 * BATCH * SEQ * 64 * 8  # 4 layers, 3 products each, on all 4 ranks instead of one
    assert model_flops([stage]) * 4 == graph.model_flops + 3 * routers


def comparable(op: Operator) -> tuple[object, ...]:
    sent = (dims(op).pattern,) if op.kind is OpKind.COLLECTIVE else (op.module, op.target)
    return (*sent, op.phase, op.kind, op.flops, op.reads, op.writes, op.dims, op.group)


def test_the_graph_is_that_of_the_same_program_written_with_dtensor() -> None:
    # torch's functional all-reduce clones its input first, which Megatron does not: those copies are left out.
    with building():
        single = trace_training_step(Stack(3, 32), inputs(BATCH, 16, 32))

    def written(mesh: object) -> tuple[Stack, tuple[object, ...]]:
        return tensor_parallel(Stack(3, 32), mesh["tp"]), inputs(BATCH, 16, 32)  # type: ignore[index]

    theirs = trace_ranks(written, trace_training_step, mesh={"tp": 4}, ranks=[0])[0]
    stage = shard(single, Plan(tp=4), accumulate=False)[0]
    ours = [*stage.forward, *stage.backward, *stage.optimizer]
    assert [comparable(op) for op in ours] == [comparable(op) for op in theirs if op.target != "aten.clone"]
    assert len(collectives(theirs)) == 4 * 3
    sizes = [theirs.bytes_of(role) for role in (Role.WEIGHT, Role.GRADIENT, Role.OPTIMIZER)]
    assert sizes == [stage.weight_bytes, stage.gradient_bytes, stage.optimizer_bytes]


def products(graph: OperatorGraph | list[Operator]) -> list[tuple[object, ...]]:
    kinds = (OpKind.MATMUL, OpKind.ATTENTION)
    return [(op.module, op.phase, op.dims, op.flops) for op in graph if op.kind in kinds]


def test_with_sequence_parallelism_too_but_for_what_is_gathered_again() -> None:
    with building():
        single = trace_training_step(Stack(3, 32), inputs(BATCH, 16, 32))

    def written(mesh: object) -> tuple[Stack, tuple[object, ...]]:
        return tensor_parallel(Stack(3, 32), mesh["tp"], sequence=True), inputs(BATCH, 4, 32)  # type: ignore[index]

    theirs = trace_ranks(written, trace_training_step, mesh={"tp": 4}, ranks=[0])[0]
    stage = shard(single, Plan(tp=4, sp=True), accumulate=False)[0]
    assert products([*stage.forward, *stage.backward]) == products(theirs)
    whole = ("all_gather", BATCH * 16 * 32 * 4)
    # The single program's input and the first gradient are whole on each rank, where theirs are divided: one gather
    # less each way.  The other 5 inputs of column-parallel products come again in the backward pass.
    assert calls(theirs, Phase.FORWARD)[whole] == calls(theirs, Phase.BACKWARD)[whole] == 6
    assert calls(stage.forward)[whole] == 6 - 1
    assert calls(stage.backward)[whole] == 6 - 1 + 5


HF = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 8, "intermediate_size": 128, "vocab_size": 256}
LLAMA = {**HF, "num_key_value_heads": 4, "head_dim": 8}


@pytest.mark.parametrize(
    ("kind", "config", "attention"),
    [
        ("llama", LLAMA, "sdpa"),
        ("llama", LLAMA, "eager"),
        ("qwen3", LLAMA, "sdpa"),
        ("gpt2", {"n_layer": 2, "n_embd": 64, "n_head": 8, "vocab_size": 256}, "sdpa"),
    ],
)
def test_models_of_hugging_face_are_divided_alike(kind: str, config: dict[str, int], attention: str) -> None:
    module = load_hf(kind, config, attention=attention)
    args, kwargs = hf_arguments(module, "train", BATCH, SEQ)
    graph = trace_training_step(module, args, kwargs, dtype="bf16")
    stage = shard(graph, Plan(tp=4))[0]
    assert not stage.notes
    assert model_flops([stage]) * 4 == graph.model_flops
    assert calls(stage.forward) == {("all_reduce", ACTIVATION): 2 * 2 + 1, ("all_reduce", ROWS): 3}
    assert calls(stage.backward) == {("all_reduce", ACTIVATION): 2 * 2 + 1}


def test_experts_of_hugging_face_reduce_once_behind_each_network() -> None:
    module = load_hf("mixtral", LLAMA)
    args, kwargs = hf_arguments(module, "train", BATCH, SEQ)
    stage = shard(trace_training_step(module, args, kwargs, dtype="bf16"), Plan(tp=4))[0]
    assert stage.notes == (
        "model.layers.*.mlp.gate.weight stays whole: model.layers.*.mlp.gate/aten.topk needs all of its columns (2x)",
    )
    assert calls(stage.forward)[("all_reduce", ACTIVATION)] == 2 * 2 + 1
    assert calls(stage.backward)[("all_reduce", ACTIVATION)] == 2 * 2 + 1


def test_decode_divides_the_cache_and_gathers_the_logits() -> None:
    graph = inference(small("llama-8b"), "decode")
    rank = shard_inference(graph, Plan(tp=4))
    assert rank.bytes_of(Role.CACHE) * 4 == graph.bytes_of(Role.CACHE)
    assert rank.model_flops * 4 == graph.model_flops
    token = BATCH * 64 * 2
    assert calls(rank) == {("all_reduce", token): 2 * 4 + 1, ("all_gather", BATCH * 256 * 2): 1}


def test_decode_of_hugging_face_keeps_its_cache_divided() -> None:
    module = load_hf("llama", LLAMA)
    args, kwargs = hf_arguments(module, "decode", BATCH, 1, SEQ)
    graph = trace(module, args, kwargs, dtype="bf16")
    rank = shard_inference(graph, Plan(tp=4))
    assert rank.bytes_of(Role.CACHE) * 4 == graph.bytes_of(Role.CACHE)
    assert calls(rank) == {("all_reduce", BATCH * 64 * 2): 2 * 2 + 1, ("all_gather", BATCH * 256 * 2): 1}


def test_prefill_divides_its_products() -> None:
    graph = inference(small("gpt2"), "prefill")
    assert shard_inference(graph, Plan(tp=2)).model_flops * 2 == graph.model_flops


def test_what_inference_has_not_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        shard_inference(inference(small("gpt2"), "prefill"), parse_plan("dp=2,tp=2,pp=2,sp", zero=1))
    assert (
        str(caught.value) == "plan dp=2,tp=2,pp=2,ep=1,sp: pp is for training; sp is for training; zero is for training"
    )
    with pytest.raises(UsageError) as caught:
        shard(inference(small("gpt2"), "prefill"), Plan(tp=2))
    assert str(caught.value) == (
        "plan dp=1,tp=2,pp=1,ep=1: the graph of gpt2 has no backward pass; trace a training step"
    )


def stage_of(module: type[nn.Module], *shape: int) -> Stage:
    with building():
        made, args = module(), (torch.empty(shape),)
    return shard(trace_training_step(made, args), Plan(tp=2))[0]


class ThreeProducts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(16, 16, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(torch.relu(self.b(torch.relu(self.a(x)))))  # type: ignore[no-any-return]


def test_products_alternate_between_columns_and_rows() -> None:
    # a: columns, b: rows and a sum of 4 x 16 in fp32, c: columns, whose sum over all is one number.
    stage = stage_of(ThreeProducts, 4, 16)
    assert stage.weight_bytes == 3 * 16 * 16 * 4 // 2
    assert calls(stage.forward) == {("all_reduce", 4 * 16 * 4): 1, ("all_reduce", 4): 1}
    assert calls(stage.backward) == {("all_reduce", 4 * 16 * 4): 1}  # before c; nobody wants the input's gradient


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(8, 16, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cell(x)[0]  # type: ignore[no-any-return]


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.Conv2d(3, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.filters(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("module", "shape", "notes"),
    [
        (Images, (2, 3, 8, 8), ("filters/aten.convolution is done on every rank",)),
        (
            Recurrent,
            (2, 5, 8),
            (
                "cell.weight_ih_l0 stays whole: cell/aten.add needs all of its columns",
                "cell.weight_hh_l0 stays whole: cell/aten.add needs all of its columns",
            ),
        ),
    ],
)
def test_what_cannot_be_divided_is_done_on_every_rank_and_reported(
    module: type[nn.Module], shape: tuple[int, ...], notes: tuple[str, ...]
) -> None:
    stage = stage_of(module, *shape)
    assert stage.notes == notes
    with building():
        made, args = module(), (torch.empty(shape),)
    graph = trace_training_step(made, args)
    assert model_flops([stage]) == graph.model_flops
    assert stage.weight_bytes == graph.bytes_of(Role.WEIGHT)
