"""Lab 7: how does the best tile, and with it the time, follow from the memory on the chip?"""

from typing import Any

from simulator.hardware import Chip
from simulator.units import decimal, seconds
from simulator.variants import Resource
from workloads.gemm.compare import rows
from workloads.gemm.cpu import CPU_LADDER, measure
from workloads.gemm.curve import KIB, Point, curve, enough
from workloads.gemm.predict import Prediction, Rate, float_type
from workloads.gemm.tables import curve_table, ladder_table
from workloads.lab import LabAnswer, LabTable

SIZE, CPU_SIZE = 4096, 384
# Latency binds where too few slices are on the chip at once to hide it: a lack of room
_RESOURCES = {
    Rate.DRAM: Resource.BANDWIDTH,
    Rate.L2: Resource.BANDWIDTH,
    Rate.PORT: Resource.BANDWIDTH,
    Rate.COMPUTE: Resource.COMPUTE,
    Rate.LATENCY: Resource.CAPACITY,
}


def answer(chip: Chip) -> LabAnswer:
    """Run the CPU ladder here, predict the GPU ladder and the curve of tiles on *chip*."""
    found = rows(chip, SIZE, None)
    points = curve(chip, (SIZE, SIZE, SIZE), float_type(chip))
    here = [(step, measure(step, CPU_SIZE)) for step in CPU_LADDER]
    times = {step.name: taken for step, taken in here}
    best = enough(points)
    return LabAnswer(
        question="how large is the best tile for the memory on the chip, and what does it bring?",
        sentence=_sentence(chip, points, best),
        tables=(
            curve_table(points),
            ladder_table(SIZE, found, chip.name),
            LabTable(
                f"The CPU ladder on this machine, {CPU_SIZE} x {CPU_SIZE} x {CPU_SIZE}, fp32",
                ("step", ">time", ">GFLOP/s", ">of BLAS", "what is new"),
                [
                    (
                        step.name,
                        seconds(taken * 1e12, 3),
                        f"{2 * CPU_SIZE**3 / taken / 1e9:.1f}",
                        f"{100 * times['blas'] / taken:.0f} %",
                        step.adds,
                    )
                    for step, taken in here
                ],
                "least of 5 runs: a laptop has other things to do",
            ),
        ),
        bound=_RESOURCES[best.prediction.bound],
        verdict=_verdict(chip, points, best),
        data={
            "size": SIZE,
            "ladder": [_facts(row.prediction) for row in found],
            "curve": [{"bytes_on_a_core": each.capacity, **_facts(each.prediction)} for each in points],
            "enough_bytes": best.capacity,
            "cpu": {"size": CPU_SIZE, "seconds": times},
        },
    )


def _facts(own: Prediction) -> dict[str, Any]:
    cut = own.step.config
    return {
        "step": own.step.name,
        "tile": [cut.block_m, cut.block_n, cut.block_k],
        "seconds": own.time / 1e12,
        "bound": str(own.bound),
        "dram_bytes": own.traffic.dram,
        "l2_bytes": own.traffic.l2,
        "port_bytes": own.traffic.port,
        "parts_seconds": {str(rate): part / 1e12 for rate, part in own.parts.items()},
    }


def _last(points: list[Point], best: Point) -> str:
    known = best is not points[-1]
    return f"is enough for {SIZE}^3" if known else f"is the most that was tried for {SIZE}^3"


def _tile(point: Point) -> str:
    return f"{point.config.block_m} x {point.config.block_n}"


def _sentence(chip: Chip, points: list[Point], best: Point) -> str:
    own, first = best.prediction, points[0]
    share = own.flops_per_second / chip.peak(float_type(chip))
    return (
        f"On {chip.name}, {best.capacity // KIB} KiB a core for slices and sums {_last(points, best)}: tiles of "
        f"{_tile(best)} bring {decimal(own.traffic.asked, 'B')} to the cores and take {seconds(own.time, 3)}, "
        f"{100 * share:.0f} % of the peak, bound by {own.bound}; {first.capacity // KIB} KiB hold {_tile(first)} "
        f"and take {first.prediction.time / own.time:.3g} times as long."
    )


def _verdict(chip: Chip, points: list[Point], best: Point) -> str:
    index = points.index(best)
    half = (
        f" Half of that costs {points[index - 1].prediction.time / best.prediction.time - 1:+.0%} time."
        if index
        else ""
    )
    own = best.prediction
    needed = own.traffic.asked / (own.time / 1e12)
    return (
        f"Bytes to the cores fall with the side of the tile, so with the root of its storage: four times the memory "
        f"halves them.{half} At {chip.name}'s rate the tiles of {_tile(best)} draw {decimal(needed, 'B/s')} from what "
        f"the cores share; room beyond {best.capacity // KIB} KiB a core saves less than 5 %, unless the matrix units "
        "get faster: room for the tile has to grow with the square of arithmetic over cache bandwidth. Slices on their "
        "way, three of them here, are part of the room: without them the latency of each is paid in full."
    )
