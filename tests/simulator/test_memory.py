"""Lifetimes and peak memory, worked out by hand, and conservation as a property."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hw_models import load_chip
from simulator.graph import OperatorGraph, Phase, Role, Tensor, Workload
from simulator.memory import library_workspace, memory_timeline
from tests.simulator.toys import GraphMaker, toy_chip


def test_an_activation_lives_from_its_producer_to_its_last_reader() -> None:
    # bytes: weight 20, x 40, a 60, b 80; a is read by op1 only, b is returned
    #   op0  x -> a   20 + 40 + 60      = 120
    #   op1  a -> b   20 + 40 + 60 + 80 = 200   the peak
    #   op2  b -> c   20 + 40 + 80 + 2  = 142
    maker = GraphMaker()
    maker.storage("weight", Role.WEIGHT, 10)
    x, a, b, c = (
        maker.storage(name, role, size)
        for name, role, size in (
            ("x", Role.INPUT, 20),
            ("a", Role.ACTIVATION, 30),
            ("b", Role.ACTIVATION, 40),
            ("c", Role.ACTIVATION, 1),
        )
    )
    maker.op((x,), (a,))
    maker.op((a,), (b,), (0,))
    maker.op((b,), (c,), (1,))
    timeline = memory_timeline(maker.graph, [0, 1, 2])
    assert timeline.total.tolist() == [120, 200, 142]
    assert (timeline.peak, timeline.peak_operator) == (200, 1)
    assert timeline.at_peak() == {Role.WEIGHT: 20, Role.INPUT: 40, Role.ACTIVATION: 140}


def test_what_the_program_returns_or_still_holds_stays() -> None:
    # a (2 B) is returned, b (4 B) is held until op2, d (8 B) dies with its only use
    maker = GraphMaker()
    for name, size in (("a", 1), ("b", 2), ("d", 4), ("e", 8)):
        maker.op((), (maker.storage(name, Role.ACTIVATION, size),))
    maker.graph.outputs = frozenset({0})
    maker.graph.released = {1: 2}
    assert memory_timeline(maker.graph, [0, 1, 2, 3]).total.tolist() == [2, 6, 14, 18]


def test_lifetimes_follow_the_schedule_and_not_the_order_of_ids() -> None:
    # op1 runs before op0: each output dies at once
    maker = GraphMaker()
    maker.op((), (maker.storage("a", Role.ACTIVATION, 1),))
    maker.op((), (maker.storage("b", Role.ACTIVATION, 2),))
    timeline = memory_timeline(maker.graph, [5, 0])
    assert timeline.order.tolist() == [1, 0]
    assert timeline.total.tolist() == [4, 2]


def test_an_empty_graph_needs_what_is_resident() -> None:
    graph = OperatorGraph(Workload("empty"))
    graph.add_storage("w", Role.WEIGHT, 100)
    timeline = memory_timeline(graph, [])
    assert (timeline.peak, timeline.peak_operator, timeline.at_peak()) == (100, None, {})


@given(st.lists(st.tuples(st.integers(1, 50), st.sets(st.integers(0, 20), max_size=3)), min_size=1, max_size=20))
def test_the_timeline_equals_a_count_by_brute_force(drawn: list[tuple[int, set[int]]]) -> None:
    maker = GraphMaker()
    made: list[Tensor] = []
    for index, (size, reads) in enumerate(drawn):
        sources = tuple(made[i] for i in sorted(reads) if i < index)
        made.append(maker.storage(f"t{index}", Role.ACTIVATION, size))
        maker.op(sources, (made[-1],))
    total = memory_timeline(maker.graph, list(range(len(drawn)))).total
    uses = [{t.storage for t in op.inputs + op.outputs} for op in maker.graph]
    for place in range(len(drawn)):
        born = {s for use in uses[: place + 1] for s in use}
        needed = {s for use in uses[place:] for s in use}
        assert total[place] == sum(maker.graph.storages[s].nbytes for s in born & needed)
    assert np.all(total <= sum(s.nbytes for s in maker.graph.storages))


def one_product(phase: Phase) -> OperatorGraph:
    maker = GraphMaker()
    operator = maker.matmul(4, 4, 4)
    maker.graph.operators[0] = replace(operator, phase=phase)
    return maker.graph


def test_a_library_keeps_a_workspace_for_each_thread_and_stream() -> None:
    # 32 MiB for the program's thread; gradients have a thread of their own; a captured graph has a second stream
    h200 = load_chip("h200")
    forward, backward = (one_product(phase) for phase in (Phase.FORWARD, Phase.BACKWARD))
    assert library_workspace(forward, h200, captured=False) == 32 * 2**20
    assert library_workspace(forward, h200, captured=True) == 2 * 32 * 2**20
    assert library_workspace(backward, h200, captured=False) == 2 * 32 * 2**20
    assert library_workspace(forward, toy_chip(), captured=True) == 0
    assert library_workspace(GraphMaker().graph, h200, captured=True) == 0
    assert memory_timeline(forward, [0], workspace=100).at_peak()[Role.WORKSPACE] == 100


def test_an_allocator_hands_out_whole_blocks_and_says_what_is_alive() -> None:
    # blocks of 512 B: 20 B of x, 600 B of weight and 514 B of y take 512 + 1024 + 1024; z of 2 B comes when x and the
    # weight are still there (resident): at the second operator weight, x, y and z
    maker = GraphMaker()
    x, weight = maker.storage("x", Role.INPUT, 10), maker.storage("weight", Role.WEIGHT, 300)
    y, z = maker.storage("y", Role.ACTIVATION, 257), maker.storage("z", Role.ACTIVATION, 1)
    maker.op((x, weight), (y,))
    maker.op((y,), (z,), (0,))
    timeline = memory_timeline(maker.graph, [0, 1], allocation=512)
    assert timeline.total.tolist() == [512 + 1024 + 1024, 512 + 1024 + 1024 + 512]
    assert [maker.graph.storages[each].name for each in timeline.held] == ["x", "weight", "y", "z"]
