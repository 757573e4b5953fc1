"""What the tile model needs of a chip: data-sheet figures times calibration, worked out once, as plain floats.

Times are picoseconds, rates are bytes, multiply-adds or operations per picosecond.
"""

from dataclasses import dataclass, field, replace
from math import inf

from simulator.calibration import Calibration, MatmulCalibration, RowCalibration, VectorCalibration
from simulator.dtypes import DType
from simulator.hardware import Chip, Execution
from simulator.units import AJ_PER_JOULE, PS_PER_SECOND

_PLAIN_ROWS = RowCalibration(passes=1.0, latency=0.0, element_latency=0.0, cycles=0.0, row_cycles=0.0)
_EXACT = Calibration(
    source="an XPU that nobody has measured: its data sheet taken at its word",
    dram=1.0,
    matmul=MatmulCalibration(
        launch=1.0,
        efficiency=1.0,
        step_cycles=0.0,
        stream=1e9,
        overlap=1e3,
        split=0.0,
        store=1.0,
        unaligned=1.0,
        vector=1.0,
        dequantise=0.0,  # unpacked on the way to the array
    ),
    vector=VectorCalibration(
        launch=1.0,
        first_byte=0.0,
        strided=1.0,
        addressed=1e9,
        converted=1e9,
        converting=0.0,
        columns=1e9,
        optimizer=1e9,
        unaligned=1.0,
        norm=_PLAIN_ROWS,
        rms_norm=_PLAIN_ROWS,
        block_norm=_PLAIN_ROWS,
        softmax=_PLAIN_ROWS,
        reduction=_PLAIN_ROWS,
    ),
)


@dataclass(frozen=True, slots=True)
class Machine:
    """One chip, ready for arithmetic.

    cycle        picoseconds of one cycle of the matrix unit.
    dram, cache  bytes per picosecond that streams reach from the off-chip memory and from the last cache level.
    scratch      bytes per picosecond of one core's own memory; infinite if that is not known.
    floor        bytes per picosecond of the data sheet: nothing off-chip is ever faster.
    on_chip      bytes of all on-chip levels together; *resident* those in which data survives between operators.
    headroom     watts between idle and the cap; 0 if the chip has no cap.
    """

    chip: Chip
    calibration: Calibration
    cycle: float = field(init=False)
    launch: float = field(init=False)
    dram: float = field(init=False)
    cache: float = field(init=False)
    scratch: float = field(init=False)
    floor: float = field(init=False)
    on_chip: int = field(init=False)
    resident: float = field(init=False)
    headroom: float = field(init=False)

    def __post_init__(self) -> None:
        chip, cal = self.chip, self.calibration
        put = object.__setattr__
        put(self, "cycle", PS_PER_SECOND / chip.matrix.clock)
        put(self, "launch", float(chip.overheads.launch + sum(level.latency for level in chip.memory.values())))
        put(self, "floor", chip.dram_bandwidth / PS_PER_SECOND)
        put(self, "dram", cal.dram * self.floor)
        put(self, "cache", max(self.dram, _cache_bandwidth(chip) or cal.cache * self.floor))
        put(self, "scratch", _scratch_bandwidth(chip))
        put(self, "on_chip", _on_chip(chip))
        put(self, "resident", cal.resident * _cache_capacity(chip))
        put(self, "headroom", float(chip.power.headroom) if chip.power is not None else 0.0)

    def macs(self, dtype: DType) -> float | None:
        """Multiply-adds per picosecond of all matrix units; None if they have no mode for *dtype*."""
        macs = self.chip.matrix.macs(dtype)
        return None if macs is None else macs * self.chip.cores / self.cycle

    def flops(self, dtype: DType) -> float:
        """Vector FLOP per picosecond."""
        return self.chip.vector_peak(dtype) / PS_PER_SECOND

    def vector_watts(self, operations: float, nbytes: float, dram: float, time: float) -> float:
        """Watts above idle that *operations* of the lanes draw in *time*, with *nbytes*, *dram* of them off-chip."""
        energy = self.chip.power.energy if self.chip.power is not None else None
        if energy is None or not time:
            return 0.0
        return energy.work(energy.vector, operations, nbytes, dram) / AJ_PER_JOULE / (time / PS_PER_SECOND)

    def watts(self, dtype: DType, flops: int, time: float) -> float:
        """Watts above idle that *flops* of the matrix units would draw if they took *time*; 0 if nobody knows."""
        power = self.chip.power
        if power is None or power.energy is None or self.macs(dtype) is None:
            return 0.0
        return power.energy.matrix_flop(dtype) * flops / AJ_PER_JOULE / (time / PS_PER_SECOND)

    def slowdown(self, watts: float, mean: float) -> float:
        """Times by which the cap makes a kernel longer that wants *watts*, in a run that wants *mean* watts."""
        power = self.calibration.power
        if not self.headroom or watts <= self.headroom:
            return 1.0
        alone, together = watts / self.headroom, max(1.0, mean / self.headroom)
        return float((alone ** (1 - power.averaging) * together**power.averaging) ** power.exponent)


def machine(chip: Chip) -> Machine:
    """The machine of *chip*: its own calibration, or the defaults for its way of executing."""
    default = _EXACT if chip.execution is Execution.UNITS else Calibration()
    return Machine(chip, chip.calibration or default)


def recalibrated(chip: Chip, calibration: Calibration) -> Chip:
    """*chip* with other constants, for a fit."""
    return replace(chip, calibration=calibration)


def _on_chip(chip: Chip) -> int:
    """Bytes that a kernel can keep on the chip while it works: shared levels, or else what the cores have."""
    shared = sum(level.capacity for level in chip.memory.values() if level.scope == "chip")
    own = sum(level.capacity for level in chip.memory.values() if level.scope == "core") * chip.cores
    return max(shared, own)


def _cache_bandwidth(chip: Chip) -> float:
    """Bytes per picosecond of the fastest level that all cores share, as described; 0 if that is not known."""
    shared = [level.bandwidth or 0 for level in chip.memory.values() if level.scope == "chip"]
    return max(shared, default=0) / PS_PER_SECOND


def _scratch_bandwidth(chip: Chip) -> float:
    own = [level.bandwidth or 0 for level in chip.memory.values() if level.scope == "core"]
    return max(own, default=0) / PS_PER_SECOND or inf


def _cache_capacity(chip: Chip) -> int:
    """Bytes of the last on-chip level that all cores share; without one nothing stays between operators."""
    return max((level.capacity for level in chip.memory.values() if level.scope == "chip"), default=0)
