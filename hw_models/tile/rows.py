"""Everything that is no matrix product: pointwise, moves, and work along rows.

* pointwise: launch + bytes / bandwidth, with the arithmetic beside it
* rows: launch + the longer of one row's latency and the throughput of all rows (bytes, elements, rows)
"""

from dataclasses import dataclass
from math import ceil

from hw_models.tile.machine import Machine
from hw_models.tile.timing import Timing, together
from simulator.calibration import RowCalibration
from simulator.dims import RowDims
from simulator.dtypes import DType

_SHARP = 3.0  # how nearly arithmetic hides behind memory traffic in a pointwise kernel
_BLOCK = 2.0  # the same for one row's latency and the throughput of all
AXES = (
    3  # of heads that are permuted: what `addressed` of the calibration is the rate of; fewer go faster in proportion
)
_COLUMNS = 32  # that a block sums down
_WARP_ROW = 1024  # elements up to which one warp does a row, with no exchange between warps
_WIDER = 32  # times more threads for a long row
_ELEMENT = {"gelu": 30, "silu": 21, "sigmoid": 16, "tanh": 20, "erf": 25, "exp": 8, "mish": 30, "softplus": 20,
            "gelu_backward": 45, "silu_backward": 28, "pow": 16, "log": 8, "sin": 20, "cos": 20}  # fmt: skip

_WRITTEN = {"gelu": 40}  # where Triton's erf differs from the library's: docs/data/passes_inductor.json


@dataclass(frozen=True, slots=True)
class Stream:
    """*reads* and *writes* in bytes, *cached* of the reads still on the chip; *flops* beside them.

    name      what the operator is called, without its namespace.
    elements  of its largest output; *dims* of its rows, if it works along rows.
    strided   whether neighbours in the output are no neighbours in the input.
    aligned   whether rows that are read are multiples of 16 bytes.
    addressed axes that are taken apart to find each element's address, where operands are broadcast or permuted; or 0.
    converted whether elements are loaded in several types and converted one by one.
    gains     whether a second kernel sums the gradient of a norm's parameters down the columns.
    generated whether a compiler wrote the kernel.
    sums      along a row in a generated kernel, one after another; a library's kernel has its own constants.
    """

    name: str
    reads: int
    writes: int
    flops: int
    dtype: DType
    elements: int = 0
    cached: int = 0
    dims: RowDims | None = None
    strided: bool = False
    aligned: bool = True
    addressed: int = 0
    converted: bool = False
    gains: bool = False
    generated: bool = False
    sums: int = 1


def pointwise(machine: Machine, work: Stream) -> Timing:
    """Time of one pass over memory, one element at a time."""
    cal = machine.calibration.vector
    launch = cal.launch * machine.launch
    nbytes = work.reads + work.writes
    dram = float(max(0, nbytes - work.cached))
    share = cal.strided if work.strided else 1.0
    again = 0.0 if work.aligned else (cal.unaligned - 1) * work.reads
    memory = (max(dram / machine.dram, nbytes / machine.cache) + again / machine.dram) / share
    done = operations(work)
    compute = done / machine.flops(DType.FP32)
    if work.addressed:
        rate = cal.optimizer if work.name == "adamw" else cal.addressed * AXES / work.addressed
        compute = max(compute, work.elements / rate * machine.cycle / machine.chip.cores)
    if work.converted:
        each = machine.cycle / machine.chip.cores / cal.converted
        compute = max(compute, work.elements * each) + cal.converting * machine.cycle
    body = together(together(compute, memory, _SHARP), cal.first_byte * machine.cycle, _BLOCK)
    floor = work.flops / machine.flops(work.dtype)
    detail = _detail(work)
    time = launch + max(body, floor)
    watts = machine.vector_watts(done, nbytes, dram, time)
    return Timing(time, launch, floor, dram / machine.floor, dram, detail, watts, done)


def _detail(work: Stream) -> str:
    if work.strided:
        return "strided copy"
    return "address by element" if work.addressed else "converted by element" if work.converted else ""


def operations(work: Stream) -> float:
    """Vector operations of a pointwise operator: what its formula expands to on lanes without an exponential."""
    table = _ELEMENT | _WRITTEN if work.generated else _ELEMENT
    each: dict[str, int] = {}
    for name in work.name.split("+"):
        function = name.removesuffix("_").removesuffix("_backward")  # a gradient has the same exponential in it
        each[function] = max(each.get(function, 0), table.get(name.removesuffix("_"), 0))
    return float(max(work.flops, sum(each.values()) * work.elements))


def rows(machine: Machine, work: Stream, cal: RowCalibration) -> Timing:
    """Time of a kernel with one block of threads a row."""
    assert work.dims is not None
    cores, cycle = machine.chip.cores, machine.cycle
    launch = machine.calibration.vector.launch * machine.launch
    nbytes = work.reads + work.writes
    dram = float(max(0, nbytes - work.cached))
    slower = 1.0 if work.aligned else machine.calibration.vector.unaligned
    count, length = work.dims.rows, work.dims.columns
    kept = length <= max(_WARP_ROW, cal.held)  # in registers, of a warp or of a block
    passes = cal.passes / 2 + 0.5 if work.name.endswith("_backward") or "_backward_" in work.name else cal.passes
    again = 0.0 if kept else work.reads * (passes - 1) / machine.dram  # a gradient reads one of its two inputs again
    each = cal.held_cycles if kept and length > _WARP_ROW else cal.cycles
    memory = max(dram / machine.dram, nbytes / machine.cache) + again
    across = work.dims.inner > 1  # neighbouring threads have neighbouring rows, and none waits for a row of its own
    busy = count * ((0 if across else work.sums * cal.row_cycles) + each * length) * cycle / cores
    latency = 0.0 if across else _row_latency(cal, length) * cycle
    floor = work.flops / machine.flops(work.dtype)
    body = together(latency, slower * together(memory, busy, _BLOCK), _BLOCK)
    detail = f"{count} rows of {length}, {count / cores:.3g} a core"
    time = launch + max(body, floor)
    if work.gains:
        time += launch + _down_columns(machine, work)
    done = max(float(work.flops), count * length * cal.cycles * machine.flops(DType.FP32) * cycle / cores)
    watts = machine.vector_watts(done, nbytes, dram, time)
    return Timing(time, launch, floor, dram / machine.floor, dram, detail, watts, done)


def _down_columns(machine: Machine, work: Stream) -> float:
    """Time of sums down all columns of what was read: a block has 32 columns, so that few cores have work."""
    assert work.dims is not None
    blocks = ceil(work.dims.columns / _COLUMNS)
    waves = ceil(blocks / machine.chip.cores)
    drawn = work.reads / blocks * waves / machine.calibration.vector.columns * machine.cycle
    return max(drawn, work.reads / machine.dram)


def _row_latency(cal: RowCalibration, length: int) -> float:
    """Cycles from the start of one row to its end, with the core to itself."""
    each = cal.element_latency * (length if length <= cal.span else length / _WIDER)
    return cal.latency * min(1.0, length / _WARP_ROW) + each
