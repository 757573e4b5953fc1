"""ASTRA-sim's own results, cycle for cycle, by its conventions."""

import csv
from pathlib import Path

import pytest

from hw_models.interconnect.astrasim import Case, chunks, cycles

DATA = Path(__file__).parents[2] / "hw_models" / "data" / "astrasim" / "collectives.csv"


def case_of(row: dict[str, str]) -> Case:
    return Case(
        row["backend"], row["topology"], int(row["npus"]), float(row["bw_GBps"]), float(row["latency_ns"]),
        row["algorithm"], int(row["dataset_splits"]), int(row["active_chunks"]), int(row["endpoint_delay"]),
        row["collective"], int(row["size_bytes"]),
    )  # fmt: skip


def case(**changes: object) -> Case:
    """All-reduce of 64 KiB among 8 on a switch at 50 GiB/s and 500 ns, a node taking 10 cycles a message."""
    row = {
        "backend": "Aware", "topology": "Switch", "npus": 8, "bandwidth": 50.0, "latency": 500.0, "algorithm": "ring",
        "splits": 1, "active": 1, "endpoint_delay": 10, "collective": "all_reduce", "size": 65536, **changes,
    }  # fmt: skip
    return Case(**row)  # type: ignore[arg-type]


def test_all_rows_are_equal_to_the_cycle() -> None:
    with DATA.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [cycles(case_of(row)) for row in rows] == [int(row["cycles_max"]) for row in rows]
    assert len(rows) == 125


def test_a_ring_on_a_switch_by_hand() -> None:
    # 8 KiB a step at 53.687 B/ns: 152.6, cut to 152; a hop is 652, twice as far: 1304.  14 steps: 18256.
    # 15 times 10 at the nodes, and 7 reductions of 3 x (8192 / 1600 = 5.12, cut to 5) = 15: 18256 + 150 + 105.
    assert cycles(case()) == 18_511


def test_a_binary_tree_by_hand() -> None:
    # Four nodes, fully connected, one tree: 1 and 3 are leaves of 2, 2 hangs under 0.  64 KiB: 1220.7 + 500 = 1720.
    # A node takes 10, and 10 + 3 x 40 = 130 where it reduces.  Leaf: 10, 1720 to 2; 130; 1720 to 0; 130; 1720 to 2;
    # 130; 1720 to the leaves; 10.
    tree = case(topology="FullyConnected", npus=4, algorithm="doubleBinaryTree")
    assert cycles(tree) == 10 + 1720 + 130 + 1720 + 130 + 1720 + 130 + 1720 + 10


def test_direct_exchange_on_a_ring_goes_the_shorter_way() -> None:
    # Unaware, 4 nodes: 16 KiB in 305.2 cycles, at most two hops of 500: 1305, twice; nodes 3 x 10 and 3 x 10 reduced
    ring = case(backend="Unaware", topology="Ring", npus=4, algorithm="direct")
    assert cycles(ring) == 2 * 1305 + 3 * 10 + 3 * (16384 // 1600)
    # Aware: 1 to the right, 2 to the right and 1 to the left: the link right takes three messages of 305 (its own two
    # and one that passes through).  The far one starts at 305, is at the neighbour at 305 + 805 = 1110, and there 1915.
    aware = case(backend="Aware", topology="Ring", npus=4, algorithm="direct")
    assert cycles(aware) == 2 * 1915 + 30 + 30


def test_active_chunks_bound_how_many_are_under_way() -> None:
    one, two, four = (cycles(case(backend="Unaware", splits=4, active=active)) for active in (1, 2, 4))
    assert (one, two) == (4 * four, 2 * four)


def test_what_does_not_divide_goes_into_one_more_chunk() -> None:
    assert chunks(case(splits=4, size=1002)) == [250, 250, 250, 250, 2]
    assert chunks(case(splits=4, size=16)) == [8, 8, 8, 8]  # a chunk has a byte for each node at least


def test_a_large_run_needs_one_node_only() -> None:
    # 1024 nodes: 2046 steps of 512 B: 9.5, a hop of 509, nodes 10; reductions of 512 B cost nothing
    big = case(topology="Ring", npus=1024, size=512 * 1024)
    assert cycles(big) == 2046 * 509 + 2047 * 10


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"topology": "Torus"}, "topology is 'Torus'; known: Ring, Switch, FullyConnected"),
        ({"algorithm": "magic"}, "algorithm is 'magic'; known: ring, direct, halvingDoubling, doubleBinaryTree"),
        ({"algorithm": "halvingDoubling", "npus": 6}, "halvingDoubling needs a power of two, and there are 6 npus"),
        (
            {"algorithm": "doubleBinaryTree", "collective": "all_gather"},
            "doubleBinaryTree does all_reduce, not all_gather",
        ),
        ({"algorithm": "halvingDoubling", "collective": "all_to_all"}, "halvingDoubling cannot do all_to_all"),
        ({"npus": 1}, "needs two npus or more"),
        ({}, None),
    ],
)
def test_what_cannot_be_run_says_why(changes: dict[str, object], fault: str | None) -> None:
    assert case(**changes).fault() == fault
