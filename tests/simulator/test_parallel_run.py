"""Stages made by hand on a toy system: sends, memory in flight, elasticities, and the bandwidth that is needed."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.dtypes import DType
from simulator.graph import OperatorGraph, Workload
from simulator.links import Demand
from simulator.parallel.links import elasticity, least_factor, wider
from simulator.parallel.memory import rank_memory
from simulator.parallel.need import Needs
from simulator.parallel.plan import Plan
from simulator.parallel.played import Network
from simulator.parallel.run import Machine, kind_of, machine, training_run
from simulator.parallel.schedule import orders
from simulator.parallel.stage import Stage
from simulator.system import Level, System, Topology
from tests.simulator.test_parallel_step import collective, computing
from tests.simulator.toys import SOURCE, GraphMaker, toy_chip

NS = 1000
GB = 10**9
TRACED = Workload("toy", "train", batch=1, tokens=8, context=8, dtype=DType.BF16)


def system() -> System:
    """Nodes of four on 1 GB/s, two of them on 0.5 GB/s."""
    node = Level(topology=Topology.SWITCH, size=4, bandwidth=GB, source=SOURCE)
    pod = Level(topology=Topology.SWITCH, size=2, bandwidth=GB // 2, source=SOURCE)
    return System(name="toy", description="by hand", source=SOURCE, chip="toy", links={"node": node, "pod": pod})


def networks(of: System) -> Network:
    """Every collective takes its payload over the slowest level that its ranks span; no latency."""

    def price(pattern: str, nbytes: int, ranks: Sequence[int]) -> Demand:
        del pattern
        level = "node" if len({rank // 4 for rank in ranks}) == 1 else "pod"
        return Demand(0, {f"{level} up": nbytes * 1000 * GB // of.links[level].bandwidth})

    return price


def on() -> Machine:
    return machine(system(), toy_chip(), networks, "traffic")


def graph(nanoseconds: int, reduced: tuple[int, ...] = (), nbytes: int = 0) -> OperatorGraph:
    """One operator, and its result reduced over some ranks before a second one of 1 ns."""
    make = GraphMaker()
    first = computing(make, nanoseconds)
    if reduced:
        sent = collective(make, reduced, nbytes, (first.id,))
        computing(make, 1, (sent.id,))
    return make.graph


def stage(index: int, tensor: tuple[int, ...] = (), nbytes: int = 0) -> Stage:
    forward, backward = graph(9, tensor, nbytes), graph(20)
    return Stage(
        index, (index,), forward, backward, backward, OperatorGraph(TRACED), send_bytes=5, weight_bytes=1000,
        gradient_bytes=200, optimizer_bytes=30, activation_bytes=7, peak_forward_bytes=8, peak_backward_bytes=10,
    )  # fmt: skip


def test_memory_of_microbatches_in_flight() -> None:
    # 1F1B of two stages, three microbatches: stage 0 holds two (14) when the backward pass needs 3 more
    (first, second) = orders("1f1b", 2, 3)
    held = rank_memory([stage(0)], first, capacity=1000, library=100)
    assert (held.weights, held.gradients, held.optimizer) == (1000, 200, 30)
    assert (held.activations, held.workspace, held.in_flight) == (14, 103, 2)
    assert (held.total, held.excess) == (1347, 347)
    assert rank_memory([stage(1)], second, capacity=2000).activations == 7
    assert rank_memory([stage(0)], orders("gpipe", 2, 3)[0], capacity=2000).activations == 21


def test_a_pipeline_over_nodes_sends_over_the_pod() -> None:
    # tp 4 in a node, pp 2 over nodes.  Forward 9 + all-reduce of 6 B at 1 GB/s = 6 ns + 1 = 16; backward 20.
    # Sending 5 B: whole over the pod 10 ns; a quarter (2 B) 4 ns and gathered in the node 5 ns = 9 ns
    plan = Plan(tp=4, pp=2)
    stages = [stage(0, (0, 1, 2, 3), 6), stage(1, (4, 5, 6, 7), 6)]
    run = training_run(stages, plan, on(), TRACED, flops=1000, batch=2)
    # F0 0-16, F1 16-32; stage 1: F0 25-41, B0 41-61, F1 61-77, B1 77-97; stage 0: B0 70-90, B1 106-126
    assert run.step.time == 126 * NS
    assert run.step.rank == 0
    assert run.step.exposed["tp"] == 2 * 6 * NS
    # without sending: F1 of stage 1 starts at 56, B1 ends at 92, stage 0's at 112
    assert run.step.exposed["pp"] == 18 * NS
    assert run.step.bounds["bubble"] == (126 - 2 * 36 - 18) * NS
    assert run.step.volume == {"tp": 12, "pp": 2 * 5}  # stage 1 sends the gradients
    assert run.model_flops == 2000
    assert (run.workload.batch, run.workload.tokens, run.devices) == (2, 16, 8)
    assert run.mfu == pytest.approx(2000 / (126e-9 * 8 * 32e9))
    assert run.elasticity.keys() == {"node", "pod"}
    assert -1 < run.elasticity["node"] < 0


def test_needs_by_hand() -> None:
    # tp 2: forward 16, of which the all-reduce 6; backward 20.  5 % of 30 ns is 1.5 ns for 6 B: 4 GB/s
    stages = [stage(0, (0, 1), 6)]
    (need,) = Needs(stages, Plan(tp=2), on(), 3, 0.05).all()
    assert (need.kind, need.level, need.bandwidth) == ("tp", "node", GB)
    assert need.loss == pytest.approx(6 / 30)
    assert need.needed == pytest.approx(4 * GB, rel=0.02)


def test_what_sends_nothing_needs_nothing() -> None:
    assert Needs([stage(0)], Plan(), on(), 1, 0.05).all() == []


@given(st.floats(0.001, 100), st.floats(0.01, 0.5))
def test_the_least_factor_is_found(at_one: float, limit: float) -> None:
    found = least_factor(lambda factor: at_one / factor, limit)
    assert found == pytest.approx(at_one / limit, rel=0.011)


def test_wider_links() -> None:
    assert wider(system(), "pod", 3).links["pod"].bandwidth == 3 * GB // 2
    assert wider(system(), "pod", 3).links["node"] == system().links["node"]
    assert elasticity(100, 98) == pytest.approx(-0.2)


@pytest.mark.parametrize(
    ("pattern", "ranks", "kind"),
    [
        ("all_reduce", (0, 1), "tp"),
        ("all_reduce", (1, 3, 5, 7), "dp"),
        ("all_to_all", (1, 3), "ep"),
        ("send_recv", (8, 0), "pp"),
        ("all_reduce", (0, 8), "pp"),
    ],
)
def test_which_parallelism_a_group_serves(pattern: str, ranks: tuple[int, ...], kind: str) -> None:
    assert kind_of(Plan(dp=4, tp=2, pp=2), pattern, ranks) == kind
