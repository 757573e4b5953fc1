"""Lab 10, the cases that are pure network: sizes, collectives and bandwidths of TPU slices and GPU pods.

Rows about training plans are answered elsewhere.  The book writes T = V / W and leaves out that a rank keeps its own
share; ours has (n - 1) / n where the book has 1, and the tests say so where they divide by it.
"""

import math

import pytest

from hw_models import load_system
from hw_models.interconnect import predict
from simulator.system import Level, System, Topology
from tests.workloads.lab_cases import cases

CASES = cases("L10-")
SOURCE = "'How to Scale Your Model'"
V4P, V5E = 45 * 10**9, 45 * 10**9  # bytes a second and direction of one ICI link


def torus(*shape: int, bandwidth: int = V4P, latency: int = 0, wrap: bool = True) -> System:
    """A slice of TPUs; the book's formulas leave latency out where bandwidth decides."""
    level = Level(
        topology=Topology.TORUS,
        shape=shape,
        wrap=(wrap,) * len(shape),
        bandwidth=bandwidth,
        latency=latency,
        source=SOURCE,
    )
    return System(name="slice", description="slice", source=SOURCE, chip="tpu-v5p", links={"ici": level})


def microseconds(system: System, pattern: str, size: int, ranks: range | None = None) -> float:
    return predict(system, pattern, size, ranks).best.time / 10**6


def test_x1_a_sharded_array_is_held_in_copies() -> None:
    # int8[128, 2048] over X and Y of a 2 x 8 x 2 mesh: 16 shards, each on the two chips of Z
    array, mesh = 128 * 2048, (2, 8, 2)
    shard = array // (mesh[0] * mesh[1])
    CASES["L10-X1"].check([shard, shard * math.prod(mesh)])


def test_x2_all_gather_over_four_v5e() -> None:
    # bf16[2048, 8192] is 33.6 MB.  The book gathers V over both directions of a ring: V / 9e10; without the wrap three
    # shards cross each link one way: 3/4 V / 4.5e10.
    size = 2048 * 8192 * 2
    ring = microseconds(torus(4, bandwidth=V5E), "all_gather", size) / (3 / 4)
    row = microseconds(torus(4, bandwidth=V5E, wrap=False), "all_gather", size)
    wanted = CASES["L10-X2"].expected
    assert [ring, row] == pytest.approx(wanted[:2], rel=0.02)
    # Measured 680 us on the slice, which does not wrap: 559 us are 18 % less.
    assert row == pytest.approx(wanted[2], rel=0.25)
    # bf16[256, 256] is 131 kB: three hops of 1 us decide; 3 predicted by latency alone, 8 measured (host and launch,
    # which nobody publishes for TPUs, are not in ours).
    hops = predict(torus(4, latency=10**6, wrap=False), "all_gather", 256 * 256 * 2).best
    assert hops.latency / 10**6 == wanted[3]


def test_x3_gathers_and_reductions_along_axes_of_a_cube() -> None:
    # bf16[1024, 4096] sharded over X and Y of 4 x 4 x 4: 8.39 MB, 2.1 MB a shard row of X
    array, cube = 1024 * 4096 * 2, torus(4, 4, 4)
    along_x = microseconds(cube, "all_gather", array // 4, range(4)) / (3 / 4)
    along_xy = microseconds(cube, "all_gather", array, range(16)) / (15 / 16)
    along_z = predict(cube, "all_reduce", array // 16, range(0, 64, 16)).best.time / 10**6 / (3 / 4)
    CASES["L10-X3"].check([along_x, along_xy, along_z])


def test_x4_copies_and_a_gather_bound_by_hops() -> None:
    # sharded over X only of 4 x 8 x 2: 16 copies.  256 B over four wrapped chips: two hops of 1 us
    gathered = microseconds(torus(4, latency=10**6), "all_gather", 256)
    CASES["L10-X4"].check([8 * 2, round(gathered)])
    assert gathered == pytest.approx(2, rel=0.01)


def test_x5_all_to_all_costs_a_half_or_a_quarter_of_all_gather() -> None:
    # Of an array V that n chips of a large ring hold in shards of V / n.  One way round a link carries V to gather and
    # V / n^2 x n (n - 1) / 2 to exchange; both ways V / 2 and V / 8.
    size, ring = 256 * 10**6, torus(256)

    def time(pattern: str, algorithm: str) -> int:
        held = size // 256 if pattern == "all_to_all" else size
        return predict(ring, pattern, held, algorithm=algorithm).best.time

    ratios = [time("all_to_all", name) / time("all_gather", name) for name in ("ring", "bidirectional")]
    assert ratios == pytest.approx(CASES["L10-X5"].expected, rel=0.01)


def test_x10_all_gather_on_eight_h100() -> None:
    node = load_system("dgx-h100", ["calibration=null", "links.nvlink.latency=0ns"])
    exact = microseconds(node, "all_gather", 1024 * 16384 * 2)
    large = microseconds(node, "all_gather", 4096 * 65536 * 2)
    approximate, in_full, formula, measured = CASES["L10-X10"].expected
    assert [exact / (7 / 8), exact, large / 1000] == pytest.approx([approximate, in_full, formula], rel=0.01)
    # With what the library adds: 1.30 ms predicted, 1.5 ms measured
    assert microseconds(load_system("dgx-h100"), "all_gather", 4096 * 65536 * 2) / 1000 == pytest.approx(
        measured, rel=0.25
    )


def test_x11_bandwidth_of_switches_and_cuts() -> None:
    pod = load_system("dgx-h100x128")
    nvlink, infiniband = pod.links["nvlink"], pod.links["infiniband"]
    assert infiniband.leaf is not None
    switch_ports = 4 * 64 * 25e9  # four NVSwitches of 64 ports of 25 GB/s: wired as such, not described by us
    gpus = nvlink.members * nvlink.bandwidth
    unit = infiniband.leaf * nvlink.members * infiniband.bandwidth
    # the book counts the cut of a node in both directions, which is all GPUs' bandwidth one way
    CASES["L10-X11"].check([switch_ports / 1e12, gpus / 1e12, gpus / 1e12, unit / 1e12, 4 * unit / 1e12])


def test_x12_bandwidth_of_all_gather_at_each_level() -> None:
    pod = load_system("dgx-h100x128", ["calibration=null"])
    nvlink, infiniband = pod.links["nvlink"].bandwidth, pod.links["infiniband"].bandwidth
    assert pod.links["infiniband"].leaf is not None
    node, unit, units = 8, pod.links["infiniband"].leaf, 4
    rates = [
        nvlink * node / (node - 1) / 1e9,
        node * infiniband * unit / (unit - 1) / 1e9,
        unit * node * infiniband * units / (units - 1) / 1e9,
    ]
    CASES["L10-X12"].check([*rates, min(rates)])
    # The engine's all-gather among the 256 GPUs of one unit, without latencies: the rail of each GPU carries 31/32 of
    # an eighth of the data, so the rate is the leaf's 412.9 GB/s, but for the first chunk that fills the pipeline.
    quiet = load_system("dgx-h100x32", ["calibration=null", "links.nvlink.latency=0ns", "links.infiniband.latency=0ns"])
    found = predict(quiet, "all_gather", 8 * 10**9, algorithm="hierarchical")
    assert 0.9 * rates[1] < found.algorithm_bandwidth / 1e9 <= rates[1]


def test_x13_bus_bandwidth_of_eight_h100() -> None:
    node = load_system("dgx-h100")
    large, small, summed = CASES["L10-X13"].expected
    ring = predict(node, "all_reduce", 10 * 10**9, algorithm="ring")
    assert ring.bus_bandwidth / 1e9 == pytest.approx(large, rel=0.1)
    sharp = predict(node, "all_reduce", 10 * 10**9)
    assert sharp.best.algorithm == "in_network"
    assert sharp.bus_bandwidth / 1e9 == pytest.approx(summed, rel=0.1)
    # 58 MB: 150 GB/s measured, 310 predicted.  0.33 ms more than the links explain is no constant that NCCL has on A100
    # (37 us there, and 197 GB/s at 64 MiB on slower links); it would be the framework's.  Not fitted, and not met.
    assert predict(node, "all_reduce", 58 * 10**6, algorithm="ring").bus_bandwidth / 1e9 > 1.5 * small


def test_x16_curves_over_nodes_hold_up_to_two() -> None:
    # Bus bandwidth at 256 MB, measured on a cluster that the source does not describe.  One and two nodes are met.
    # From four on the measured curve falls by 1.2 to 2 with each doubling of the nodes, which neither the links of an
    # InfiniBand pod (400 GB/s a node) nor its latencies explain; ours stays an upper bound.
    measured = CASES["L10-X16"].expected[:4]
    ours = [
        predict(load_system(name), "all_reduce", 256 * 10**6).bus_bandwidth / 1e9
        for name in ("dgx-h100", "dgx-h100x2", "dgx-h100x4", "dgx-h100x8")
    ]
    assert ours[:2] == pytest.approx(measured[:2], rel=0.25)
    assert all(mine > theirs for mine, theirs in zip(ours[2:], measured[2:], strict=True))
