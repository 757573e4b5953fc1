"""What the formulas of this lab need to know of hardware: three numbers, of one chip or of many together."""

from dataclasses import dataclass

from simulator.dtypes import DType
from simulator.errors import UsageError
from simulator.hardware import Chip

_WIDER = (DType.INT8, DType.FP8, DType.BF16, DType.FP16)


@dataclass(frozen=True, slots=True)
class Machine:
    """A peak in dense FLOP/s (multiply-add = 2), a bandwidth in B/s and a capacity in bytes.

    Fractions are welcome: these are formulas for paper, not simulated times.
    """

    peak: float
    bandwidth: float
    capacity: float

    @property
    def ridge(self) -> float:
        """Intensity in FLOP per byte at which arithmetic takes as long as memory.

        >>> Machine(peak=990e12, bandwidth=3.35e12, capacity=80e9).ridge
        295.5223880597015
        """
        return self.peak / self.bandwidth

    def seconds(self, flops: float, nbytes: float) -> float:
        """Return the least time: arithmetic and memory overlap, and the slower one decides."""
        return max(flops / self.peak, nbytes / self.bandwidth)

    def times(self, count: int) -> "Machine":
        """Return *count* of these as one: everything split evenly, and nothing lost between them."""
        return Machine(count * self.peak, count * self.bandwidth, count * self.capacity)


def machine(chip: Chip, dtype: DType, count: int = 1) -> Machine:
    """Return *count* of *chip* with the peak at which operands of *dtype* are multiplied; see `math_dtype`."""
    if count < 1:
        raise UsageError(f"{count} chips: needs at least 1")
    one = Machine(chip.peak(math_dtype(chip, dtype)), chip.dram_bandwidth, chip.dram.capacity)
    return one.times(count)


def math_dtype(chip: Chip, dtype: DType) -> DType:
    """Return the type in which the chip multiplies weights stored as *dtype*.

    A chip without that mode widens them on the way in (int4 weights run at the int8 rate, or at that of bf16).
    """
    if chip.matrix_peak(dtype) is not None:
        return dtype
    wider = (other for other in _WIDER if other.bits > dtype.bits and not (dtype.floating and not other.floating))
    return next((other for other in wider if chip.matrix_peak(other) is not None), dtype)
