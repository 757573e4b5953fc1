"""How long a step of the ladder takes on a chip, from what it moves and computes, and which rate binds.

A slice of K of one tile needs the matrix unit, the port of the core's memory and its share of the L2, and it takes a
latency until it is there.  With enough slices in flight the slowest of the three decides; with few, the time of one
slice from beginning to end over the slices in flight does (Little's law).  L2 and DRAM run beside that, and overlap as
well as the tile model's calibration says: (x ** overlap + y ** overlap) ** (1 / overlap).
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from hw_models.tile.machine import Machine, machine
from simulator.dtypes import DType
from simulator.hardware import Chip, Execution
from simulator.units import PS_PER_SECOND
from workloads.gemm.geometry import reads_of_operands, residence
from workloads.gemm.steps import LADDER, Config, Step
from workloads.gemm.traffic import Sizes, Traffic, threads, traffic

_INSTRUCTIONS = 10  # for one k in a thread of the element kernels: their loop in SASS (sm_90, Triton 3.6), 39 for 4 k
_LATENCY_CYCLES = 600  # from asking the L2 or the DRAM for a slice to its being in the core's memory
# Read off the measured ladder of one H200 (docs/data/lab07_h200.json): 'grouped' takes 1.2 us a tile longer than
# 'persistent', from the end of one program to the first load of the next
_START_CYCLES = 2000
# Each half of the L2 keeps its own copy of what the cores beside it read (A100 white paper, "A100 L2 cache")
_L2_COPIES = 2


class Rate(StrEnum):
    """What can bind a step."""

    DRAM = "DRAM"
    L2 = "L2"
    PORT = "on-chip port"
    COMPUTE = "compute"
    LATENCY = "latency"


@dataclass(frozen=True, slots=True)
class Prediction:
    """One step at one size.

    time     picoseconds, launch included; *parts* what each rate alone would take.
    traffic  bytes by level; *residence* of programs on a core is in `workloads.gemm.geometry`.
    """

    step: Step
    sizes: Sizes
    time: float
    parts: dict[Rate, float]
    traffic: Traffic

    @property
    def bound(self) -> Rate:
        """The rate that alone takes longest."""
        return max(self.parts, key=lambda each: self.parts[each])

    @property
    def flops_per_second(self) -> float:
        m, n, k = self.sizes
        return 2 * m * n * k / self.time * PS_PER_SECOND


def float_type(chip: Chip) -> DType:
    """Return the 16-bit type that the chip multiplies fastest; bf16 where it has no matrix mode for either."""
    return max((DType.BF16, DType.FP16), key=lambda each: chip.matrix_peak(each) or 0)


def predict(chip: Chip, step: Step, sizes: Sizes, dtype: DType = DType.BF16, programs: int | None = None) -> Prediction:
    """Return time and traffic of *step* for m, n, k = *sizes* on *chip*; operands of *dtype*, sums in fp32.

    programs  on a core at a time; as many as a core of Hopper's size holds if None.
    """
    of = machine(chip)
    item = dtype.bits // 8
    programs = programs or residence(step, item).programs
    moved = _traffic(step, sizes, item, chip.cores, shared_cache(chip), programs)
    core = (
        _elements(of, step, sizes, moved)
        if step.kernel == "elements"
        else _tiles(of, step, sizes, dtype, moved, programs)
    )
    parts = {**core, Rate.L2: moved.l2 / of.cache, Rate.DRAM: moved.dram / of.dram}
    m, n, k = sizes
    launch = of.launch * of.calibration.matmul.launch
    time = together(parts, step.config.stages > 1, of.calibration.matmul.overlap)
    watts = of.watts(dtype, 2 * m * n * k, time) if step.kernel != "elements" else 0.0
    slower = of.slowdown(watts, watts)
    return Prediction(step, sizes, launch + time * slower, {key: part * slower for key, part in parts.items()}, moved)


def shared_cache(chip: Chip) -> float:
    """Bytes of the level that all cores share and in which different data fit."""
    whole = max((level.capacity for level in chip.memory.values() if level.scope == "chip"), default=0)
    return whole / _L2_COPIES if chip.execution is Execution.STREAM else whole


def together(parts: dict[Rate, float], ahead: bool, overlap: float) -> float:
    """Return the time of all *parts*: the slower hides the faster ones, but not quite.

    *ahead* says that slices are copied while others are multiplied: then arithmetic, port and latency hide each other
    wholly.  Otherwise the same threads do one after the other, and only other programs fill the gaps.

    >>> round(together({Rate.COMPUTE: 4.0, Rate.PORT: 3.0}, ahead=False, overlap=2), 3)
    5.0
    >>> together({Rate.COMPUTE: 4.0, Rate.PORT: 3.0}, ahead=True, overlap=2)
    4.0
    """
    inside = (Rate.COMPUTE, Rate.PORT, Rate.LATENCY)
    hidden = max(parts.get(rate, 0.0) for rate in inside)
    terms = [hidden, *(part for rate, part in parts.items() if rate not in inside)] if ahead else list(parts.values())
    longest = max(terms)
    return longest * float(sum((term / longest) ** overlap for term in terms) ** (1 / overlap))


_traffic = cache(traffic)


def ladder(chip: Chip, sizes: Sizes, dtype: DType = DType.BF16) -> list[Prediction]:
    """Return the prediction of every step of the ladder."""
    return [predict(chip, step, sizes, dtype) for step in LADDER]


def _elements(of: Machine, step: Step, sizes: Sizes, moved: Traffic) -> dict[Rate, float]:
    """A thread an element: instructions of the vector lanes against lines at the ports."""
    lanes = of.flops(DType.FP32) / 2
    return {
        Rate.COMPUTE: threads(step, sizes) * sizes[2] * _INSTRUCTIONS / lanes,
        Rate.PORT: moved.port / (of.scratch * of.chip.cores),
    }


def _tiles(of: Machine, step: Step, sizes: Sizes, dtype: DType, moved: Traffic, programs: int) -> dict[Rate, float]:
    """Waves of tiles; the last one may be partly empty and takes as long as a full one."""
    cut = step.config
    item = dtype.bits // 8
    m, n, k = sizes
    tiles = -(-m // cut.block_m) * -(-n // cut.block_n)
    slices = -(-k // cut.block_k)
    own = slice_times(of, cut, dtype)
    own[Rate.L2] *= moved.l2 / moved.asked
    whole = sum(own.values()) + _latency(of)
    on_core = -(-tiles // of.chip.cores)  # of the busiest core
    programs = min(programs, on_core)
    fill = whole + cut.block_m * cut.block_n * item * of.chip.cores / of.cache
    rounds = -(-on_core // programs)
    ends = {"tiled": rounds * (fill + _START_CYCLES * of.cycle), "persistent": rounds * fill, "descriptor": fill}[
        step.kernel
    ]
    parts = {rate: on_core * slices * each + ends for rate, each in own.items()}
    del parts[Rate.L2]  # it serves all cores at once, and merges what neighbours ask for
    flight = programs * cut.stages
    parts[Rate.LATENCY] = on_core * slices * whole / flight + ends
    return parts


def slice_times(of: Machine, cut: Config, dtype: DType) -> dict[Rate, float]:
    """Return the picoseconds that one slice of one tile needs of each rate of its core."""
    cal, item = of.calibration.matmul, dtype.bits // 8
    macs = of.macs(dtype)
    rate = cal.efficiency * macs if macs else cal.vector * of.flops(dtype) / 2
    left, right = reads_of_operands(cut)
    read = (left * cut.block_m + right * cut.block_n) * cut.block_k * item
    return {
        Rate.COMPUTE: cut.block_m * cut.block_n * cut.block_k * of.chip.cores / rate,
        Rate.L2: cut.slice_bytes(item) * of.chip.cores / of.cache,
        Rate.PORT: (read + cut.slice_bytes(item)) / of.scratch,
    }


def _latency(of: Machine) -> float:
    return _LATENCY_CYCLES * of.cycle
