"""Matrix products on cores with tensor units: waves of tiles, the best of a few tile shapes and splits of K.

    tile   steps x max(arithmetic of a step, latency of a step, bytes of a step / share of the cache bandwidth)
    time   launch + the longer of waves x tile and bytes / bandwidth + adding up the parts, if K was split
           and longer by (power wanted / power allowed) ** exponent where the cap holds the clock down

A step is 128 bytes of K; its operands also have to be read from the core's own memory.  Waves are whole: a last wave
with few tiles takes as long as a full one.
"""

from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import ceil, log2

import numpy as np
from numpy.typing import NDArray

from hw_models.tile.machine import Machine
from hw_models.tile.timing import Timing
from hw_models.tile.traffic import matmul_traffic
from simulator.dtypes import DType

WIDEST = 16  # bytes of the widest load of a thread, and the granule of bulk copies
STEP_BYTES = 128  # of K in one step of the pipeline: one row of a swizzled tile in shared memory
_TILE_CELLS = 128 * 256  # accumulators that the registers of a core hold
_ROWS, _COLUMNS = (64, 128, 192, 256), (64, 96, 128, 160, 192, 224, 256)
_SPLITS = (1, 2, 3, 4, 6, 8)
_WARPS_ROWS = 64  # of a tile that share one read of the right operand from the core's own memory
_LANE_COLUMNS = (64, 128, 256)  # for a product on the vector lanes
_NARROW_STREAM = 0.6  # of the slowdown of unaligned arithmetic hits unaligned streams
_VECTOR_ROWS = 4  # up to which a product goes row by row, unaligned or without matrix hardware
_LEAST_ROWS = 16  # of a tile that a matrix unit takes
_DOT_BYTES = 256  # of a dot product that keep a warp busy


@dataclass(frozen=True, slots=True)
class Product:
    """*batch* products [m, k] x [k, n].

    size, out_size  bytes of one element of the operands and of the result.
    width           bytes that one load can take: the largest power of 2 up to 16 that divides every row.
    cached          bytes of the operands that are still on the chip.
    packed          part of its size that the right operand takes, if it is quantised and unpacked by the kernel.
    """

    m: int
    n: int
    k: int
    batch: int
    dtype: DType
    size: float
    out_size: float
    width: int = 16
    cached: int = 0
    packed: float = 1.0

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def written(self) -> float:
        """Bytes of the result."""
        return self.batch * self.m * self.n * self.out_size


@cache
def _candidates(widths: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Rows, columns and splits of every way to cut a product that is tried."""
    shapes = [(m, n) for m, n in product(_ROWS, widths) if m * n <= _TILE_CELLS]
    ways = np.array([(m, n, s) for (m, n) in shapes for s in _SPLITS], dtype=np.float64)
    return ways[:, 0], ways[:, 1], ways[:, 2]


def matmul(machine: Machine, work: Product) -> Timing:
    """Time of *work* with the chip to itself; packed weights are unpacked in the kernel or before it, as is faster."""
    inside = _product(machine, work)
    if work.packed == 1:
        return inside
    before = _unpacked_before(machine, work)
    return min(inside, before, key=lambda timing: timing.time)


def _unpacked_before(machine: Machine, work: Product) -> Timing:
    """A kernel that writes the weights unpacked, then a product of the dense type."""
    dense = _product(machine, replace(work, packed=1.0))
    stored = work.batch * work.n * work.k * work.size
    moved = stored * (1 + work.packed)
    first = machine.launch + moved / (machine.calibration.matmul.unpacked * machine.dram)
    return replace(
        dense,
        time=dense.time + first,
        launch=dense.launch + machine.launch,
        memory=dense.memory + moved / machine.floor,
        traffic=dense.traffic + moved,
        detail=f"unpacked first, {dense.detail}",
    )


def _product(machine: Machine, work: Product) -> Timing:
    """Time of one kernel."""
    cal = machine.calibration.matmul
    traffic = matmul_traffic(work.m, work.n, work.k, work.batch, work.size, work.out_size, machine.on_chip, work.packed)
    dram = max(0.0, traffic - work.cached)
    moved = dram + work.written * (1 / cal.store - 1)
    memory = max(moved / machine.dram * _short(work), traffic / machine.cache)
    macs = machine.macs(work.dtype)
    if work.width < WIDEST and work.m <= _VECTOR_ROWS:
        best, detail = memory * (1 + work.m / work.width), "row by row, unaligned"
    elif work.m <= _VECTOR_ROWS and 2 * (macs or 0) <= machine.flops(work.dtype):
        # without matrix hardware there is no tile to fill: each lane has a dot product of its own
        best = max(memory, work.flops / (cal.vector * machine.flops(work.dtype)))
        detail = "row by row on the vector lanes"
    else:
        best, detail = _waves(machine, work, memory, macs)
    launch = cal.launch * machine.launch
    rate = macs or machine.flops(work.dtype) / 2
    watts = machine.watts(work.dtype, work.flops, launch + best)
    return Timing(launch + best, launch, work.flops / 2 / rate, dram / machine.floor, dram, detail, watts)


def _unpacking(machine: Machine, work: Product) -> float:
    """Time in which lanes unpack every weight, once for each row of tiles, and parts of K are added up.

    It comes on top of the traffic: the few blocks that a core has registers for load and unpack in turn.  Tiles are as
    high as a power of two; a matrix unit takes 16 rows at least.
    """
    cal = machine.calibration.matmul
    if not cal.dequantise:
        return 0.0
    height = min(cal.packed_rows, max(_LEAST_ROWS, 1 << (work.m - 1).bit_length()))
    each = cal.dequantise * (1 + cal.packed_row * height)
    weights = work.batch * work.n * work.k * ceil(work.m / height)
    return each * weights / (machine.flops(DType.FP32) / 2) + cal.split * machine.launch


def _short(work: Product) -> float:
    """Times by which the lanes of a batched matrix-vector product run empty where its dot products are short."""
    vector = work.batch > 1 and 1 in (work.m, work.n)
    return max(1.0, _DOT_BYTES / (work.k * work.size)) if vector else 1.0


def _waves(machine: Machine, work: Product, memory: float, macs: float | None) -> tuple[float, str]:
    """The shortest time of all candidates and how it comes about."""
    cal, cores = machine.calibration.matmul, machine.chip.cores
    rows, columns, splits = _candidates(_COLUMNS if macs else _LANE_COLUMNS)
    rate = cal.efficiency * macs if macs else cal.vector * machine.flops(work.dtype) / 2
    slower = cal.unaligned ** (log2(WIDEST / work.width) / 3)
    depth = STEP_BYTES / work.size if macs else min(STEP_BYTES / work.size, work.k)  # lanes pad nothing
    steps = np.ceil(work.k / splits / depth)
    tiles = work.batch * np.ceil(work.m / rows) * np.ceil(work.n / columns) * splits
    waves = np.ceil(tiles / cores)
    arithmetic = slower * depth * rows * columns / (rate / cores)
    streamed = (np.minimum(rows, work.m) + np.minimum(columns, work.n)) * STEP_BYTES / cal.multicast
    read = (rows + np.ceil(rows / _WARPS_ROWS) * columns) * STEP_BYTES
    latency = np.maximum(cal.step_cycles * machine.cycle, read / machine.scratch if macs else 0.0)
    step = np.maximum(np.maximum(arithmetic, latency), streamed * np.minimum(tiles, cores) / machine.cache)
    parts = work.batch * work.m * work.n * 4 * 2 * splits / machine.cache + cal.split * machine.launch
    drawn = cal.stream / machine.cycle * np.minimum(tiles, cores)  # what the busy cores can draw
    streams = memory * max(1.0, _NARROW_STREAM * slower) * np.maximum(1.0, machine.dram / drawn)
    if work.packed < 1:
        streams = streams + _unpacking(machine, work)
    body, beside = waves * steps * step, np.maximum(streams, 1e-9)
    longer = np.maximum(body, beside)
    time = longer * (1 + (np.minimum(body, beside) / longer) ** cal.overlap) ** (1 / cal.overlap)
    time += np.where(splits > 1, parts, 0.0)
    best = int(time.argmin())
    shape = f"{int(rows[best])}x{int(columns[best])} tiles, {tiles[best] / cores:.3g} waves of {cores}"
    return float(time[best]), shape + (f", split-K {int(splits[best])}" if splits[best] > 1 else "")
