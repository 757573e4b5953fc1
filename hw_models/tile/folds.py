"""Matrix products on systolic arrays: folds of the stationary operand, and the traffic that the on-chip memory allows.

A fold is one filling of an array; the next one is loaded while this one works, so that back-to-back folds cost
max(streamed rows, array rows) cycles each, and filling and draining the array is paid once.  Edge folds cost as much
as full ones: that is the utilisation of an array by a shape.
"""

from math import ceil

from hw_models.tile.machine import Machine
from hw_models.tile.matmul import Product
from hw_models.tile.timing import Timing
from hw_models.tile.traffic import matmul_traffic
from simulator.dims import AttentionDims
from simulator.dtypes import DType

_SOFTMAX_FLOPS = 5  # maximum, subtract, exp, sum, divide


def fold_ps(machine: Machine, m: int, n: int, k: int, batch: int, dtype: DType) -> tuple[float, int]:
    """Picoseconds of *batch* products [m, k] x [k, n] on all arrays, and the folds that they take."""
    array = machine.chip.matrix.array
    assert array is not None
    rate = machine.chip.matrix.rate[dtype]
    stationary = {"ws": (k, n, m), "os": (m, n, k), "is": (k, m, n)}[array.dataflow]
    rows, columns, streamed = stationary
    folds = batch * ceil(rows / array.rows) * ceil(columns / array.columns)
    arrays = array.count * machine.chip.cores
    shares = max(1, arrays // folds) if folds else 1  # arrays that share one fold's rows where folds are few
    per_fold = max(ceil(streamed / shares) / rate, array.rows if array.dataflow != "os" else 1)
    cycles = ceil(folds / arrays) * per_fold + array.rows + array.columns - 2
    size = dtype.bits / 8  # every row of a fold, and the operand that stays, come out of the core's own memory
    read = folds * size * (array.rows * streamed + array.rows * min(columns, array.columns))
    return max(cycles * machine.cycle, read / (machine.scratch * machine.chip.cores)), folds


def folded(machine: Machine, work: Product) -> Timing:
    """Time of a matrix product on the arrays: arithmetic and traffic overlap, the longer decides."""
    compute, folds = fold_ps(machine, work.m, work.n, work.k, work.batch, work.dtype)
    traffic = matmul_traffic(work.m, work.n, work.k, work.batch, work.size, work.out_size, machine.on_chip, work.packed)
    dram = max(0.0, traffic - work.cached)
    launch = machine.calibration.matmul.launch * machine.launch
    unpacking = 0.0
    if work.packed < 1:  # every weight once, on its way to the arrays
        operations = machine.calibration.matmul.dequantise * work.batch * work.n * work.k
        unpacking = operations / (machine.flops(DType.FP32) / 2)
    time = launch + max(compute, unpacking, dram / machine.dram, work.flops / 2 / _rate(machine, work.dtype))
    cells = machine.chip.matrix.array
    assert cells is not None
    detail = f"{folds} folds of {cells.rows}x{cells.columns} ({cells.dataflow})"
    return Timing(time, launch, compute, dram / machine.floor, dram, detail)


def folded_attention(machine: Machine, dims: AttentionDims, dtype: DType, nbytes: int, cached: int) -> Timing:
    """Attention as products on the arrays beside the softmax on the vector units, scores kept on the chip."""
    heads = dims.batch * dims.heads
    share = dims.pairs / max(1, dims.q_len * dims.kv_len)
    scores, folds = fold_ps(machine, dims.q_len, dims.kv_len, dims.head_dim, heads, dtype)
    values, more = fold_ps(machine, dims.q_len, dims.value_dim, dims.kv_len, heads, dtype)
    compute = (3 * scores + 2 * values if dims.backward else scores + values) * share
    softmax = _SOFTMAX_FLOPS * heads * dims.pairs / machine.flops(dtype)
    dram = float(max(0, nbytes - cached))
    launch = machine.calibration.attention.launch * machine.launch
    floor = dims.flops / 2 / _rate(machine, dtype)
    time = launch + max(compute, softmax, dram / machine.dram, floor)
    detail = f"{folds + more} folds, softmax beside"
    return Timing(time, launch, max(compute, floor), dram / machine.floor, dram, detail)


def _rate(machine: Machine, dtype: DType) -> float:
    rate = machine.macs(dtype)
    assert rate is not None  # callers ask only for types that the array has
    return rate
