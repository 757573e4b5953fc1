"""Fused attention on cores with tensor units.

Many queries: blocks of 128 query rows, two at a time on a core.  A query-key pair costs its products on the tensor
units and one exponential, one after the other.  The cores finish together but for the last blocks; with few blocks the
longest decides.  Few queries (decode): blocks stream keys and values, and where heads do not fill the cores the keys
are split.
"""

from dataclasses import dataclass
from math import ceil

from hw_models.tile.machine import Machine
from hw_models.tile.timing import Timing
from simulator.calibration import AttentionCalibration
from simulator.dims import AttentionDims
from simulator.dtypes import DType

_ROWS = 128  # queries of one block
_SLOTS = 2  # blocks that share a core
_KEYS = 128  # keys of the smallest part when they are split
_MAX_PARTS = 128
_FILLED = 0.8  # of the slots from which keys are not split
_DECODE_ROWS = 16  # queries up to which the kernel streams


@dataclass(frozen=True, slots=True)
class Attention:
    """*dims* with the type and size of an element; *nbytes* to move and *cached* of them still on the chip.

    named  whether the program asked for the flash kernel by its name.
    """

    dims: AttentionDims
    dtype: DType
    size: float
    nbytes: int
    cached: int = 0
    named: bool = False


def attention(machine: Machine, work: Attention) -> Timing:
    """Time of *work* with the chip to itself."""
    dims, cal = work.dims, constants(machine, work)
    launch = cal.launch * machine.launch
    dram = float(max(0, work.nbytes - work.cached))
    memory = max(dram / machine.dram, work.nbytes / machine.cache)
    if dims.q_len > _DECODE_ROWS or dims.backward:
        body, detail = blocks(machine, work, cal)
        body = max(body, memory)
    else:
        body, detail = _streams(machine, work, memory)
    rate = machine.macs(work.dtype) or machine.flops(work.dtype) / 2
    return Timing(launch + body, launch, dims.flops / 2 / rate, dram / machine.floor, dram, detail)


def constants(machine: Machine, work: Attention) -> AttentionCalibration:
    """The constants of the kernel that does *work*."""
    return machine.calibration.flash if work.named else machine.calibration.attention


def pair_ps(machine: Machine, work: Attention, cal: AttentionCalibration) -> float:
    """Picoseconds of one core for one query-key pair: its products, then its exponential."""
    dims, cores = work.dims, machine.chip.cores
    macs = machine.macs(work.dtype)
    rate = (cal.efficiency * macs if macs else machine.flops(work.dtype) / 4) / cores
    products = dims.head_dim + dims.value_dim
    if dims.backward:
        products = 3 * dims.head_dim + 2 * dims.value_dim
        rate *= cal.backward
    return products / rate + machine.cycle / cal.exponentials


def blocks(machine: Machine, work: Attention, cal: AttentionCalibration) -> tuple[float, str]:
    """Time of blocks of queries over the cores, and how it comes about."""
    dims, cores = work.dims, machine.chip.cores
    pair = pair_ps(machine, work, cal)
    over = dims.kv_len if dims.backward else dims.q_len  # the gradient kernel has a block for 128 keys
    each = ceil(over / _ROWS)
    count = dims.batch * dims.heads * each
    fixed = cal.block_cycles * machine.cycle
    edge = _ROWS * min(_ROWS, dims.kv_len) / 2 * each if dims.causal else 0.0  # half of the diagonal is masked
    padded = each * _ROWS / over
    total = count / each * ((dims.pairs * padded + edge) * pair + each * fixed)
    longest = _ROWS * min(dims.window or dims.kv_len, dims.kv_len) * pair + fixed
    if count <= cores:
        body = longest * cal.alone
    else:
        late = cal.tail if dims.causal else cal.tail * (ceil(count / (_SLOTS * cores)) - count / (_SLOTS * cores))
        body = max(total / cores + late * _SLOTS * longest, _SLOTS * longest)
    return body, f"{count} blocks of {_ROWS} rows, {count / (_SLOTS * cores):.3g} waves of {_SLOTS * cores}"


def _streams(machine: Machine, work: Attention, memory: float) -> tuple[float, str]:
    """Time of streaming keys and values, split over blocks where that is faster."""
    dims, cal = work.dims, constants(machine, work)
    slots = _SLOTS * machine.chip.cores
    heads = dims.batch * dims.kv_heads * ceil(dims.q_len * dims.heads / max(1, dims.kv_heads) / 64)
    keys = min(dims.kv_len, dims.window) if dims.window else dims.kv_len
    key_bytes = (dims.head_dim + dims.value_dim) * work.size
    padded, waves = ceil(keys / _KEYS) * _KEYS, heads / slots
    later = max(0, ceil(waves) - 1) * cal.block_cycles  # the fixed cycles of the first wave are part of the launch
    whole = (_sharing(waves) * padded * key_bytes / cal.stream + later) * machine.cycle
    best, parts = max(whole, memory), 1
    most = 1 if heads >= _FILLED * slots else min(_MAX_PARTS, ceil(keys / _KEYS))
    for count in range(2, most + 1):
        part = ceil(keys / count / _KEYS) * _KEYS * key_bytes / cal.split_stream
        stream = ceil(heads * count / slots) * part
        added = cal.split * machine.launch + count * cal.part_cycles * machine.cycle
        if (time := max(stream * machine.cycle, memory) + added) < best:
            best, parts = time, count
    return best, f"{heads} streams of keys" + (f", split in {parts}" if parts > 1 else "")


def _sharing(waves: float) -> float:
    """Times of one stream that *waves* of them take: those of a last wave that is not half full run twice as fast.

    >>> _sharing(0.1), _sharing(2.0), _sharing(2.25), _sharing(2.75)
    (1.0, 2.0, 2.5, 3.0)
    """
    full = int(waves)
    return 1.0 if waves <= 1 else full + min(1.0, 2 * (waves - full))
