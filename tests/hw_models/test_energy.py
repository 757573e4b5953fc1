"""Energy: sums worked out by hand, bounds, and what a chip without energies says."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw_models import load_chip
from hw_models.tile.kernels import kernel_graph
from simulator import simulate
from simulator.dtypes import DType
from simulator.errors import SpecError
from simulator.graph import OperatorGraph
from simulator.result import Result

H200 = load_chip("h200")


def kernel(op: str, dtype: DType = DType.BF16, **shape: int) -> OperatorGraph:
    graph = kernel_graph(op, dtype, shape)
    assert graph is not None
    return graph


def run(op: str, dtype: DType = DType.BF16, chip: str = "h200", changes: tuple[str, ...] = (), **shape: int) -> Result:
    return simulate(kernel(op, dtype, **shape), load_chip(chip, list(changes)))


def test_a_copy_costs_its_bytes_and_its_time_by_hand() -> None:
    # 2^30 bf16: 2.147 GB read and as much written, all off-chip: 4.295 GB x (57 + 62) pJ = 0.5111 J, and 122 W idle.
    found = run("copy", R=1, C=2**30)
    assert found.energy_joules == pytest.approx(0.5111 + 122 * found.seconds, rel=1e-3)


def test_a_product_below_the_cap_costs_its_flop_and_bytes_by_hand() -> None:
    # 16 x 8192 x 8192: 2.147 GFLOP x 1.08 pJ = 2.32 mJ; 134.7 MB x 119 pJ = 16.03 mJ
    found = run("gemm", M=16, N=8192, K=8192)
    nbytes = 2 * (16 * 8192 + 8192 * 8192 + 16 * 8192)
    assert found.traffic == nbytes
    assert found.energy_joules == pytest.approx(2.3192e-3 + nbytes * 119e-12 + 122 * found.seconds, rel=1e-4)
    assert found.clock_hertz == 1.98e9


def test_at_the_cap_power_is_the_cap_and_the_clock_falls() -> None:
    # measured: 684 W and 1.44 GHz (hw_models/data/h200/energy.csv)
    found = run("gemm", M=8192, N=8192, K=8192)
    assert found.average_watts == pytest.approx(700, rel=0.01)
    assert found.clock_hertz == pytest.approx(1.44e9, rel=0.04)


def test_arithmetic_on_the_lanes_has_its_own_price() -> None:
    # fp32 has no mode on the tensor cores: 2 x 1024^3 FLOP x 11 pJ = 23.6 mJ, 12.6 MB x 119 pJ = 1.5 mJ, below the cap
    found = run("gemm", DType.FP32, M=1024, N=1024, K=1024, changes=("power.cap=2000 W",))
    work = 2 * 1024**3 * 11e-12 + 3 * 4 * 1024**2 * 57e-12 + found.traffic * 62e-12
    assert found.energy_joules == pytest.approx(work + 122 * found.seconds, rel=1e-6)


def test_a_type_that_is_not_listed_costs_as_the_next_wider() -> None:
    listed = H200.power.energy if H200.power else None
    assert listed is not None
    assert listed.matrix_flop(DType.INT4) == listed.matrix_flop(DType.FP8) == 625_000
    assert listed.matrix_flop(DType.FP32) == listed.matrix_flop(DType.TF32) == 2_160_000


@pytest.mark.parametrize("change", ["power=null", "power.idle=null", "power.energy=null"])
def test_without_energies_nothing_is_made_up(change: str) -> None:
    found = run("copy", R=64, C=64, changes=(change,))
    assert found.energy is None
    assert found.energy_joules is None
    assert found.average_watts is None


@given(
    op=st.sampled_from(("gemm", "bmm")), m=st.integers(1, 9000), n=st.integers(1, 9000), k=st.integers(1, 9000),
    dtype=st.sampled_from((DType.BF16, DType.FP32, DType.FP8)),
)  # fmt: skip
def test_never_above_the_cap_nor_below_idle(op: str, m: int, n: int, k: int, dtype: DType) -> None:
    found = simulate(kernel(op, dtype, B=4, M=m, N=n, K=k), H200)
    assert found.average_watts is not None
    assert 122 <= found.average_watts <= 700 * 1.0001


def test_a_pointwise_kernel_that_wants_more_than_the_cap_is_slowed() -> None:
    # gelu takes 30 operations of 11 pJ an element beside 4 B x 119 pJ: 806 pJ x 67.1 M = 54 mJ in the 66 us of its
    # bytes would be 820 W.  Measured: 688 W, and 75 us where a copy of as many bytes takes 65 (data/h200).
    slowed, free = run("gelu", R=8192, C=8192), run("gelu", R=8192, C=8192, changes=("power.cap=2 kW",))
    only = slowed.operators[0]
    assert only.energy == pytest.approx((700 - 122) * only.seconds * 1e18, rel=1e-6)
    assert free.energy_joules == pytest.approx(8192**2 * 806e-12 + 122 * free.seconds, rel=1e-4)
    assert 1.05 < slowed.seconds / free.seconds < 1.25


def test_operators_and_idle_add_up_to_the_run() -> None:
    found = simulate(kernel("cross_entropy", T=512, V=32000), H200, mode="eager")
    assert len(found.operators) == 2
    parts = sum(each.energy or 0 for each in found.operators)
    assert found.energy == parts + 122 * found.time * 10**6


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("power.energy.dram=62", "power.energy.dram (--set): needs a unit: write '62 pJ' or '62 fJ', not a bare 62"),
        (
            "power.energy.cache=5 pJ/B",
            "power.energy.cache (--set): '5 pJ/B' is not an energy (expected the form '1.08 pJ'; "
            "units are J, mJ, uJ, nJ, pJ, fJ, aJ)",
        ),
        ("power.idle=800 W", "power (line N): idle of 800 W is not below the cap of 700 W"),
    ],
)
def test_bad_power_is_refused(change: str, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_chip("h200", [change])
    found = re.sub(r"line \d+", "line N", str(caught.value))
    assert found == f"h200: not a valid chip description:\n  {says}"
