"""Where attention turns from bandwidth to compute on a chip, and what its blocks ask of SRAM and exponentials."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil

from hw_models import chip_names, load_chip
from simulator import simulate
from simulator.dims import AttentionDims
from simulator.dtypes import DType
from simulator.graph import OperatorGraph
from simulator.hardware import Chip
from simulator.result import Result
from simulator.variants import Resource
from workloads.flash_attention import traffic
from workloads.flash_attention.graphs import Fused, Written, graph_of, with_reads
from workloads.roofline.machine import math_dtype

HEADS, HEAD = 8, 128
LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
LENGTH = LENGTHS[-1]
SRAM = tuple(2**power * 1024 for power in range(4, 13))  # 16 KiB to 4 MiB a core
_TURNS = tuple(2**power for power in range(15))


@dataclass(frozen=True, slots=True)
class Pair:
    """One length on one chip: attention *written* out, and *fused*."""

    length: int
    written: Result
    fused: Result

    @property
    def speedup(self) -> float:
        return self.written.seconds / self.fused.seconds


@dataclass(frozen=True, slots=True)
class Block:
    """One size of SRAM a core, and no shared cache: *queries* of its largest block (0: none), and what follows."""

    sram: int
    queries: int
    result: Result | None


@dataclass(frozen=True, slots=True)
class Needs:
    """What fused attention asks of *chip*; all numbers for heads of `HEAD` and elements of two bytes.

    ridge        FLOP per byte at which arithmetic takes as long as the memory.
    written_flop_per_byte  intensity of attention written out at `LENGTH`; it has a limit, fused attention has none.
    turns        shortest power of two of queries at `LENGTH` keys from which fused attention is not bound by
                 bandwidth; None if none is.  *written_turns* the same of attention written out.
    rows         queries of a block from which keys, fetched for each block anew, are used often enough.
    needed       SRAM bytes of that block in one core; *held* is what a core has, *fits* the largest block for it.
    exponentials per cycle and core that keep up with the matrix unit at its peak; *vector* its FLOP a cycle.
    """

    chip: Chip
    dtype: DType
    ridge: float
    written_flop_per_byte: float
    fused_flop_per_byte: float
    turns: int | None
    written_turns: int | None
    rows: int
    needed: int
    held: int
    fits: int
    exponentials: float
    vector: int
    pair: Pair


def pairs(chip: Chip, lengths: Iterable[int] = LENGTHS) -> list[Pair]:
    """Simulate both on *chip* for one sequence of `HEADS` heads, without a mask, at each length."""
    return [_pair(chip, length) for length in lengths]


def _pair(chip: Chip, length: int, queries: int = 0) -> Pair:
    dims = _dims(length, queries)
    return Pair(length, simulate(_graph(False, dims, float_type(chip)), chip), _fused(dims, chip))


def _fused(dims: AttentionDims, chip: Chip) -> Result:
    return simulate(_graph(True, dims, float_type(chip)), chip)


@cache
def _graph(fused: bool, dims: AttentionDims, dtype: DType) -> OperatorGraph:
    return graph_of(Fused() if fused else Written(), dims, dtype)


def _dims(length: int, queries: int = 0) -> AttentionDims:
    return AttentionDims(1, HEADS, HEADS, queries or length, length, HEAD, HEAD)


def float_type(chip: Chip) -> DType:
    """bf16 if the chip multiplies it, else fp16, else bf16 at whatever rate it reaches."""
    return next((each for each in (DType.BF16, DType.FP16) if each in chip.matrix.dtypes), DType.BF16)


def by_sram(chip: Chip, sizes: Sequence[int] = SRAM) -> list[Block]:
    """What fused attention takes on *chip* if each core had *sizes* of SRAM and keys were fetched for each block."""
    dtype = float_type(chip)
    dims, size = _dims(LENGTH), dtype.bits // 8
    graph = _graph(True, dims, dtype)
    found = []
    for sram in sizes:
        queries = traffic.largest_block(sram, HEAD, size)
        reads = traffic.flash(dims, size, queries).reads if queries else 0
        found.append(Block(sram, queries, simulate(with_reads(graph, reads), chip) if queries else None))
    return found


def needs(chip: Chip) -> Needs:
    """Work out what `Needs` lists for *chip*."""
    dtype = float_type(chip)
    dims, size = _dims(LENGTH), dtype.bits // 8
    ridge = chip.peak(math_dtype(chip, dtype)) / chip.dram_bandwidth
    rows = _sixteens(ridge * size / 2)  # a block of B queries does 2 B FLOP for each element of a key
    written = sum(kernel.total for kernel in traffic.naive(dims, size))
    core = [level.capacity for level in chip.memory.values() if level.scope == "core"]
    held = max(core, default=0)
    macs = chip.peak(math_dtype(chip, dtype)) / 2 / chip.matrix.clock / chip.cores
    return Needs(
        chip=chip,
        dtype=dtype,
        ridge=ridge,
        written_flop_per_byte=traffic.intensity(dims, written),
        fused_flop_per_byte=traffic.intensity(dims, traffic.flash(dims, size, rows, cache=written).total),
        turns=_turns(chip, fused=True),
        written_turns=_turns(chip, fused=False),
        rows=rows,
        needed=traffic.whole_sram(rows, min(rows, 64), HEAD, size),
        held=held,
        fits=traffic.largest_block(held, HEAD, size),
        exponentials=traffic.exponentials_per_cycle(macs, HEAD),
        vector=chip.vector_peak(DType.FP32) // chip.vector.clock // chip.cores,
        pair=_pair(chip, LENGTH),
    )


def _turns(chip: Chip, *, fused: bool) -> int | None:
    """Queries from which bandwidth never binds again, by the floors of the data sheet alone."""
    dtype = float_type(chip)
    binds = [
        simulate(_graph(fused, _dims(LENGTH, count), dtype), chip, fidelity="roofline").bound
        for count in _TURNS
        if count <= LENGTH
    ]
    last = max((index for index, bound in enumerate(binds) if bound is not Resource.COMPUTE), default=-1)
    return _TURNS[last + 1] if last + 1 < len(binds) else None


def _sixteens(value: float) -> int:
    """The next multiple of 16: no matrix unit is fed with fewer rows."""
    return 16 * max(1, ceil(value / 16))


def library() -> list[Needs]:
    """`needs` of every chip of the library."""
    return [needs(load_chip(name)) for name in chip_names()]
