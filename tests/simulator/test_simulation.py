"""Whole runs: verdicts, spill, rates and properties, with the roofline model on the toy chip."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hw_models
from simulator import simulate
from simulator.costs import Unit
from simulator.errors import UsageError
from simulator.graph import OperatorGraph, OpKind, Phase, Role
from simulator.hardware import Chip, Execution, Link
from simulator.units import PS_PER_SECOND
from simulator.variants import Resource, scaled
from tests.simulator.toys import GraphMaker, toy_chip, with_overheads

assert hw_models.__name__  # importing it registers the compute models


def layers(*sizes: tuple[int, int, int]) -> OperatorGraph:
    maker = GraphMaker("prefill", tokens=10)
    for index, (m, n, k) in enumerate(sizes):
        maker.matmul(m, n, k, deps=(index - 1,) if index else (), module=f"blocks.{index}")
    return maker.graph


def test_a_small_matmul_is_bound_by_bandwidth_and_a_large_one_by_compute() -> None:
    # 4x4x4:     128 FLOP at 32 GFLOP/s = 4 ns;      3 x 16 x 2 B = 96 B at 16 GB/s     = 6 ns
    # 64x64x64:  524288 FLOP            = 16.384 us; 3 x 4096 x 2 B = 24576 B            = 1.536 us
    result = simulate(layers((4, 4, 4), (64, 64, 64)), toy_chip(), fidelity="roofline")
    assert [(op.seconds, op.bound) for op in result.operators] == [(6e-9, "bandwidth"), (16.384e-6, "compute")]
    assert result.seconds == pytest.approx(16.39e-6, rel=1e-12)
    assert result.bounds == pytest.approx(
        {"compute": 16.384e-6, "bandwidth": 6e-9, "launch": 0, "capacity": 0, "interconnect": 0}
    )
    # without compute limits: 6 ns and 1.536 us remain; without bandwidth limits: 4 ns and 16.384 us
    assert result.savings[Resource.COMPUTE] == pytest.approx(14_848_000, abs=10)
    assert result.savings[Resource.BANDWIDTH] == pytest.approx(2_000, abs=10)
    assert result.bound is Resource.COMPUTE


def test_rates_follow_their_conventions() -> None:
    # 524288 FLOP and 24576 B in 16.384 us on a chip of 32 GFLOP/s and 16 GB/s; 10 tokens
    result = simulate(layers((64, 64, 64)), toy_chip(), fidelity="roofline")
    assert result.mfu == pytest.approx(1.0)
    assert result.bandwidth_use == pytest.approx(24576 / 16e9 / 16.384e-6)
    assert result.tokens_per_second == pytest.approx(10 / 16.384e-6)


def test_elasticities_of_a_run_without_overheads_are_those_of_its_bound() -> None:
    result = simulate(layers((64, 64, 64)), toy_chip(), fidelity="roofline")
    assert result.elasticity[Resource.COMPUTE] == pytest.approx((1 / 1.1 - 1) / 0.1, rel=1e-4)
    assert result.elasticity[Resource.BANDWIDTH] == 0


def test_recomputed_work_is_not_model_flops() -> None:
    graph = layers((4, 4, 4))
    graph.operators.append(replace(graph.operators[0], id=1, phase=Phase.RECOMPUTE))
    assert graph.model_flops == 128
    assert graph.flops == 256


@pytest.mark.parametrize(("phase", "crossings"), [("prefill", 1), ("train", 2)])
def test_what_does_not_fit_crosses_the_host_link(phase: str, crossings: int) -> None:
    # 1 MiB of memory and 2^20 + 24576 B needed: 24576 B too many, at 1 GB/s, once or (training) twice
    maker = GraphMaker(phase)
    maker.storage("big", Role.WEIGHT, 2**19)
    maker.matmul(64, 64, 64)
    result = simulate(maker.graph, toy_chip(link=10**9), fidelity="roofline")
    assert result.overflow == 24576
    assert result.spill == crossings * 24_576_000
    assert result.bound is Resource.CAPACITY
    assert result.time == result.spill + 16_384_000
    assert sum(result.bounds_ps.values()) == result.time


def test_without_a_host_link_the_result_says_only_by_how_much() -> None:
    maker = GraphMaker()
    maker.storage("big", Role.WEIGHT, 2**20)
    maker.matmul(4, 4, 4)
    result = simulate(maker.graph, toy_chip(), fidelity="roofline")
    assert (result.overflow, result.spill, result.bound) == (2**20 + 96, 0, Resource.CAPACITY)


def test_gaps_and_a_waiting_device_count_as_launch() -> None:
    chip = with_overheads(toy_chip(), gap=1000, host_dispatch=20_000)
    graph = layers((4, 4, 4), (4, 4, 4))
    # eager: |--20--|=6=|..|--40--|=6=|  the device waits 20 ns, then 14 ns
    result = simulate(graph, chip, mode="eager", fidelity="fixed")
    assert result.time == 46_000
    assert result.bounds_ps[Resource.LAUNCH] == 34_000
    assert result.bound is Resource.LAUNCH


def test_modules_add_up_to_their_operators() -> None:
    result = simulate(layers((4, 4, 4), (64, 64, 64), (4, 4, 4)), toy_chip(), fidelity="roofline")
    assert sum(module.time for module in result.modules) == sum(op.end - op.start for op in result.operators)
    assert [module.module for module in result.modules] == ["blocks.0", "blocks.1", "blocks.2"]


@pytest.mark.parametrize(
    ("mode", "fidelity", "message"),
    [
        ("grahp", "roofline", "unknown mode 'grahp'; did you mean 'graph'? (known: eager, graph, compile)"),
        ("graph", "roofine", "unknown fidelity 'roofine'; did you mean 'roofline'? (known: "),
    ],
)
def test_unknown_names_come_back_with_the_nearest(mode: str, fidelity: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        simulate(layers((4, 4, 4)), toy_chip(), mode=mode, fidelity=fidelity)
    assert str(caught.value).startswith(message)


sizes = st.lists(st.tuples(*[st.integers(1, 200)] * 3), min_size=1, max_size=6)
chips = st.builds(toy_chip, st.sampled_from(Execution), st.sampled_from([None, 256, 4096]))


@settings(max_examples=40, deadline=None)
@given(sizes, chips, st.sampled_from([Resource.COMPUTE, Resource.BANDWIDTH, Resource.LAUNCH]))
def test_more_of_a_resource_never_takes_longer(shapes: list[tuple[int, int, int]], chip: Chip, more: Resource) -> None:
    graph = layers(*shapes)
    base = simulate(graph, chip, fidelity="roofline").time
    assert simulate(graph, scaled(chip, more, 2), fidelity="roofline").time <= base + len(shapes)


@settings(max_examples=40, deadline=None)
@given(sizes, chips)
def test_a_run_is_never_faster_than_the_roofline_of_the_whole(shapes: list[tuple[int, int, int]], chip: Chip) -> None:
    graph = layers(*shapes)
    result = simulate(graph, chip, fidelity="roofline")
    assert result.seconds >= graph.flops / 32e9 * (1 - 1e-9)
    assert result.seconds >= sum(op.nbytes for op in graph) / 16e9 * (1 - 1e-9)
    assert sum(result.bounds_ps.values()) == result.time
    assert result.time <= PS_PER_SECOND


def test_a_pointwise_operator_uses_the_vector_unit() -> None:
    maker = GraphMaker()
    maker.op((maker.storage("x", Role.INPUT, 8),), (maker.storage("y", Role.ACTIVATION, 8),), flops=8)
    assert maker.graph.operators[0].kind is OpKind.POINTWISE
    (only,) = simulate(maker.graph, toy_chip(), fidelity="roofline").operators
    assert only.cost.unit is Unit.VECTOR


def test_waiting_and_work_add_up_on_a_stream() -> None:
    result = simulate(layers((4, 4, 4), (64, 64, 64)), with_overheads(toy_chip(), gap=3000), fidelity="tile")
    work = sum(op.end - op.start for op in result.operators)
    assert result.waiting == 3000
    assert work + result.waiting == result.time


def test_a_faster_host_is_never_slower_down_to_none_at_all() -> None:
    chips = [with_overheads(toy_chip(), host_dispatch=step, host_submit=5000) for step in (2000, 1, 0)]
    times = [simulate(layers((4, 4, 4), (4, 4, 4)), chip, mode="eager", fidelity="tile").time for chip in chips]
    assert times == sorted(times, reverse=True)


def test_more_memory_spills_less_and_ten_per_cent_never_save_more_than_all() -> None:
    # 3 x 64 x 64 x 2 B = 24,576 B on a device of 16,384 B: 8,192 B cross the host link of 1 GB/s, 8.192 us.  With 10 %
    # more memory 6,554 B do (18,022 B fit): 6.554 us, 1.638 us less.
    chip = toy_chip()
    small = replace(chip.memory["dram"], capacity=16_384)
    chip = replace(
        chip, memory={**chip.memory, "dram": small}, host_link=Link(bandwidth=10**9, source="made up for this test")
    )
    result = simulate(layers((64, 64, 64)), chip, fidelity="roofline")
    assert result.spill == 8_192_000
    less = result.elasticity[Resource.CAPACITY] * 0.1 * result.time
    assert less == pytest.approx(-1_638_000, abs=2_000)
    for resource in Resource:
        assert -result.elasticity[resource] * 0.1 * result.time <= result.savings[resource] + 1
