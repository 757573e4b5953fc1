"""Data parallelism and ZeRO: bytes on the wire, bytes in memory, and what may overlap with what."""

from itertools import pairwise

import pytest

from simulator.graph import Operator, OperatorGraph, OpKind, Role
from simulator.parallel.gradients import reduced
from simulator.parallel.plan import Plan
from simulator.parallel.shard import shard
from simulator.parallel.stage import Stage
from tests.frontends.parallel import reaches
from tests.simulator.shards import EXPERTS, calls, collectives, dims, payload, small, step

CONFIG = small("llama-8b")
GRAPH = step(CONFIG)
PSI = GRAPH.bytes_of(Role.WEIGHT)  # bytes of all parameters, a multiple of 8
TABLE = 256 * 64 * 2  # the embedding, and the head
LAYER = sum(each.nbytes for each in GRAPH.storages if each.name.startswith("blocks.1.") and each.role is Role.WEIGHT)
REPLICAS = (0, 1, 2, 3)


def stage(**plan: object) -> Stage:
    return shard(GRAPH, Plan(dp=4, **plan))[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("zero", "volume"),
    [
        # Rajbhandari et al. 2020, section 7, in payloads: an all-reduce is a reduce-scatter and an all-gather of psi.
        (0, {"all_reduce": PSI}),
        (1, {"reduce_scatter": PSI, "all_gather": PSI}),
        (2, {"reduce_scatter": PSI, "all_gather": PSI}),
        (3, {"reduce_scatter": PSI, "all_gather": 2 * PSI - TABLE}),  # the backward pass reads no embedding
    ],
)
def test_zero_moves_what_the_paper_says(zero: int, volume: dict[str, int]) -> None:
    made = stage(zero=zero)
    found = {
        pattern: sum(payload(graph, REPLICAS, pattern) for graph in (made.forward, made.last_backward, made.optimizer))
        for pattern in ("all_reduce", "reduce_scatter", "all_gather")
    }
    assert {pattern: nbytes for pattern, nbytes in found.items() if nbytes} == volume


@pytest.mark.parametrize(
    ("zero", "parts"),
    [(0, (1, 1, 1)), (1, (1, 1, 4)), (2, (1, 4, 4)), (3, (4, 4, 4))],  # weights, gradients, optimizer
)
def test_zero_keeps_what_the_paper_says(zero: int, parts: tuple[int, int, int]) -> None:
    made = stage(zero=zero)
    assert (made.weight_bytes, made.gradient_bytes, made.optimizer_bytes) == (
        PSI // parts[0],
        PSI // parts[1],
        2 * PSI // parts[2],
    )


@pytest.mark.parametrize(("zero", "bytes_each"), [(0, 18), (1, 2 + 4 + 12 / 4), (2, 2 + 4 / 4 + 12 / 4), (3, 18 / 4)])
def test_mixed_precision_takes_18_bytes_a_parameter(zero: int, bytes_each: float) -> None:
    # Megatron-LM: 2 of the weight, 4 of an fp32 gradient, 12 of the master weight and two moments; the last on 1/dp.
    made = stage(zero=zero, precision="mixed")
    assert made.weight_bytes + made.gradient_bytes + made.optimizer_bytes == bytes_each * (PSI // 2)


def test_the_update_works_on_what_the_replica_has() -> None:
    whole, part = (next(op for op in stage(zero=zero).optimizer if op.target == "adamw") for zero in (0, 1))
    traced = next(op for op in GRAPH if op.target == "adamw")
    assert (whole.flops, whole.reads, whole.writes) == (traced.flops, traced.reads, traced.writes)
    assert (part.flops * 4, part.reads * 4, part.writes * 4) == (traced.flops, traced.reads, traced.writes)


def test_the_update_in_mixed_precision_reads_and_writes_fp32() -> None:
    # Reads gradient, master and two moments (16 bytes), writes master, moments and the bf16 weight (14).
    op = next(op for op in stage(precision="mixed").optimizer if op.target == "adamw")
    assert (op.reads, op.writes) == (16 * PSI // 2, 14 * PSI // 2)


def test_gradients_are_added_to_those_of_the_microbatch_before() -> None:
    once, again = (shard(GRAPH, Plan(), accumulate=each)[0].backward for each in (False, True))
    assert sum(op.reads for op in again) - sum(op.reads for op in once) == PSI
    assert sum(op.writes for op in again) == sum(op.writes for op in once)


def test_buckets_go_out_while_the_backward_pass_goes_on() -> None:
    bucket = 30_000
    plan = Plan(dp=4)
    backward = reduced(shard(GRAPH, plan)[0].backward, plan, 0, frozenset(), bucket=bucket)
    sent = collectives(backward)
    assert len(sent) > 4
    assert sum(dims(op).nbytes for op in sent) == PSI
    assert all(dims(op).nbytes >= bucket for op in sent[:-1])
    later = [op.id for op in backward if op.kind is OpKind.MATMUL and op.id > sent[0].id]
    assert later
    assert not any(reaches(backward, sent[0].id, op) for op in later)
    for op in sent:  # each waits for its own gradients alone
        written = {each.storage for each in op.inputs}
        makers = {other.id for other in backward if other.id < op.id and written & {t.storage for t in other.outputs}}
        assert set(op.deps) == makers


def test_only_the_last_microbatch_reduces_unless_gradients_are_divided() -> None:
    assert not collectives(stage().backward)
    assert not collectives(stage(zero=1).backward)
    divided = stage(zero=2)
    assert divided.backward is divided.last_backward


def test_zero_3_gathers_a_layer_while_the_one_before_computes() -> None:
    made = stage(zero=3)
    for graph in (made.forward, made.backward):
        gathers = [op for op in collectives(graph) if dims(op).pattern == "all_gather"]
        assert [dims(op).nbytes for op in gathers].count(LAYER) == 4
        for before, here in pairwise(gathers[1:]):
            assert here.deps == (here.id - 1,)  # starts with the layer that was gathered before it, not earlier
            users = [op for op in graph if not op.group and op.id > here.id and uses(op, before)]
            assert users
            assert not any(reaches(graph, here.id, op.id) for op in users if op.id < first_use(graph, here))


def uses(op: Operator, gather: Operator) -> bool:
    return not {each.storage for each in op.inputs}.isdisjoint(each.storage for each in gather.outputs)


def first_use(graph: OperatorGraph, gather: Operator) -> int:
    return next(op.id for op in graph if uses(op, gather))


def test_zero_3_holds_two_layers_of_gathered_weights_at_most() -> None:
    made = stage(zero=3)
    for graph in (made.forward, made.backward):
        lives = []
        for gather in (op for op in collectives(graph) if dims(op).pattern == "all_gather"):
            for each in gather.outputs:
                last = max(op.id for op in graph if each.storage in {tensor.storage for tensor in op.inputs})
                lives.append((range(gather.id, last + 1), each.nbytes))
        most = max(sum(nbytes for life, nbytes in lives if op.id in life) for op in graph)
        assert LAYER < most <= 2 * LAYER  # a layer is larger than embedding or head


def test_experts_are_reduced_over_the_replicas_that_hold_them() -> None:
    graph = step(small("qwen3-0.6b", experts=EXPERTS))
    made = shard(graph, Plan(dp=4, ep=2))[0]
    experts = 4 * 3 * 8 * 64 * 64 * 2  # layers, matrices, experts of 64 x 64 in bf16
    assert payload(made.last_backward, (0, 2), "all_reduce") == experts // 2
    assert payload(made.last_backward, REPLICAS, "all_reduce") == graph.bytes_of(Role.WEIGHT) - experts
    assert made.weight_bytes == graph.bytes_of(Role.WEIGHT) - experts // 2
    # Each token's 2 rows of 64 go to their experts and come back, forward and backward, in each of 4 layers.
    rows = 2 * graph.workload.tokens * 64 * 2
    assert calls(made.forward) == {("all_to_all", rows): 2 * 4}
    assert calls(made.backward) == {("all_to_all", rows): 2 * 4}
    assert (made.forward.model_flops + made.backward.model_flops) == graph.model_flops  # on each, for its own tokens
    groups = {op.dims.groups for op in made.forward if op.target.endswith("_grouped_mm")}  # type: ignore[union-attr]
    assert groups == {4}
