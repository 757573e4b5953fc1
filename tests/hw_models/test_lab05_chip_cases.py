"""Lab 5: peaks, ridge points and roofline times of single chips, answered by the chip library and `hw_models.roofline`.

Rows about meshes, serving and capacity planning are answered in tests/workloads.
"""

from collections.abc import Callable

import pytest

from hw_models import load_chip
from hw_models.roofline import ridge_point, roofline_cost
from hw_models.single import single
from simulator.costs import Cost
from simulator.dtypes import DType
from simulator.graph import Operator, OpKind, Phase
from simulator.hardware import Chip
from simulator.units import PS_PER_SECOND, transfer_ps
from tests.workloads.lab_cases import cases

BOOK_V5E = ["matrix.clock=1503 MHz", "memory.hbm.bandwidth=810 GB/s"]  # 1.97e14 and 8.1e11, as the book rounds them
POD_V5E, POD_V5P = 16 * 16, 16 * 20 * 28


def operator(kind: OpKind, flops: int, reads: int, dtype: DType = DType.BF16) -> Operator:
    """A bare operator: so many FLOP and so many bytes."""
    return Operator(0, "", str(kind), kind, Phase.FORWARD, (), (), flops, reads, 0, (), dtype)


def cost(chip: Chip, name: str, dtype: DType, **sizes: int) -> Cost:
    (op,) = single(name, sizes, dtype)
    return roofline_cost(chip, op)


def first(found: Callable[[int], bool]) -> int:
    """Smallest number for which *found* holds; it holds for all that are larger."""
    low, high = 0, 1
    while not found(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if found(middle) else (middle, high)
    return high


def intensities() -> list[float]:
    # A matrix for each row is a product with m = 1; both limits are for large sizes.
    (rows,) = single("bmm", {"B": 2, "M": 1, "N": 2**50, "K": 2**50}, DType.INT8)
    (dot,) = single("gemm", {"M": 1, "N": 1, "K": 2**50})
    return [rows.intensity, dot.intensity]


def pods() -> list[float]:
    """Without the hosts: how many chips a host has is no property of a chip."""
    answers: list[float] = []
    for name, chips in (("tpu-v5e", POD_V5E), ("tpu-v5p", POD_V5P)):
        chip = load_chip(name)
        answers += [chips * chip.cores, chips * chip.peak(DType.BF16), chips * chip.dram.capacity / 1e12]
    return answers


def staged() -> list[float]:
    """ms: every chip loads a 16th over PCIe; then one chip has it all in its HBM and multiplies."""
    chip, width = load_chip("tpu-v5e", BOOK_V5E), 131072
    assert chip.host_link is not None
    whole = roofline_cost(chip, operator(OpKind.MATMUL, flops=2 * 8 * width**2, reads=width**2))
    load = transfer_ps(width**2 // 16, chip.host_link.bandwidth)
    return [1e3 * time / PS_PER_SECOND for time in (load, whole.memory, whole.compute)]


def lanes() -> list[float]:
    # The book counts one FLOP a lane and cycle where we count a fused multiply-add as two; a TPU's ALUs have none.
    def of(name: str, flops: int) -> int:
        chip = load_chip(name)
        return chip.vector.flops_per_cycle[DType.FP32] * chip.cores // flops

    rates = [
        load_chip("h100", [f"vector.clock={clock}"]).vector_peak(DType.FP32) / 2e12 for clock in ("1.59GHz", "1.98GHz")
    ]
    return [of("h100", 2), of("b200", 2), of("tpu-v5p", 1), *rates]


def scratchpad_and_clock() -> list[float]:
    # The book takes 256 kB for the 256 KiB of an SM and gets 33.8 "MB", which are thousands of KiB.
    h100, b200 = load_chip("h100"), load_chip("b200")
    clock = 80e12 / b200.vector_peak(DType.FP32) * b200.vector.clock
    return [h100.memory["sram"].capacity / 1024 * h100.cores / 1000, clock / 1e9]


def launch() -> list[float]:
    chip = load_chip("h100")
    time = cost(chip, "pointwise", DType.FP32, R=1, C=65536, inputs=2).time
    assert time < 0.5 * 1.5e6  # the roofline alone is far too fast ...
    return [time / 1e6, (time + chip.overheads.launch) / 1e6]  # ... and the launch is what it lacks


def chain() -> list[float]:
    chip = load_chip("a100", ["memory.hbm.bandwidth=1.5 TB/s"])
    read = roofline_cost(chip, operator(OpKind.POINTWISE, flops=0, reads=4 * 10**9))
    count = 10**6

    def computes(operations: int) -> bool:
        each = cost(chip, "pointwise", DType.FP32, R=1, C=count, flops=operations)
        return each.compute >= each.memory

    return [10**9 / (read.time / PS_PER_SECOND), first(computes)]


def large_steps() -> list[float]:
    """ms on one of 16 chips: the weights of all layers as one product, then the KV cache, bound by bandwidth."""
    chip, parameters, cache = load_chip("tpu-v5e", BOOK_V5E), 30 * 10**9 // 16, 8192 * 100_000 // 16

    def step(batch: int) -> float:
        weights = operator(OpKind.MATMUL, flops=2 * batch * parameters, reads=parameters)
        attention = operator(OpKind.ATTENTION, flops=0, reads=batch * cache)
        return sum(roofline_cost(chip, op).time for op in (weights, attention)) / 1e9

    return [step(4), step(256)]


ANSWERS: dict[str, Callable[[], list[float]]] = {
    "L05-X2": intensities,
    "L05-X7": lambda: [load_chip("tpu-v5e").peak(DType.BF16)],
    "L05-X8": lanes,
    "L05-X9": lambda: [
        ridge_point(load_chip(name), dtype) for name in ("h100", "b200") for dtype in (DType.FP16, DType.FP8)
    ],
    "L05-X10": scratchpad_and_clock,
    "L05-X12": chain,
    "L05-X17": large_steps,
}


@pytest.mark.parametrize("id_", ANSWERS)
def test_case(id_: str) -> None:
    cases("L05-")[id_].check(ANSWERS[id_]())


PARTS: dict[str, tuple[Callable[[], list[float]], tuple[int, ...], float]] = {
    "L05-X3": (pods, (1, 2, 3, 5, 6, 7), 0.02),
    "L05-X6": (staged, (0, 2, 3), 0.08),
    "L05-X11": (launch, (0, 1), 0.05),  # 1 % on the roofline, below; the measured 1.5 us has two digits
}


@pytest.mark.parametrize("id_", PARTS)
def test_part_of_a_case(id_: str) -> None:
    answer, places, tolerance = PARTS[id_]
    expected = cases("L05-")[id_].expected
    assert answer() == pytest.approx([expected[place] for place in places], rel=tolerance)


def test_the_roofline_of_a_small_addition() -> None:
    # 3 x 65536 x 4 B at 3.35 TB/s = 0.2348 us
    assert launch()[0] == pytest.approx(cases("L05-")["L05-X11"].expected[0], rel=0.01)
