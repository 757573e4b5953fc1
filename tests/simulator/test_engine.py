"""The engine against values worked out by hand, the critical path, and a plain recurrence."""

from collections.abc import Generator, Sequence

import networkx as nx
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from simulator.channel import Channel
from simulator.costs import Cost, Unit
from simulator.engine import Schedule, play
from simulator.errors import DeadlockError
from simulator.graph import OperatorGraph, Role
from simulator.hardware import Chip, Execution
from simulator.program import Mode, Program, place
from tests.simulator.toys import GraphMaker, cost, toy_chip, with_overheads

NS = 1000  # picoseconds


def run(graph: OperatorGraph, costs: Sequence[Cost], chip: Chip, mode: Mode = Mode.GRAPH) -> Schedule:
    return play(graph, costs, chip, place(graph, costs, chip, mode))


def spans(schedule: Schedule) -> list[tuple[int, int]]:
    return list(zip(schedule.start, schedule.end, strict=True))


def chain(length: int) -> OperatorGraph:
    maker = GraphMaker()
    for index in range(length):
        maker.op(deps=(index - 1,) if index else ())
    return maker.graph


def test_a_stream_runs_one_operator_after_another_with_a_gap() -> None:
    #   |==10==| 2 |==4==|          12 to 16
    chip = with_overheads(toy_chip(), gap=2 * NS)
    costs = [cost(compute=10 * NS), cost(Unit.VECTOR, memory=4 * NS)]
    assert spans(run(chain(2), costs, chip)) == [(0, 10 * NS), (12 * NS, 16 * NS)]


def test_in_eager_mode_short_kernels_wait_for_the_host() -> None:
    # host    |--5--|--5--|----10----|      submits at 5, 10, 20 (the last has two framework calls)
    # device        |1|   |1|        |1|
    maker = GraphMaker()
    for dispatches in (1, 1, 2):
        maker.op(dispatches=dispatches)
    chip = with_overheads(toy_chip(), host_dispatch=5 * NS)
    schedule = run(maker.graph, [cost(compute=NS)] * 3, chip, Mode.EAGER)
    assert spans(schedule) == [(5 * NS, 6 * NS), (10 * NS, 11 * NS), (20 * NS, 21 * NS)]


def test_in_eager_mode_long_kernels_hide_the_host() -> None:
    # host    |5|5|5|
    # device    |==20==|==20==|==20==|
    chip = with_overheads(toy_chip(), host_dispatch=5 * NS)
    schedule = run(chain(3), [cost(compute=20 * NS)] * 3, chip, Mode.EAGER)
    assert spans(schedule) == [(5 * NS, 25 * NS), (25 * NS, 45 * NS), (45 * NS, 65 * NS)]


def test_a_captured_graph_is_submitted_once() -> None:
    chip = with_overheads(toy_chip(), host_dispatch=5 * NS, host_submit=7 * NS)
    assert spans(run(chain(1), [cost(compute=NS)], chip)) == [(7 * NS, 8 * NS)]


def test_units_run_side_by_side_where_nothing_depends() -> None:
    # matrix  |====10====|
    # vector  |=4=|          independent, and no memory traffic to share
    maker = GraphMaker()
    maker.op()
    maker.op()
    costs = [cost(compute=10 * NS), cost(Unit.VECTOR, compute=4 * NS)]
    assert spans(run(maker.graph, costs, toy_chip(Execution.UNITS))) == [(0, 10 * NS), (0, 4 * NS)]


def test_units_wait_for_each_others_results() -> None:
    # matrix  |==6==|        |==6==|
    # vector        |===9===|
    costs = [cost(compute=6 * NS), cost(Unit.VECTOR, compute=9 * NS), cost(compute=6 * NS)]
    schedule = run(chain(3), costs, toy_chip(Execution.UNITS))
    assert spans(schedule) == [(0, 6 * NS), (6 * NS, 15 * NS), (15 * NS, 21 * NS)]


def test_two_units_share_the_memory_fairly() -> None:
    # Alone: matrix 6 ns of traffic, vector 2 ns.  Together each gets half the bandwidth:
    #   0..4   both at half rate: vector has its 2, matrix has 2 of 6
    #   4..8   matrix alone: the other 4
    maker = GraphMaker()
    maker.op()
    maker.op()
    costs = [cost(memory=6 * NS), cost(Unit.VECTOR, memory=2 * NS)]
    assert spans(run(maker.graph, costs, toy_chip(Execution.UNITS))) == [(0, 8 * NS), (0, 4 * NS)]


def layers(count: int, shared: Cost) -> tuple[OperatorGraph, list[Cost]]:
    """A chain of matmuls with 32 B of weights each, all of its traffic."""
    maker = GraphMaker()
    for index in range(count):
        maker.op((maker.storage(f"w{index}", Role.WEIGHT, 16),), deps=(index - 1,) if index else ())
    return maker.graph, [shared] * count


def test_weights_of_the_next_layer_are_fetched_while_this_one_computes() -> None:
    # 10 ns of arithmetic and 8 ns of weights; 64 B on chip, half of it for the next layer's weights.
    #   matrix  |===10===|===10===|===10===|
    #   own     |==8==|  |=6=|    |4|          what did not come ahead, beside the arithmetic
    #   ahead         |2|    |=4=|   |=6=|     whenever the memory is free: 2 ns, then 4
    graph, costs = layers(3, Cost(Unit.MATRIX, 10 * NS, 0, 10 * NS, 8 * NS, traffic=32))
    ahead = run(graph, costs, toy_chip(Execution.UNITS, sram=64))
    assert spans(ahead) == [(0, 10 * NS), (10 * NS, 20 * NS), (20 * NS, 30 * NS)]
    assert ahead.prefetch == [(1, 8 * NS, 10 * NS), (2, 16 * NS, 20 * NS)]


def test_a_long_layer_hides_the_fetch_of_a_layer_bound_by_its_weights() -> None:
    # 20 ns of arithmetic and no traffic, then 1 ns of arithmetic and 8 ns of weights: they came during the 20.
    graph, (_, _) = layers(2, cost())
    costs = [cost(compute=20 * NS), Cost(Unit.MATRIX, 8 * NS, 0, NS, 8 * NS, traffic=32)]
    schedule = run(graph, costs, toy_chip(Execution.UNITS, sram=64))
    assert spans(schedule) == [(0, 20 * NS), (20 * NS, 21 * NS)]
    assert schedule.prefetch == [(1, 0, 8 * NS)]


def test_a_quarter_of_the_weights_fits_and_the_rest_is_streamed() -> None:
    # As above with 8 of 32 B in half of 16 B of memory: 2 of the 8 ns come ahead, 6 are left beside 1 of arithmetic.
    graph, (_, _) = layers(2, cost())
    costs = [cost(compute=20 * NS), Cost(Unit.MATRIX, 8 * NS, 0, NS, 8 * NS, traffic=32)]
    schedule = run(graph, costs, toy_chip(Execution.UNITS, sram=16))
    assert spans(schedule) == [(0, 20 * NS), (20 * NS, 26 * NS)]


def test_a_layer_that_streams_leaves_no_room_for_a_fetch() -> None:
    # 10 ns of weights against 2 ns of arithmetic: the memory is never free, and 20 ns of it are needed.
    graph, costs = layers(2, Cost(Unit.MATRIX, 10 * NS, 0, 2 * NS, 10 * NS, traffic=32))
    schedule = run(graph, costs, toy_chip(Execution.UNITS, sram=64))
    assert spans(schedule) == [(0, 10 * NS), (10 * NS, 20 * NS)]
    assert schedule.prefetch == []


@given(
    layers_=st.lists(st.tuples(*(st.integers(0, 40) for _ in range(3))), min_size=1, max_size=12),
    sram=st.integers(0, 60), more=st.integers(0, 60),
)  # fmt: skip
def test_more_memory_is_never_slower_and_fetching_ahead_never_costs(
    layers_: list[tuple[int, int, int]], sram: int, more: int
) -> None:
    graph, _ = layers(len(layers_), cost())
    costs = [
        Cost(Unit.MATRIX, (launch + max(compute, memory)) * NS, launch * NS, compute * NS, memory * NS, traffic=32)
        for launch, compute, memory in layers_
    ]
    little, much = (run(graph, costs, toy_chip(Execution.UNITS, sram=size)) for size in (sram, sram + more))
    assert much.makespan <= little.makespan <= sum(each.time for each in costs)
    assert much.makespan >= sum(each.memory for each in costs)


def test_units_that_wait_for_each_other_are_named() -> None:
    program = Program({"matrix": [2, 0], "vector": [1]})  # matrix has its two operators the wrong way round
    with pytest.raises(DeadlockError) as caught:
        play(chain(3), [cost(compute=NS)] * 3, toy_chip(Execution.UNITS), program)
    assert str(caught.value) == "nothing can run any more at 0 ps: matrix waits at op2; vector waits at op1"


def test_a_stream_that_waits_for_itself_is_named() -> None:
    with pytest.raises(DeadlockError, match=r"^nothing can run any more at 0 ps: stream waits at op1$"):
        play(chain(2), [cost(compute=NS)] * 2, toy_chip(), Program({"stream": [1, 0]}))


def test_a_channel_serves_three_transfers_fairly() -> None:
    # 12, 6 and 3 bytes at 1 B/ps, all at 0: a third each until 9 (3 has its 3), halves until 15, then alone to 21.
    env = simpy.Environment()
    channel = Channel(env, 10**12)
    ends: dict[int, float] = {}

    def pass_on(size: int) -> Generator[simpy.Event, None, None]:
        yield from channel.transfer(size)
        ends[size] = env.now

    for size in (12, 6, 3):
        env.process(pass_on(size))
    env.run()
    assert ends == {3: 9, 6: 15, 12: 21}


@st.composite
def programs(draw: st.DrawFn) -> tuple[OperatorGraph, list[Cost]]:
    maker, costs = GraphMaker(), []
    for index in range(draw(st.integers(1, 25))):
        deps = draw(st.sets(st.integers(0, index - 1), max_size=3)) if index else set()
        maker.op(deps=tuple(sorted(deps)))
        times = [draw(st.integers(0, 50)) * NS for _ in range(3)]
        costs.append(cost(draw(st.sampled_from([Unit.MATRIX, Unit.VECTOR, Unit.DMA])), *times))
    return maker.graph, costs


@given(programs())
def test_no_schedule_beats_the_critical_path_or_the_memory(drawn: tuple[OperatorGraph, list[Cost]]) -> None:
    graph, costs = drawn
    digraph = graph.to_networkx()
    weighted: nx.DiGraph[int] = nx.DiGraph()
    weighted.add_nodes_from(digraph)
    weighted.add_node(-1)
    weighted.add_edges_from((dep, op, {"ps": costs[dep].time}) for dep, op in digraph.edges)
    weighted.add_edges_from((op, len(costs), {"ps": costs[op].time}) for op in digraph)
    makespan = run(graph, costs, toy_chip(Execution.UNITS)).makespan
    assert makespan >= nx.dag_longest_path_length(weighted, weight="ps")
    assert makespan >= sum(each.memory for each in costs)
    assert makespan <= sum(each.time for each in costs) + len(costs)  # sharing costs at most a picosecond each


@given(programs(), st.integers(0, 3))
def test_a_stream_equals_the_plain_recurrence(drawn: tuple[OperatorGraph, list[Cost]], gap: int) -> None:
    graph, costs = drawn
    clock, expected = 0, []
    for each in costs:
        expected.append((clock, clock + each.time))
        clock += each.time + gap
    assert spans(run(graph, costs, with_overheads(toy_chip(), gap=gap))) == expected


@given(programs())
def test_without_traffic_units_equal_list_scheduling(drawn: tuple[OperatorGraph, list[Cost]]) -> None:
    graph, costs = drawn
    costs = [cost(each.unit, compute=each.compute, launch=each.launch) for each in costs]
    free: dict[Unit, int] = {}
    ends: list[int] = []
    for op, each in zip(graph, costs, strict=True):
        start = max([free.get(each.unit, 0), *(ends[dep] for dep in op.deps)])
        ends.append(start + each.time)
        free[each.unit] = ends[-1]
    assert list(run(graph, costs, toy_chip(Execution.UNITS)).end) == ends


@given(programs(), st.sampled_from(Execution))
def test_the_same_input_gives_the_same_schedule(drawn: tuple[OperatorGraph, list[Cost]], execution: Execution) -> None:
    graph, costs = drawn
    first, second = (run(graph, costs, toy_chip(execution, sram=64)) for _ in range(2))
    assert (spans(first), first.prefetch) == (spans(second), second.prefetch)
