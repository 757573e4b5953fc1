"""Whole parallel programs against the closed forms of the literature: FLOPs, payload and memory of each rank."""

from collections import Counter
from time import process_time

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from frontends import building, trace_ranks, trace_training_step, world
from simulator.graph import OperatorGraph, OpKind, Phase, Role
from tests.frontends.parallel import Stack, calls, collectives, inputs, payload, reaches, tensor_parallel
from workloads import build

BATCH, SEQ, WIDTH, LAYERS = 2, 16, 32, 3
ACTIVATION = BATCH * SEQ * WIDTH * 4  # b s h in fp32

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")


def single(batch: int = BATCH) -> OperatorGraph:
    with building():
        model, args = Stack(LAYERS, WIDTH), inputs(batch, SEQ, WIDTH)
    return trace_training_step(model, args)


def megatron(mesh: DeviceMesh, sequence: bool) -> tuple[nn.Module, tuple[torch.Tensor]]:
    seq = SEQ // mesh["tp"].size() if sequence else SEQ
    return tensor_parallel(Stack(LAYERS, WIDTH), mesh["tp"], sequence), inputs(BATCH, seq, WIDTH)


def test_tensor_parallel_layer_reduces_its_activations_twice_each_way() -> None:
    # Shoeybi et al., Megatron-LM, section 3: an all-reduce of b s h behind attention and one behind the MLP, and in the
    # backward pass one before each.
    graph = trace_ranks(lambda mesh: megatron(mesh, False), trace_training_step, mesh={"tp": 4})[0]
    once = Counter({("all_reduce", ACTIVATION): 2 * LAYERS})
    assert calls(graph, Phase.FORWARD) == once
    assert calls(graph, Phase.BACKWARD) == once
    assert {op.group for op in collectives(graph)} == {(0, 1, 2, 3)}


def test_sequence_parallel_turns_each_reduction_into_gather_and_scatter() -> None:
    # Korthikanti et al., section 4.2.2: all-reduce = reduce-scatter + all-gather of the same bytes; in the backward
    # pass the input of a column-parallel product is not gathered again here, because it was kept.
    graph = trace_ranks(lambda mesh: megatron(mesh, True), trace_training_step, mesh={"tp": 4})[0]
    both = Counter({("all_gather", ACTIVATION): 2 * LAYERS, ("reduce_scatter", ACTIVATION): 2 * LAYERS})
    assert calls(graph, Phase.FORWARD) == both
    assert calls(graph, Phase.BACKWARD) == both


@pytest.mark.parametrize("sequence", [False, True])
def test_ranks_of_tensor_parallelism_do_the_work_of_one_device_together(sequence: bool) -> None:
    graphs = trace_ranks(lambda mesh: megatron(mesh, sequence), trace_training_step, mesh={"tp": 4})
    assert sum(graph.model_flops for graph in graphs.values()) == single().model_flops


def test_weights_of_tensor_parallelism_are_divided_and_norms_are_not() -> None:
    graph = trace_ranks(lambda mesh: megatron(mesh, False), trace_training_step, mesh={"dp": 2, "tp": 4}, ranks=[5])[5]
    # 12 h^2 weights a layer over 4 ranks, 2 h of the norms on each; gradients the same, AdamW twice; 4 bytes.
    expected = LAYERS * (12 * WIDTH**2 // 4 + 2 * WIDTH) * 4
    sizes = [graph.bytes_of(role) for role in (Role.WEIGHT, Role.GRADIENT, Role.OPTIMIZER)]
    assert sizes == [expected, expected, 2 * expected]
    assert {op.group for op in collectives(graph)} == {(4, 5, 6, 7)}  # rank 5 is the second of the second row


def replicated(mesh: DeviceMesh) -> tuple[nn.Module, tuple[torch.Tensor]]:
    model = DistributedDataParallel(Stack(LAYERS, WIDTH), bucket_cap_mb=0.02)
    return model, inputs(BATCH // mesh["dp"].size(), SEQ, WIDTH)


def test_torchs_own_data_parallel_reduces_each_gradient_once() -> None:
    graphs = trace_ranks(replicated, trace_training_step, mesh={"dp": 2})
    assert payload(graphs[0], "all_reduce") == graphs[0].bytes_of(Role.WEIGHT)
    assert sum(graph.model_flops for graph in graphs.values()) == single().model_flops
    assert {dims[0] for dims in calls(graphs[0])} == {"all_reduce"}


def replicated_wide(mesh: DeviceMesh) -> tuple[nn.Module, tuple[torch.Tensor]]:
    return DistributedDataParallel(Stack(LAYERS, 256), bucket_cap_mb=1), inputs(1, SEQ, 256)


def test_torchs_own_data_parallel_reduces_while_the_backward_pass_goes_on() -> None:
    graph = trace_ranks(replicated_wide, trace_training_step, mesh={"dp": 2}, ranks=[0])[0]
    reduces = collectives(graph)
    assert len(reduces) > 2
    assert sum(each.reads for each in reduces) == graph.bytes_of(Role.WEIGHT)
    products = [op.id for op in graph if op.kind is OpKind.MATMUL and op.id > reduces[0].id]
    assert products
    assert not any(reaches(graph, reduces[0].id, product) for product in products)
    assert all(reaches(graph, each.id, len(graph) - 1) for each in reduces)  # the optimizer waits for all


def sharded(mesh: DeviceMesh) -> tuple[nn.Module, tuple[torch.Tensor]]:
    model = Stack(LAYERS, WIDTH)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    return model, inputs(BATCH // mesh["dp"].size(), SEQ, WIDTH)


def test_torchs_own_fsdp_moves_the_parameters_three_times() -> None:
    # Rajbhandari et al., ZeRO, section 7.2.2: gathered forward and backward, gradients scattered.
    graphs = trace_ranks(sharded, trace_training_step, mesh={"dp": 2})
    whole = single().bytes_of(Role.WEIGHT)
    assert payload(graphs[0], "all_gather") == 2 * whole
    assert payload(graphs[0], "reduce_scatter") == whole
    assert sum(graph.model_flops for graph in graphs.values()) == single().model_flops
    assert graphs[0].bytes_of(Role.WEIGHT) == whole // 2
    assert graphs[0].bytes_of(Role.OPTIMIZER) == whole
    assert not graphs[0].uncovered


def test_fsdp_gathers_the_next_layer_while_this_one_computes() -> None:
    graph = trace_ranks(sharded, trace_training_step, mesh={"dp": 2}, ranks=[0])[0]
    gathers = [op for op in collectives(graph) if op.phase is Phase.FORWARD and "gather" in op.target]
    scatters = [op for op in collectives(graph) if "scatter" in op.target]
    for layer, gather in enumerate(gathers[1:]):
        products = [
            op.id for op in graph if op.kind is OpKind.MATMUL and f"layers.{layer}." in op.module and op.id < gather.id
        ]
        assert len(products) == 6  # of the layer before, all launched earlier and none waited for
        assert not any(reaches(graph, product, gather.id) for product in products)
    # The first gradients that are scattered are the last layer's; the layer before it computes meanwhile.
    later = [op.id for op in graph if op.kind is OpKind.MATMUL and "layers.1." in op.module and op.id > scatters[0].id]
    assert len(later) == 12
    assert not any(reaches(graph, scatters[0].id, op) for op in later)


def test_fsdp_gives_gathered_weights_back_after_each_layer() -> None:
    graph = trace_ranks(sharded, trace_training_step, mesh={"dp": 2}, ranks=[0])[0]
    gathered = [
        each for each in graph.storages if "split_with_sizes_copy" in each.name and each.nbytes == 4 * WIDTH**2 * 4
    ]
    assert len(gathered) == 2 * 2 * LAYERS  # up and down, forward and backward
    lives = []
    for each in gathered:
        uses = [op.id for op in graph if each.id in {t.storage for t in (*op.inputs, *op.outputs)}]
        lives.append(range(min(uses), max(graph.released.get(each.id, 0), *uses)))
    most = max(sum(op.id in life for life in lives) for op in graph)
    assert most <= 2 * 2  # this layer and the next that is on its way


def test_a_step_of_80_layers_on_8_ranks_is_traced_in_seconds() -> None:
    start = process_time()
    with world(8, rank=0, mesh={"tp": 8}) as mesh:
        program = build("llama-70b", phase="train", batch=1, seq=4096)
        with building():
            for block in program.module.blocks:  # type: ignore[union-attr]
                names = ("attention.q", "attention.k", "attention.v", "ffn.gate", "ffn.up")
                plan = {name: ColwiseParallel() for name in names}
                rows = {name: RowwiseParallel() for name in ("attention.o", "ffn.down")}
                parallelize_module(block, mesh["tp"], {**plan, **rows})
        graph = trace_training_step(program.module, program.args, loss=program.loss, dtype="bf16")
    assert process_time() - start < 15
    reduced = 4096 * 8192 * 2
    assert calls(graph, Phase.FORWARD) == {("all_reduce", reduced): 2 * 80}
    # Backward: torch reduces the gradient of each column-parallel product's input by itself: q, k, v, gate and up.
    assert calls(graph, Phase.BACKWARD) == {("all_reduce", reduced): 5 * 80}
