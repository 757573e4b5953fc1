"""Collectives: closed forms by hand, the engine against them, bytes, bounds."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hw_models import load_system
from hw_models.interconnect import Collectives, predict
from hw_models.interconnect.algorithms import FLAT, chain
from hw_models.interconnect.candidates import candidates
from hw_models.interconnect.closed import estimate
from hw_models.interconnect.fabric import Fabric
from hw_models.interconnect.group import Group
from hw_models.interconnect.plans import Plan, programs, sent_bytes
from simulator.errors import UsageError
from simulator.network import play
from simulator.system import Attach, Level, System, Topology

US = 10**6
SOURCE = "made up for a test"


def system(topology: Topology = Topology.SWITCH, size: int = 4, **more: object) -> System:
    """*size* chips at 1 GB/s and 1 us a link."""
    given_ = {"topology": topology, "bandwidth": 10**9, "latency": US, "source": SOURCE, **more}
    if "shape" not in given_:
        given_["size"] = size
    level = Level(**given_)  # type: ignore[arg-type]
    return System(name="toy", description="toy", source=SOURCE, chip="toy", links={"link": level})


def plan_of(group: Group, name: str, pattern: str, size: int) -> Plan:
    return Plan(group.lengths, (FLAT[name][0](pattern, size, None, group.size),))


@pytest.mark.parametrize(
    ("topology", "pattern", "algorithm", "microseconds"),
    [
        # 4 chips, 4 kB: a share is 1 kB, 1 us at 1 GB/s.  A switch is two links, 2 us; a ring or mesh one, 1 us.
        ("switch", "all_reduce", "ring", 6 * (1 + 2)),
        ("ring", "all_reduce", "ring", 6 * (1 + 1)),
        ("switch", "all_gather", "ring", 3 * (1 + 2)),
        ("switch", "reduce_scatter", "ring", 3 * (1 + 2)),
        ("switch", "all_to_all", "direct", 3 + 2),  # three shares through one port
        ("mesh", "all_to_all", "direct", 1 + 1),  # each over a link of its own
        ("switch", "all_reduce", "direct", 2 * (3 + 2)),
        ("mesh", "all_reduce", "direct", 2 * (1 + 1)),
        ("switch", "all_reduce", "halving_doubling", 2 * ((2 + 2) + (1 + 2))),
        ("switch", "all_gather", "halving_doubling", (1 + 2) + (2 + 2)),
        # both ways round: one whole share from either side, then halves of the share from opposite
        ("ring", "all_gather", "bidirectional", (1 + 1) + (0.5 + 1)),
        ("ring", "all_reduce", "bidirectional", 2 * ((1 + 1) + (0.5 + 1))),
        # passing on: 3, 2, 1 shares
        ("ring", "all_to_all", "ring", (3 + 1) + (2 + 1) + (1 + 1)),
        # both ways: one share and half of the opposite, then that half
        ("ring", "all_to_all", "bidirectional", (1.5 + 1) + (0.5 + 1)),
        ("switch", "broadcast", "tree", 2 * (4 + 2)),
    ],
)
def test_times_worked_out_by_hand(topology: str, pattern: str, algorithm: str, microseconds: float) -> None:
    best = predict(system(Topology(topology)), pattern, 4000, algorithm=algorithm).best
    assert (best.time, best.how) == (microseconds * US, "closed form")


def test_a_chain_passes_on_chunk_after_chunk() -> None:
    # 4 chips in a ring, 4 kB in 4 chunks of 1 us: 3 hops of 2 us for the first, then 3 more at 1 us
    group = Group(Fabric(system(Topology.RING)), range(4))
    plan = chain(4000, 4, 4)
    assert estimate(plan, group.view).time == 9 * US
    assert play(programs(plan), group.route).time == 9 * US


def test_a_switch_that_adds_needs_the_data_once() -> None:
    # 4 kB up and down at once, 4 us, and two links
    best = predict(system(reduces=True), "all_reduce", 4000, algorithm="in_network").best
    assert best.time == 6 * US


def test_a_row_that_does_not_close_carries_every_block_to_both_ends() -> None:
    # 3 of 8 on a ring: steps of 1 us + 1 us; the middle link of the row carries all
    best = predict(system(Topology.RING, 8), "all_gather", 3000, range(3)).best
    assert (best.algorithm, best.time) == ("line", 2 * 2 * US)


def test_both_axes_of_a_torus_at_once_halve_the_time_of_one_after_the_other() -> None:
    # 4 x 4, 16 MB, shares of 1 MB.  First 3 shares come along the outer axis, half of them from either side: 1.5 ms;
    # then 12 along the inner: 6 ms.  In 16 chunks the inner axis is idle for the first of them only: 6 + 1.5 / 16.
    torus = system(Topology.TORUS, shape=(4, 4), latency=0)
    one = predict(torus, "all_gather", 16 * 10**6, algorithm="hierarchical").best
    both = predict(torus, "all_gather", 16 * 10**6, algorithm="multi_axis").best
    # Both at once: 15 shares come in over four links: 3.75 ms.
    assert (one.time, one.how) == (6_093_750_000, "played")
    assert both.time == 3_750 * US


SYMMETRIC = [
    (topology, name, pattern)
    for name, (_, patterns) in FLAT.items()
    for pattern in patterns
    for topology in ("switch", "mesh", "ring")
    if not (name in ("direct", "halving_doubling", "tree", "in_network") and topology == "ring")
    and not (name in ("bidirectional", "line") and topology != "ring")
    and not (name == "in_network" and topology == "mesh")
    and name != "line"
]


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(SYMMETRIC), st.integers(2, 9), st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**5)
)
def test_the_engine_gives_the_closed_form_where_nothing_waits(
    kind: tuple[str, str, str], n: int, size: int, latency: int, overhead: int
) -> None:
    topology, name, pattern = kind
    n = 1 << (n.bit_length() - 1) if name == "halving_doubling" else n
    toy = system(Topology(topology), n, latency=latency, overhead=overhead, reduces=topology == "switch")
    group = Group(Fabric(toy), range(n))
    plan = plan_of(group, name, pattern, size)
    found = estimate(plan, group.view, latency=77)
    assert found.exact
    assert play(programs(plan, 77), group.route).time == found.time
    if group.foldable(plan):
        assert play(programs(plan, 77, folded=True), group.folded_route, folded=True).time == found.time


@settings(deadline=None, max_examples=60)
@given(st.sampled_from([kind for kind in SYMMETRIC if kind[1] != "tree"]), st.integers(2, 8), st.integers(1, 1000))
def test_bytes_that_ranks_send_are_those_of_the_algorithm(kind: tuple[str, str, str], n: int, share: int) -> None:
    topology, name, pattern = kind
    n = 1 << (n.bit_length() - 1) if name == "halving_doubling" else n
    size = 2 * share * n
    group = Group(Fabric(system(Topology(topology), n, reduces=topology == "switch")), range(n))
    sent = set(sent_bytes(programs(plan_of(group, name, pattern, size))).values())
    if name == "in_network":
        wanted = size  # up to the switch, once
    elif pattern == "all_to_all" and topology == "ring" and name in ("ring", "bidirectional"):
        hops = range(1, n)  # every share goes hop by hop, the shorter way if both are open
        wanted = 2 * share * sum(hops if name == "ring" else (min(hop, n - hop) for hop in hops))
    elif pattern == "all_to_all" and name == "ring":
        wanted = 2 * share * n * (n - 1) // 2
    else:
        wanted = (2 if pattern == "all_reduce" else 1) * 2 * share * (n - 1)  # 2 (n - 1) / n of the buffer
    assert sent == {wanted}


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["ring", "direct", "halving_doubling", "double_tree"]),
    st.sampled_from([2, 4, 8]),
    st.integers(1, 10**7),
    st.integers(0, 10**7),
    st.sampled_from(list(Topology)[:3]),
)
def test_bounds(algorithm: str, n: int, size: int, latency: int, topology: Topology) -> None:
    if algorithm == "double_tree" and n == 2:
        return
    slow = system(topology, n, latency=latency)
    time = predict(slow, "all_reduce", size, algorithm=algorithm).best.time
    port = {Topology.SWITCH: 1, Topology.RING: 2, Topology.MESH: n - 1}[topology]  # links of a chip
    assert time >= 2 * (n - 1) / n * size / (port * 10**9) * 10**12 - 1
    faster = predict(system(topology, n, latency=latency, bandwidth=2 * 10**9), "all_reduce", size, algorithm=algorithm)
    nearer = predict(system(topology, n, latency=latency // 2), "all_reduce", size, algorithm=algorithm)
    assert faster.best.time <= time
    assert nearer.best.time <= time


def test_a_group_in_two_nodes_crosses_the_outer_level_once() -> None:
    inner = Level(topology=Topology.SWITCH, size=4, bandwidth=10**10, source=SOURCE)
    outer = Level(topology=Topology.SWITCH, size=2, bandwidth=10**9, source=SOURCE)
    pod = System(name="pod", description="pod", source=SOURCE, chip="toy", links={"in": inner, "out": outer})
    # 8 MB: scatter 3/4 x 8 MB at 10 GB/s, 0.6 ms; 2 MB between two nodes, 2 ms; gather 0.6 ms.  In 16 chunks the
    # outer level, 2 ms, is busy all the time but for the first chunk in and the last out.
    best = predict(pod, "all_reduce", 8 * 10**6, algorithm="hierarchical").best
    assert best.busiest is not None
    assert (best.busiest.wire.level, best.busiest.size, best.busiest.busy) == ("out", 2 * 10**6, 2_000 * US)
    assert 2_000 * US < best.time < 3_200 * US


def test_chips_that_share_one_port_share_its_bandwidth() -> None:
    inner = Level(topology=Topology.SWITCH, size=4, bandwidth=10**12, source=SOURCE)

    def time(attach: Attach) -> int:
        outer = Level(topology=Topology.SWITCH, size=2, bandwidth=10**9, attach=attach, source=SOURCE)
        pod = System(name="pod", description="pod", source=SOURCE, chip="toy", links={"in": inner, "out": outer})
        return predict(pod, "all_reduce", 8 * 10**6, algorithm="hierarchical").best.busiest.busy  # type: ignore[union-attr]

    assert time(Attach.CHIP) == 2_000 * US
    assert time(Attach.MEMBER) == 8_000 * US


def test_a_thousand_nodes_take_as_many_events_as_a_few() -> None:
    few, many = (
        predict(system(Topology.SWITCH, n), "all_reduce", 4 * 10**6, algorithm="direct").best for n in (8, 1024)
    )
    assert (few.events, many.events) == (0, 0)  # closed forms of one rank
    group = Group(Fabric(system(Topology.TORUS, shape=(64, 64))), range(4096))
    plan = Plan(group.lengths, (FLAT["ring"][0]("all_gather", 4096, 0, 64),))
    assert play(programs(plan, folded=True), group.folded_route, folded=True).events == 64  # 63 arrivals and the start


def test_an_oversubscribed_fat_tree_is_bound_by_its_leaves() -> None:
    # Four chips, two a leaf, 2:1: a leaf has the bandwidth of one port up to the spine.  All-to-all of 4 kB: shares of
    # 1 us, of which a port sends 3 and a leaf 2 x 2: 4 us, and four links of 1 us.
    tree = system(Topology.FAT_TREE, 4, leaf=2, oversubscription=2.0)
    group = Group(Fabric(tree), range(4))
    plan = plan_of(group, "direct", "all_to_all", 4000)
    found = estimate(plan, group.view)
    assert (found.time, found.exact) == (8 * US, False)
    assert found.busiest is not None
    assert found.busiest.wire.name == ("link", "leaf up")
    # Played: shares to the other leaf stand behind one that stays (each chip sends to its next first): 1 us later at
    # the spine, or not, but never earlier than the leaf allows.
    played = play(programs(plan), group.route).time
    assert 8 * US <= played <= 9 * US
    full = system(Topology.FAT_TREE, 4, leaf=2)
    assert predict(full, "all_to_all", 4000, algorithm="direct").best.time == 7 * US


def test_groups_that_lie_alike_share_a_prediction() -> None:
    pod = Collectives(load_system("dgx-h200x4"))
    first, second = (pod.predict("all_reduce", 10**6, range(node, node + 8)) for node in (0, 16))
    assert first is second
    assert pod.predict("all_reduce", 10**6, range(0, 32, 8)) is not first
    assert first == predict(pod.system, "all_reduce", 10**6, range(8))


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(["all_reduce", "all_gather", "all_to_all"]), st.integers(1, 10**9))
def test_a_demand_takes_alone_what_was_predicted(pattern: str, size: int) -> None:
    for option in predict(load_system("dgx-h200x2"), pattern, size).options:
        assert option.demand.alone == option.time
        assert option.demand.fixed >= 0


@pytest.mark.parametrize("name", ["dgx-h200x4", "dgx-h200x16", "tpu-v5e-pod"])
@pytest.mark.parametrize("pattern", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("size", [2**16, 2**30])
def test_estimates_of_a_hierarchy_are_near_what_is_played(name: str, pattern: str, size: int) -> None:
    pod = load_system(name)
    group = Group(Fabric(pod), range(pod.chips))
    for _, plan in candidates(group, pattern, size, "hierarchical"):
        assert isinstance(plan, Plan)
        found = estimate(plan, group.view)
        played = play(programs(plan, folded=True), group.folded_route, folded=True).time
        assert found.time == pytest.approx(played, rel=0.0 if found.exact else 0.2)


@pytest.mark.parametrize(
    ("pattern", "size"), [("all_reduce", 4_585_138), ("all_to_all", 3286), ("all_to_all", 506_183)]
)
def test_of_protocols_the_fastest_is_taken_where_messages_wait(pattern: str, size: int) -> None:
    # a library that had this protocol alone cannot be faster than one that may choose
    pod = load_system("dgx-a100x2")
    assert pod.calibration is not None
    best = predict(pod, pattern, size).best
    for name, protocol in pod.calibration.protocols.items():
        alone = replace(pod, calibration=replace(pod.calibration, protocols={name: protocol}))
        assert best.time <= predict(alone, pattern, size).best.time


def test_the_only_algorithm_of_a_library_answers_for_any_number_of_ranks() -> None:
    # 4096 chips, 8 a node: 4088 / 4096 of a chip's buffer leave by its port of 50 GB/s x 0.83, if none is passed on
    best = predict(load_system("dgx-h200x512"), "all_to_all", 10**8).best
    assert best.algorithm == "direct"
    assert 10**8 * 4088 / 4096 / 41.5e9 <= best.time / 1e12 < 1.05 * 10**8 / 41.5e9


def test_a_library_without_an_algorithm_for_the_ranks_says_so() -> None:
    pod = load_system("dgx-h200x2", ["calibration.algorithms.all_reduce=[rng]"])
    with pytest.raises(UsageError) as caught:
        predict(pod, "all_reduce", 1000)
    assert str(caught.value) == (
        "dgx-h200x2: calibration.algorithms.all_reduce has nothing for these ranks: "
        "'rng' is unknown; did you mean 'ring'?"
    )
