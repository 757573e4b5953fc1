"""Step times beside the simulation of the same graphs, and of graphs that were traced for themselves."""

import random
from dataclasses import replace

import pytest

from hw_models import load_chip
from simulator import OperatorGraph, simulate
from simulator.dims import AttentionDims
from simulator.dtypes import DType
from simulator.errors import UsageError
from simulator.graph import Operator
from simulator.program import Mode
from simulator.serving import Limits, Request
from simulator.serving.clock import Server
from simulator.serving.composed import Rows, StepShape, chunk_rows, compose
from simulator.serving.family import family
from simulator.serving.fold import fold
from simulator.variants import Resource, scaled
from tests.workloads.serving_models import H200, decodes, gpt2, running, times, traced
from workloads.inference.bounds import Judge, step_bounds
from workloads.inference.times import StepTimes


def prefill(tokens: int) -> StepShape:
    return StepShape(tokens, 1, None, Rows(1, tokens, tokens))


def work(op: Operator) -> tuple[object, ...]:
    return op.name, op.flops, op.reads, op.writes, op.dims, op.deps


@pytest.mark.parametrize("batch", [2, 7, 64])
def test_a_composed_decode_step_is_the_traced_one(batch: int) -> None:
    made, wanted = compose(gpt2(), decodes(batch, 700)), traced("decode", batch, 700)
    assert [work(op) for op in made] == [work(op) for op in wanted]
    assert [[t.shape for t in op.inputs] for op in made] == [[t.shape for t in op.inputs] for op in wanted]


def test_the_head_works_on_sampled_rows_only() -> None:
    names = {gpt2().first.operators[id].name for id in gpt2().head}
    assert names == {"norm/aten.native_layer_norm", "head/aten.mm"}
    head = compose(gpt2(), StepShape(300, 3, None, Rows(3, 100, 100))).operators[-1]
    assert head.flops == 2 * 3 * 768 * 50257


def test_a_step_of_decodes_and_a_chunk_has_the_work_of_both() -> None:
    # Linear layers work on 20 + 50 tokens at once; attention of 20 decodes and of a chunk are kernels of their own.
    both = compose(gpt2(), StepShape(70, 21, Rows(20, 1, 300), Rows(1, 50, 150)))
    one, other = compose(gpt2(), decodes(20, 300)), compose(gpt2(), StepShape(50, 1, None, Rows(1, 50, 150)))
    assert both.flops == one.flops + other.flops
    assert len(both) == len(one) + 12


def test_chunks_keep_their_rows_and_pairs() -> None:
    # 3 + 5 rows; causal pairs 3 x 10 - 3 = 27 and 5 x 9 - 10 = 35
    rows = chunk_rows([(3, 10), (5, 9)])
    pairs = rows.batch * (rows.q * rows.keys - rows.q * (rows.q - 1) // 2)
    assert (rows.batch, rows.q) == (2, 4)
    assert 62 <= pairs <= 62 + rows.batch * rows.q  # keys are whole


@pytest.mark.parametrize("batch", [1, 5, 64, 128])
@pytest.mark.parametrize("keys", [128, 1, 897])
def test_decode_steps_are_those_of_the_simulator(batch: int, keys: int) -> None:
    shape = decodes(batch, keys)
    assert times().of(shape) == pytest.approx(simulate(times().graph(shape), H200).time, rel=5e-4)


def test_prefill_steps_are_those_of_the_simulator() -> None:
    for tokens in (32, 128, 1024):
        assert times().of(prefill(tokens)) == pytest.approx(
            simulate(times().graph(prefill(tokens)), H200).time, rel=5e-4
        )


def test_a_composed_prefill_is_close_to_the_traced_one() -> None:
    # The traced one has no cache to write (copy_), and copies its attention's result into place (clone).
    def without(graph: OperatorGraph, target: str) -> int:
        result = simulate(graph, H200)
        copies = [
            cost.time + H200.overheads.gap for op, cost in zip(graph, result.costs, strict=True) if op.target == target
        ]
        return result.time - sum(copies)

    for tokens in (104, 1000):
        wanted = without(traced("prefill", 1, tokens), "aten.clone")
        assert without(times().graph(prefill(tokens)), "aten.copy_") == pytest.approx(wanted, rel=0.01)


@pytest.mark.parametrize(("chip", "most"), [("h200", 0.025), ("edge-npu", 0.03)])
def test_what_is_interpolated_is_close(chip: str, most: float) -> None:
    draw, hardware = random.Random(4), load_chip(chip)
    for _ in range(8):
        batch, q, keys = draw.randint(1, 255), draw.randint(10, 900), draw.randint(100, 1000)
        shape = StepShape(batch + q, batch + 1, Rows(batch, 1, keys), Rows(1, q, q))
        wanted = simulate(times(chip).graph(shape), hardware).time
        assert times(chip).of(shape) == pytest.approx(wanted, rel=most), shape


@pytest.mark.parametrize("chip", ["h200", "edge-npu"])
def test_many_steps_at_once_take_as_long_as_one_by_one(chip: str) -> None:
    step, total = running([100, 101, 650]), 0
    found = times(chip).run(step, 300, 1 << 62)
    for _ in range(300):
        total += times(chip).time(step)
        for each in step.decodes:
            each.computed += 1
    assert found == (300, total)


def test_steps_end_at_the_first_one_that_starts_too_late() -> None:
    step = running([100])
    one = times().time(step)
    assert times().run(step, 300, 1)[0] == 1
    assert times().run(step, 300, one)[0] == 1
    assert times().run(step, 300, one + 1)[0] == 2


def test_a_request_alone_takes_its_steps() -> None:
    # 64 prompt tokens, then decodes at 65, 66 and 67 positions.
    log = Server(Limits(context=1024, blocks=100), times()).serve([Request(0, 0, 64, 4)])
    (only,) = log.served
    assert only.ttft == times().of(prefill(64))
    assert only.latency == only.ttft + sum(times().decode(1, keys) for keys in (65, 66, 67))


def test_the_folded_model_costs_as_much() -> None:
    folded = fold(gpt2())
    assert (len(gpt2().first), sum(folded.times)) == (len(gpt2().first), len(gpt2().first))
    assert len(folded.times) < 0.4 * len(gpt2().first)
    shape, model = decodes(16, 400), times().model
    whole = sum(cost.time for cost in model.costs(compose(gpt2(), shape)))
    parts = zip(model.costs(compose(folded.family, shape)), folded.times, strict=True)
    assert sum(cost.time * count for cost, count in parts) == whole


def test_more_bandwidth_is_never_slower() -> None:
    faster = StepTimes(gpt2(), scaled(H200, Resource.BANDWIDTH, 2))
    for shape in (decodes(1, 1000), decodes(100, 1000), prefill(512)):
        assert faster.of(shape) <= times().of(shape)


def test_eager_steps_are_bound_by_the_host() -> None:
    eager = StepTimes(gpt2(), H200, Mode.EAGER)
    shape = decodes(8, 512)
    assert eager.of(shape) == pytest.approx(simulate(eager.graph(shape), H200, mode="eager").time, rel=0.01)
    assert eager.of(shape) > 2 * times().of(shape)


def test_captured_graphs_are_padded() -> None:
    captured = StepTimes(gpt2(), H200, captured=(8, 64))
    assert captured.of(decodes(9, 128)) - times().attention(Rows(9, 1, 128)) == (
        times().of(decodes(64, 128)) - times().attention(Rows(64, 1, 128))
    )
    assert captured.of(decodes(65, 128)) == times().of(decodes(65, 128))


def test_a_smaller_type_of_cache_reads_less() -> None:
    small = StepTimes(gpt2(), H200, cache=DType.FP8)
    one, two = (each.graph(decodes(256, 1000)) for each in (times(), small))
    # of 12 layers: 256 sequences x 1000 positions x 2 x 768 elements, one byte less each
    assert sum(op.reads for op in one) - sum(op.reads for op in two) == 12 * 256 * 1000 * 2 * 768
    assert small.of(decodes(256, 1000)) < times().of(decodes(256, 1000))


def test_bounds_add_up_and_name_the_host() -> None:
    shares = Judge(times()).shares(decodes(1, 128))
    assert sum(shares.values()) == pytest.approx(1)
    assert max(shares, key=lambda each: shares[each]) is Resource.LAUNCH
    spent = {decodes(1, 128): 10**9, decodes(256, 1024): 10**9}
    assert sum(step_bounds(times(), spent).values()) == pytest.approx(2 * 10**9, abs=5)


def test_bounds_of_a_folded_model_are_those_of_the_whole() -> None:
    shape = decodes(64, 1000)
    added, wanted = Judge(times()).shares(shape), simulate(times().graph(shape), H200)
    for resource in (Resource.COMPUTE, Resource.BANDWIDTH, Resource.LAUNCH):
        assert added[resource] == pytest.approx(wanted.bounds_ps[resource] / wanted.time, abs=0.01)


def test_a_model_that_ignores_its_batch_cannot_be_served() -> None:
    with pytest.raises(UsageError) as error:
        family(lambda phase, batch, length: traced("decode", 4, 64))
    assert str(error.value) == (
        "gpt2: blocks.0.attention/xpusim.attention works on 4 x 1 positions where a decode step of 2 sequences was "
        "asked for; a factory must take phase, batch, seq and context"
    )


def test_a_model_without_a_cache_cannot_be_served() -> None:
    def bare(phase: str, batch: int, length: int) -> OperatorGraph:
        graph = traced(phase, batch, length)
        graph.operators = [replace(op, dims=None) if isinstance(op.dims, AttentionDims) else op for op in graph]
        return graph

    with pytest.raises(UsageError, match=r"^gpt2: no fused attention in its decode step \("):
        family(bare)


def test_a_model_that_changes_with_its_batch_cannot_be_served() -> None:
    def odd(phase: str, batch: int, length: int) -> OperatorGraph:
        graph = traced(phase, batch, length)
        if batch == 5:
            graph.operators.pop()
        return graph

    with pytest.raises(UsageError, match=r"^gpt2: \d+ operators at one size and \d+ at another; cannot be batched$"):
        family(odd)
