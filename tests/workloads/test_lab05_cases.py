"""Lab 5: rooflines of inference, answered by `workloads.roofline`.

Rows about the peaks of single chips are answered from the chip descriptions, in tests/hw_models.
"""

from collections.abc import Callable

import pytest

from hw_models import load_chip
from simulator.dtypes import DType
from tests.workloads.lab_cases import Case, cases
from workloads.gpt import preset
from workloads.gpt.estimates import kv_bytes
from workloads.gpt.parameters import parameters
from workloads.roofline.inference import (
    chips_needed,
    evicted_per_step,
    min_step_seconds,
    prefill_seconds,
    prefill_servers_per_generator,
    queries_per_second,
    step_seconds,
)
from workloads.roofline.kernels import chain_length, dot_intensity, matmul_intensity
from workloads.roofline.links import Mesh, batch_to_hide_weights, staged_matmul, width_to_hide_reduction
from workloads.roofline.machine import Machine, machine

V5E = Machine(peak=1.97e14, bandwidth=8.1e11, capacity=16e9)  # as the scaling book rounds it
V5E_MESH = Mesh(ports=2, bandwidth=4.5e10, hop=1e-6)  # a corner of 4 x 4
A100_FP32 = Machine(peak=19.5e12, bandwidth=1.5e12, capacity=40e9)
LLAMA = preset("llama-70b")


def weights(dtype: DType) -> float:
    return parameters(LLAMA).total * dtype.bits / 8


def intensities() -> list[float]:
    # A matrix for each row is a product with m = 1; both limits are for large sizes.
    return [matmul_intensity(1, 2**60, 2**60, DType.INT8), dot_intensity(2**60)]


def staged() -> list[float]:
    width = 131072
    stages = staged_matmul(V5E, V5E_MESH, 16, 1.5e10, weights=width * width, flops=2 * 8 * width * width)
    seconds = (stages.load, stages.gather, stages.read, stages.compute, stages.bottleneck)
    return [1e3 * each for each in seconds]


def serving() -> list[float]:
    kv = kv_bytes(LLAMA, batch=32, context=8192, dtype=DType.INT8)
    total = weights(DType.INT8) + kv
    step = min_step_seconds(V5E.times(16), weights(DType.INT8), kv)
    least = [chips_needed(V5E, weights(dtype)) for dtype in (DType.BF16, DType.INT8, DType.INT4)]
    return [chips_needed(V5E, total), total / 1e9, 1e3 * step, *least]


def large_steps() -> list[float]:
    slice_of_16, each = V5E.times(16), 8192 * 100e3
    return [1e3 * step_seconds(slice_of_16, 30e9, batch * each, batch, 30e9) for batch in (4, 256)]


ANSWERS: dict[str, Callable[[], list[float]]] = {
    "L05-X1": lambda: [width_to_hide_reduction(peak=1.97e14, bandwidth=4.5e10)],
    "L05-X2": intensities,
    "L05-X4": lambda: [batch_to_hide_weights(peak=9.2e14, bandwidth=1.5e10)],
    "L05-X5": lambda: [
        1e6 * V5E_MESH.first_byte_seconds(hops=6),
        1e6 * V5E_MESH.transfer_seconds(2 * 8 * 128 * 8192, hops=6),
    ],
    "L05-X6": staged,
    "L05-X12": lambda: [A100_FP32.bandwidth / 4, chain_length(A100_FP32.ridge)],
    "L05-X13": serving,
    "L05-X14": lambda: [prefill_seconds(V5E.times(16), parameters(LLAMA).total, 8192, mfu=0.4)],
    "L05-X15": lambda: [evicted_per_step(32, 8192, 4096), prefill_servers_per_generator(0.91, 0.019, 512, batch=32)],
    "L05-X16": lambda: [queries_per_second(batch, 0.019, 512, chips) for batch, chips in ((43, 16), (52, 8), (67, 4))],
    "L05-X17": large_steps,
}


@pytest.mark.parametrize("case", [case for case in cases("L05-").values() if case.id in ANSWERS], ids=lambda c: c.id)
def test_case(case: Case) -> None:
    case.check(ANSWERS[case.id]())


def test_no_answer_is_without_a_case() -> None:
    assert set(ANSWERS) <= set(cases("L05-"))


def test_the_librarys_v5e_is_the_books() -> None:
    ours = machine(load_chip("tpu-v5e"), DType.BF16)
    assert ours.peak == pytest.approx(V5E.peak, rel=0.005)
    assert ours.bandwidth == pytest.approx(V5E.bandwidth, rel=0.015)
    assert ours.capacity == V5E.capacity
