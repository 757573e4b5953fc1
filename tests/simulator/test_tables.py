"""Rows for people: what they add up to, what is one row, and what it is called."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.graph import OperatorGraph, OpKind, Phase, Role
from simulator.hardware import Execution
from simulator.headline import headline
from simulator.result import Result
from simulator.tables import (
    Row,
    bound_rows,
    bound_text,
    memory_rows,
    module_rows,
    operator_rows,
    phase_rows,
    total_ps,
    uncovered_rows,
)
from simulator.variants import Resource
from tests.simulator.runs import empty, on_units, run, too_large, training, two_layers
from tests.simulator.toys import GraphMaker, toy_chip, with_overheads

US = 10**6


def by_name(rows: list[Row]) -> dict[str, Row]:
    return {row.name: row for row in rows}


def chain(modules: list[str], size: int = 4) -> OperatorGraph:
    maker = GraphMaker()
    for module in modules:
        maker.matmul(size, size, size, module=module)
    return maker.graph


def names(modules: list[str]) -> list[tuple[str, int]]:
    return [(row.name, row.repeats) for row in module_rows(run(chain(modules), toy_chip()))]


def test_modules_of_two_layers_are_one_row_each_and_add_up() -> None:
    rows = module_rows(run(two_layers()))
    assert [(row.name, row.repeats, row.operators, row.time) for row in rows] == [
        ("blocks.*.up", 2, 2, 32_768_000),
        ("blocks.*", 2, 2, 2_048_000),
        ("(top level)", 1, 1, 1_000_000),
        ("(gaps between operators)", 1, 0, 4_000_000),
    ]
    up = rows[0]
    assert (up.flops, up.traffic, up.bound, up.bound_share) == (2 * 524288, 2 * 24576, Resource.COMPUTE, 1.0)
    assert up.flops_per_second == pytest.approx(32e9)
    assert up.share == pytest.approx(32.768 / 39.816)


def test_operators_of_two_layers_are_one_row_most_expensive_first() -> None:
    rows = operator_rows(run(two_layers()))
    assert [(row.name, row.repeats, row.shape) for row in rows] == [
        ("blocks.*.up/mm", 2, "64x64x64"),
        ("blocks.*/add", 2, "4096"),
        ("custom.odd", 1, "8000"),
    ]
    assert [row.time for row in operator_rows(run(two_layers()), 1)] == [rows[0].time]


def test_layers_of_other_sizes_in_one_sequential_stay_apart() -> None:
    maker = GraphMaker()
    for layer in range(3):
        maker.matmul(4, 8, 4, module=f"blocks.{layer}.mlp.0")
        maker.matmul(4, 16, 8, module=f"blocks.{layer}.mlp.2")
    assert [(row.name, row.repeats) for row in module_rows(run(maker.graph, toy_chip()))] == [
        ("blocks.*.mlp.0", 3),
        ("blocks.*.mlp.2", 3),
    ]


def test_layers_that_alternate_are_named_by_their_first_two() -> None:
    maker = GraphMaker()
    for layer in range(6):
        maker.matmul(4, 4, 4 + 4 * (layer % 2), module=f"layers.{layer}")
    assert [row.name for row in module_rows(run(maker.graph, toy_chip()))] == ["layers.{0,2,…}", "layers.{1,3,…}"]


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        (["net.0", "net.2"], [("net.*", 2)]),
        (["net.0"], [("net.0", 1)]),
        (["a.0.experts.0", "a.0.experts.1", "a.1.experts.0", "a.1.experts.1"], [("a.*.experts.*", 4)]),
        (["layer1", "layer2"], [("layer1", 1), ("layer2", 1)]),
        (["0", "1"], [("*", 2)]),
        (["", "x"], [("(top level)", 1), ("x", 1)]),
    ],
)
def test_names(modules: list[str], expected: list[tuple[str, int]]) -> None:
    assert names(modules) == expected


def test_phases_of_a_training_step() -> None:
    rows = phase_rows(run(training(), toy_chip()))
    assert [(row.name, row.operators, row.time) for row in rows] == [
        ("forward", 1, 16_384_000),
        ("backward", 2, 32_768_000),
        ("optimizer", 1, 512_000),
    ]
    module = module_rows(run(training(), toy_chip()))[0]
    assert module.phases == {Phase.FORWARD: 16_384_000, Phase.BACKWARD: 32_768_000}


def test_bounds_add_up_to_the_run_and_say_what_more_would_bring() -> None:
    result = run(two_layers())
    rows = {row.resource: row for row in bound_rows(result)}
    assert {resource: row.time for resource, row in rows.items()} == {
        Resource.COMPUTE: 32_768_000,
        Resource.LAUNCH: 4_000_000,
        Resource.BANDWIDTH: 3_048_000,
    }
    # without compute limits two products of 1.536 us remain: 29.696 us of 39.816 us saved
    assert rows[Resource.COMPUTE].saving == pytest.approx(29.696 / 39.816, rel=1e-5)
    assert sum(row.share for row in rows.values()) == pytest.approx(1)


def test_memory_at_the_peak_adds_up() -> None:
    # inputs and weights of both products, 2 x 2 x 8192 B, and 16000 B; in the first addition y and z, 2 x 8192 B
    rows = memory_rows(run(two_layers()))
    assert {row.role: row.nbytes for row in rows} == {
        Role.INPUT: 2 * 8192 + 16000,
        Role.WEIGHT: 2 * 8192,
        Role.ACTIVATION: 2 * 8192,
    }
    assert sum(row.share for row in rows) == pytest.approx(1)


def test_uncovered_operators_come_with_their_share_of_the_bytes() -> None:
    [row] = uncovered_rows(run(two_layers()))
    assert (row.target, row.count, row.nbytes) == ("custom.odd", 1, 16000)
    assert row.share == pytest.approx(16000 / 97920)


def test_waits_for_the_host_are_a_row_of_their_own() -> None:
    # five operators at 20 us of host each; the device ends 1 us after the last one was submitted
    chip = with_overheads(toy_chip(), host_dispatch=20 * US)
    rows = by_name(module_rows(run(two_layers(), chip, mode="eager")))
    assert rows["(waiting for the host)"].time == 101 * US - 35_816_000


def test_spill_is_a_row_of_its_own_and_the_table_still_adds_up() -> None:
    result = too_large(link=10**9)
    rows = by_name(module_rows(result))
    assert rows["(spill over the host link)"].time == result.spill > 0
    assert sum(row.time for row in rows.values()) == result.time


def test_an_empty_graph_has_no_rows() -> None:
    result = run(empty())
    assert (module_rows(result), operator_rows(result), bound_rows(result), phase_rows(result)) == ([], [], [], [])
    assert [(row.role, row.nbytes) for row in memory_rows(result)] == [(Role.WEIGHT, 1024)]


def test_a_mixed_row_says_what_part_its_bound_is() -> None:
    maker = GraphMaker()
    maker.matmul(64, 64, 64, module="x")  # 16.384 us, compute
    maker.op((maker.storage("a", Role.INPUT, 32768),), (), module="x")  # 65536 B = 4.096 us, bandwidth
    [row] = module_rows(run(maker.graph, toy_chip()))
    assert bound_text(row) == "compute 80 %"


def test_the_verdict_names_the_resource_and_the_gain() -> None:
    top = headline(run(two_layers()))
    assert top.title == "toy prefill, batch 1 of 64 tokens, bf16"
    assert top.verdict == "Bound by compute: with infinitely fast arithmetic the run would take 29.7 us less (75 %)."
    facts = {fact.label: (fact.value, fact.note) for fact in top.facts}
    assert facts["time"] == ("39.82 us", "5 operators, one run")
    # 2 x 524288 FLOP / 39.816 us / 32 GFLOP/s = 82.3 %
    assert facts["MFU"] == ("82 %", "1.05 MFLOP / time / 32 GFLOP/s dense bf16 (multiply-add = 2)")
    assert facts["DRAM use"] == ("15 %", "97.9 kB moved / time / 16 GB/s (data sheet)")
    assert facts["peak memory"] == ("65.2 kB", "fits in 1.05 MB, 983 kB to spare")


def test_the_verdict_of_a_run_that_does_not_fit_says_by_how_much() -> None:
    # weights 2 MiB, input and output 2048 B each; 1 MiB of memory: 1052672 B too much, 3 chips of that size
    for result, ending in (
        (too_large(), "The times are those of the same chip with enough memory."),
        (too_large(link=10**9), "Moving it over the host link takes 1.053 ms of the 1.184 ms."),
    ):
        top = headline(result)
        assert top.verdict == f"Does not fit: 1.05 MB more than the 1.05 MB of the device memory. {ending}"
        assert "3 chips or more" in top.demand


@pytest.mark.parametrize("execution", list(Execution))
@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["", "a", "b.0", "b.1", "b.2.c.0", "b.3.c.1"]), st.integers(1, 40), st.booleans()),
        max_size=14,
    )
)
def test_every_table_adds_up(execution: Execution, work: list[tuple[str, int, bool]]) -> None:
    maker = GraphMaker()
    for module, size, product in work:
        deps = (len(maker.graph) - 1,) if len(maker.graph) % 3 else ()
        if product:
            maker.matmul(size, size, size, deps, module)
        else:
            maker.op((maker.storage(f"s{size}", Role.INPUT, size),), (), deps, OpKind.MOVE, module=module)
    result = run(maker.graph, with_overheads(toy_chip(execution, sram=2**12), launch=300, gap=700))
    _check_sums(result)


def _check_sums(result: Result) -> None:
    work = sum(each.end - each.start for each in result.operators)
    for rows in (module_rows(result), operator_rows(result), phase_rows(result)):
        operators = [row for row in rows if row.operators]
        assert sum(row.time for row in operators) == work
        assert sum(row.operators for row in rows) == len(result.graph)
        assert sum(row.flops for row in rows) == result.graph.flops
        assert sum(row.traffic for row in rows) == result.traffic
        for row in rows:
            assert sum(row.bounds.values()) == row.time
    for rows in (module_rows(result), phase_rows(result)):
        assert sum(row.time for row in rows) == total_ps(result)
        assert not total_ps(result) or sum(row.share for row in rows) == pytest.approx(1)
    assert sum(row.time for row in bound_rows(result)) == result.time
    assert sum(row.nbytes for row in memory_rows(result)) == result.peak_memory_bytes


def test_work_of_units_side_by_side_is_what_the_shares_are_of() -> None:
    result = on_units(two_layers())
    assert total_ps(result) == sum(row.time for row in module_rows(result))
