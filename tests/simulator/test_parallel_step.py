"""One step of a parallel plan on a toy chip, worked out by hand: what overlaps, what is exposed, what idles."""

from array import array
from collections.abc import Sequence

import pytest

from simulator.costs import Cost, register_model
from simulator.dims import CollectiveDims
from simulator.dtypes import DType
from simulator.engine import Schedule
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role
from simulator.hardware import Chip, Execution
from simulator.links import Demand
from simulator.parallel.played import NOTHING, Played, Player, Prices, slowed
from simulator.parallel.step import Part, play_step
from simulator.units import transfer_ps
from simulator.variants import Resource
from tests.simulator.toys import GraphMaker, cost, toy_chip, with_overheads

NS = 1000


@register_model("traffic")
class TrafficModel:
    """Every operator takes the time of its bytes; a collective would take very long, if its cost were looked at."""

    ideal = False

    def __init__(self, chip: Chip) -> None:
        self.bandwidth = chip.dram_bandwidth

    def costs(self, graph: OperatorGraph) -> list[Cost]:
        return [
            cost(memory=10**15 if op.kind is OpKind.COLLECTIVE else transfer_ps(op.nbytes, self.bandwidth))
            for op in graph
        ]


def network(pattern: str, size: int, ranks: Sequence[int]) -> Demand:
    """1 GB/s for all patterns, one kind of link, no latency."""
    del pattern, ranks
    return Demand(0, {"wire": size * NS})


def kinds(collective: Operator) -> str:
    return "tp" if collective.group[1] - collective.group[0] == 1 else "dp"


def collective(make: GraphMaker, group: tuple[int, ...], nbytes: int, deps: tuple[int, ...]) -> Operator:
    dims = CollectiveDims("all_reduce", nbytes)
    number = len(make.graph)
    return make.graph.add(
        Operator(
            number,
            "",
            "all_reduce",
            OpKind.COLLECTIVE,
            Phase.FORWARD,
            (),
            (),
            0,
            0,
            0,
            deps,
            DType.BF16,
            dims,
            1,
            group,
        )
    )


def player(execution: Execution = Execution.STREAM, gap: int = 0) -> Player:
    chip = toy_chip(execution)
    return Player(Prices(with_overheads(chip, gap=gap), "traffic"), network, kinds)


def computing(make: GraphMaker, nanoseconds: int, deps: tuple[int, ...] = ()) -> Operator:
    """A pointwise operator whose traffic takes so long at 16 GB/s."""
    whole = make.storage(f"s{len(make.graph)}", Role.INPUT, 8 * nanoseconds)
    return make.op(inputs=(whole,), deps=deps)


def test_a_collective_that_somebody_waits_for_is_exposed() -> None:
    # compute 10, all-reduce 30, compute 5 that waits for it: 45 ns, of which 30 exposed
    make = GraphMaker()
    first = computing(make, 10)
    reduced = collective(make, (0, 1), 30, (first.id,))
    computing(make, 5, (reduced.id,))
    played = player().play(make.graph)
    assert (played.time, played.after) == (45 * NS, 0)
    assert played.exposed == {"tp": 30 * NS}
    assert played.bounds[Resource.INTERCONNECT] == 30 * NS
    assert sum(played.bounds.values()) == played.time
    assert (played.alone, played.volume) == ({"tp": 30 * NS}, {"tp": 30})


def test_a_collective_behind_work_is_not() -> None:
    # compute 10; all-reduce 30 from 10 to 40 beside compute 25 until 35; compute 5 waits for it from 35 to 40
    make = GraphMaker()
    first = computing(make, 10)
    reduced = collective(make, (0, 1), 30, (first.id,))
    computing(make, 25, (first.id,))
    computing(make, 5, (reduced.id,))
    played = player().play(make.graph)
    assert played.time == 45 * NS
    assert played.exposed == {"tp": 5 * NS}


def test_gradients_go_on_after_the_last_operator() -> None:
    # compute 10, 10; the gradient of each is summed (15 each): 10-25 and 25-40, 20 beyond the end at 20
    make = GraphMaker()
    first = computing(make, 10)
    collective(make, (0, 8), 15, (first.id,))
    second = computing(make, 10, (first.id,))
    collective(make, (0, 8), 15, (second.id,))
    played = player().play(make.graph)
    assert (played.time, played.after, played.exposed) == (20 * NS, 20 * NS, {})


def test_two_parallelisms_on_one_link_share_it() -> None:
    # both start at 10 and ask 20 of the same link: each gets half of it and ends at 50
    make = GraphMaker()
    first = computing(make, 10)
    gradients = collective(make, (0, 8), 20, (first.id,))
    reduced = collective(make, (0, 1), 20, (first.id,))
    computing(make, 5, (reduced.id,))
    played = player().play(make.graph)
    assert gradients.id < reduced.id
    assert (played.time, played.exposed) == (55 * NS, {"tp": 40 * NS})


def test_units_side_by_side_wait_as_well() -> None:
    make = GraphMaker()
    first = computing(make, 10)
    reduced = collective(make, (0, 1), 30, (first.id,))
    computing(make, 5, (reduced.id,))
    played = player(Execution.UNITS).play(make.graph)
    assert (played.time, played.exposed) == (45 * NS, {"tp": 30 * NS})


def test_gaps_between_operators_are_launches() -> None:
    make = GraphMaker()
    first = computing(make, 10)
    computing(make, 10, (first.id,))
    played = player(gap=3 * NS).play(make.graph)
    assert (played.time, played.bounds[Resource.LAUNCH]) == (23 * NS, 3 * NS)


def test_an_empty_pass_takes_no_time() -> None:
    assert player().play(OperatorGraph(GraphMaker().graph.workload)) is NOTHING


def part(forward: int, backward: int, after: int = 0, send: int = 0, optimizer: int = 0) -> Part:
    def played(time: int, after: int = 0) -> Played:
        bounds = {each: time if each is Resource.COMPUTE else 0 for each in Resource}
        alone = {"dp": after} if after else {}
        return Played(time, after, bounds, {}, alone, {})

    return Part(played(forward), played(backward), played(backward, after), played(optimizer), send)


def test_a_pipeline_by_hand() -> None:
    # as in test_parallel_schedule: 92 with sending 1, 90 without; work of stage 0 is 60
    step = play_step([part(10, 20, send=1)] * 2, "1f1b", 2, 2)
    assert (step.time, step.rank) == (92, 0)
    assert step.exposed == {"pp": 2}
    assert step.bounds == {
        "compute": 60, "bandwidth": 0, "launch": 0, "capacity": 0, "interconnect": 2, "bubble": 30
    }  # fmt: skip
    assert step.bound == "compute"


def test_gradients_and_the_optimizer_come_after_the_last_pass() -> None:
    # one stage: 3 x 30 = 90, gradients until 95, optimizer 4
    step = play_step([part(10, 20, after=5, optimizer=4)], "gpipe", 1, 3)
    assert step.time == 99
    assert step.exposed == {"dp": 5}
    assert sum(step.bounds.values()) == step.time


def test_gradients_of_two_chunks_follow_each_other() -> None:
    # chunk 1 ends its backward pass at 40 and its gradients (40) at 80; those of chunk 0 follow until 120, not 100
    step = play_step([part(10, 20, after=40)] * 2, "interleaved", 1, 1)
    assert (step.table.end[0][-1], step.time) == (60, 120)
    assert step.exposed == {"dp": 60}


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_times_add_up(schedule: str) -> None:
    parts = [part(10, 20, after=7, send=2, optimizer=3), part(11, 19, send=2), part(13, 29, after=1, send=2)]
    step = play_step(parts, schedule, 3, 5)
    assert sum(step.bounds.values()) == step.time == max(step.ends)
    assert sum(step.exposed.values()) == step.bounds["interconnect"]


def test_collectives_hold_cores_of_what_runs_beside_them() -> None:
    # of 100 ps of arithmetic 40 run beside a collective (20 to 60) that holds half of the cores: 40 more.
    # What memory decides is not slowed, nor what runs after it.
    costs = [cost(compute=100), cost(memory=50), cost(), cost(compute=10)]
    schedule = Schedule(array("q", [0, 30, 20, 100]), array("q", [100, 80, 60, 110]), array("q", [0] * 4), [])
    found = slowed(costs, schedule, {2: Demand(40)}, held=0.5)
    assert [each.time for each in found] == [140, 50, 0, 10]
