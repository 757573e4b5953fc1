"""Hardware classes: what a chip is, as plain frozen data.  ``hw_models`` reads them from YAML files.

Every quantity is an integer in base units behind the border: bytes, bytes per second, hertz, picoseconds, attojoules.
Peaks are derived (multiply-adds per cycle x clock x cores), never written down.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from simulator.calibration import Calibration
from simulator.dtypes import DType
from simulator.units import duration, energy, quantity


def _in(unit: str) -> BeforeValidator:
    return BeforeValidator(lambda text: quantity(text, unit))


Bytes = Annotated[int, Field(gt=0), _in("B")]
SomeBytes = Annotated[int, Field(ge=0), _in("B")]
BytesPerSecond = Annotated[int, Field(gt=0), _in("B/s")]
Hertz = Annotated[int, Field(gt=0), _in("Hz")]
Watts = Annotated[int, Field(gt=0), _in("W")]
SquareMillimetres = Annotated[int, Field(gt=0), _in("mm2")]
Picoseconds = Annotated[int, Field(ge=0), BeforeValidator(duration)]
Attojoules = Annotated[int, Field(ge=0), BeforeValidator(energy)]
Count = Annotated[int, Field(gt=0, le=10**9, strict=True)]
Efficiency = Annotated[float, Field(gt=0, le=1)]
Source = Annotated[str, Field(min_length=10)]

_CLOSED = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, kw_only=True)
class SystolicArray:
    """*count* arrays of rows x columns cells in each core; a cell does one multiply-add a cycle."""

    __pydantic_config__ = _CLOSED
    rows: Count
    columns: Count
    count: Count = 1
    dataflow: Literal["ws", "os", "is"] = "ws"


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixUnit:
    """The matrix engine of one core.

    macs_per_cycle  dense multiply-adds per cycle and core, by the type of the operands: tensor cores.
    array           the systolic array instead; then *rate* gives multiply-adds per cell and cycle by type.
    """

    __pydantic_config__ = _CLOSED
    clock: Hertz
    source: Source
    macs_per_cycle: Mapping[DType, Count] = field(default_factory=dict)
    array: SystolicArray | None = None
    rate: Mapping[DType, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = field(default_factory=dict)

    def macs(self, dtype: DType) -> int | None:
        """Dense multiply-adds per cycle and core for operands of *dtype*; None if it has no such mode."""
        if self.array is not None:
            cells = self.array.rows * self.array.columns * self.array.count
            return int(cells * self.rate[dtype]) if dtype in self.rate else None
        return self.macs_per_cycle.get(dtype)

    @property
    def dtypes(self) -> tuple[DType, ...]:
        return tuple(self.rate if self.array is not None else self.macs_per_cycle)


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorUnit:
    """The SIMD lanes of one core: *flops_per_cycle* by type, a fused multiply-add counting as two."""

    __pydantic_config__ = _CLOSED
    clock: Hertz
    flops_per_cycle: Mapping[DType, Count]
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLevel:
    """One level of the memory hierarchy.

    scope    core: one in each core (capacity and bandwidth are of one); chip: shared on the die; device: off-chip.
    latency  of the first byte that an operator asks for, where ``overheads.launch`` does not hold it already.
    """

    __pydantic_config__ = _CLOSED
    scope: Literal["core", "chip", "device"]
    capacity: Bytes
    source: Source
    bandwidth: BytesPerSecond | None = None
    latency: Picoseconds = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """Fixed times of the machine around an operator.

    launch         from the start of a kernel to its first useful byte, and its tail.
    gap            between two kernels of one captured graph on a stream; units side by side have none.
    host_dispatch  host time of one framework call in eager mode; the device waits when it has nothing queued.
    host_submit    host time to start a captured graph, once a run.
    workspace      device memory that the matrix library keeps for each thread and stream that calls it.
    allocation     device memory comes in blocks of it: every tensor is rounded up.
    host_launch    host time of one kernel of a compiled program, launched from its wrapper; host_dispatch if None.
    """

    __pydantic_config__ = _CLOSED
    launch: Picoseconds
    source: Source
    gap: Picoseconds = 0
    host_dispatch: Picoseconds = 0
    host_submit: Picoseconds = 0
    workspace: SomeBytes = 0
    allocation: Bytes = 1
    host_launch: Picoseconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link off the chip: *count* of them, each with *bandwidth* in each direction."""

    __pydantic_config__ = _CLOSED
    bandwidth: BytesPerSecond
    source: Source
    count: Count = 1
    latency: Picoseconds = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Energies:
    """What work costs above idle, at the full clock and voltage.

    matrix  one FLOP of the matrix units, by the type of the operands; a type that is not listed costs as much as the
            next one that is as wide or wider.
    vector  one operation of one vector lane, a fused multiply-add counting as two.
    cache   one byte that an operator reads or writes, wherever it lies: registers, caches, network.
    dram    one byte, on top of that, that crosses to the off-chip memory.
    """

    __pydantic_config__ = _CLOSED
    matrix: Annotated[Mapping[DType, Attojoules], Field(min_length=1)]
    source: Source
    vector: Attojoules = 0
    cache: Attojoules = 0
    dram: Attojoules = 0

    def work(self, per_operation: int, operations: float, nbytes: float, off_chip: float) -> float:
        """Attojoules of *operations* at *per_operation* each and of *nbytes*, of which *off_chip* cross to the DRAM.

        Exact in integers if all of them are.
        """
        return operations * per_operation + nbytes * self.cache + off_chip * self.dram

    def matrix_flop(self, dtype: DType) -> int:
        """Attojoules of one FLOP of the matrix units with operands of *dtype*."""
        found = self.matrix.get(dtype)
        if found is not None:
            return found
        wider = [known for known in self.matrix if known.bits >= dtype.bits]
        return self.matrix[min(wider or self.matrix, key=lambda known: abs(known.bits - dtype.bits))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Idle power, the cap that the board holds, and what work costs; *energy* None if nobody knows."""

    __pydantic_config__ = _CLOSED
    cap: Watts
    source: Source
    idle: Watts | None = None
    energy: Energies | None = None

    @property
    def headroom(self) -> int:
        """Watts between idle and the cap, for work; idle counts as a sixth of the cap where it is not known."""
        return self.cap - (self.cap // 6 if self.idle is None else self.idle)


def _check_units(matrix: MatrixUnit, vector: VectorUnit) -> None:
    """Raise ValueError unless both units can do something and it is clear how much."""
    if matrix.array is not None and matrix.macs_per_cycle:
        raise ValueError("matrix: has both macs_per_cycle and array; one of them must go")
    if not matrix.dtypes:
        raise ValueError("matrix: needs macs_per_cycle, or array and rate")
    for dtype in matrix.dtypes:
        if not matrix.macs(dtype):
            raise ValueError(f"matrix.rate.{dtype}: less than one multiply-add a cycle in the whole array")
    if not vector.flops_per_cycle:
        raise ValueError("vector.flops_per_cycle: needs the rate of one type at least")


def _check_power(power: Power | None) -> None:
    """Raise ValueError if idling takes all the power."""
    if power is not None and power.headroom <= 0:
        raise ValueError(f"power: idle of {power.idle} W is not below the cap of {power.cap} W")


class Execution(StrEnum):
    """How operators share the chip.

    STREAM  one kernel after another, each over all cores: a GPU stream.
    UNITS   matrix, vector and DMA units run side by side, each in its own program order: an XPU.
    """

    STREAM = "stream"
    UNITS = "units"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One accelerator.  *source* says where its numbers come from; *memory* maps a level's name to the level.

    calibration          what measurements add to the data sheet, for the ``tile`` model; its defaults if None.
    year, process, area  of the die with the compute cores (all such dies together), as far as they are known.
    """

    __pydantic_config__ = _CLOSED
    name: str
    description: str
    source: Source
    cores: Count
    matrix: MatrixUnit
    vector: VectorUnit
    memory: Mapping[str, MemoryLevel]
    overheads: Overheads
    execution: Execution = Execution.STREAM
    host_link: Link | None = None
    links: Link | None = None
    power: Power | None = None
    calibration: Calibration | None = None
    year: Count | None = None
    process: str | None = None
    area: SquareMillimetres | None = None

    def __post_init__(self) -> None:
        """Refuse a chip on which nothing could run; the loader turns ValueError into SpecError with the path."""
        _check_units(self.matrix, self.vector)
        _check_power(self.power)
        device = [name for name, level in self.memory.items() if level.scope == "device"]
        if len(device) != 1:
            raise ValueError(f"memory: needs exactly one level with 'scope: device', got {device or 'none'}")
        if self.memory[device[0]].bandwidth is None:
            raise ValueError(f"memory.{device[0]}: needs a bandwidth")

    @property
    def dram_name(self) -> str:
        """Name of the off-chip level, such as ``hbm``."""
        return next(name for name, level in self.memory.items() if level.scope == "device")

    @property
    def dram(self) -> MemoryLevel:
        return self.memory[self.dram_name]

    @property
    def dram_bandwidth(self) -> int:
        """Bytes per second of the off-chip level, by its data sheet."""
        bandwidth = self.dram.bandwidth
        assert bandwidth is not None  # __post_init__ has seen to it
        return bandwidth

    def matrix_peak(self, dtype: DType) -> int | None:
        """Dense FLOP per second of all matrix units for operands of *dtype*; None if they have no such mode."""
        macs = self.matrix.macs(dtype)
        return None if macs is None else 2 * macs * self.matrix.clock * self.cores

    def vector_peak(self, dtype: DType) -> int:
        """FLOP per second of all vector units; a type without a rate of its own runs at that of fp32."""
        rates = self.vector.flops_per_cycle
        rate = rates.get(dtype) or rates.get(DType.FP32) or max(rates.values())
        return rate * self.vector.clock * self.cores

    def peak(self, dtype: DType) -> int:
        """FLOP per second of a matrix product in *dtype*: matrix units if they can, vector units otherwise."""
        return self.matrix_peak(dtype) or self.vector_peak(dtype)
