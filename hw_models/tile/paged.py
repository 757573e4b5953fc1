"""Attention over keys and values in pages, by kernels that look each page up (`workloads.inference.kernels_attention`).

Single new tokens: a block has the query heads of one key head of one sequence and a part of its keys, 64 at a time; a
second kernel adds the parts up.  Blocks draw no more than the latency of their loads lets them, so that the last ones,
when too few are left, are slow.  Runs of new tokens: blocks of queries, as `hw_models.tile.attention` has them.

    first   all waves but the last: bytes / bandwidth
    last    the longer of its bytes / bandwidth and the time of one block alone
    time    launch + block latency + first + last + sum of the parts
"""

from math import ceil

from hw_models.tile.attention import Attention, blocks
from hw_models.tile.machine import Machine
from hw_models.tile.timing import Timing
from simulator.dims import AttentionDims

_KEYS = 64  # that a block takes at a time
_STAGES = 2  # pairs of tiles, keys and values, that it holds while they are on their way
_MAX_PARTS = 64
_A_CORE = 4  # blocks that keys are split for


def paged(machine: Machine, work: Attention) -> Timing:
    """Time of *work* with the chip to itself."""
    dims, cal = work.dims, machine.calibration.paged
    launch = cal.launch * machine.launch
    dram = float(max(0, work.nbytes - work.cached))
    memory = max(dram / machine.dram, work.nbytes / machine.cache)
    if dims.q_len > 1:
        body, detail = blocks(machine, work, machine.calibration.flash)
        body = max(body, memory)
    else:
        body, detail = _decode(machine, work, memory)
    rate = machine.macs(work.dtype) or machine.flops(work.dtype) / 2
    return Timing(launch + body, launch, dims.flops / 2 / rate, dram / machine.floor, dram, detail)


def _decode(machine: Machine, work: Attention, memory: float) -> tuple[float, str]:
    """Time of the parts of all keys and of their sum, and how it comes about."""
    dims, cal = work.dims, machine.calibration.paged
    keys = min(dims.kv_len, dims.window) if dims.window else dims.kv_len
    heads = dims.batch * dims.kv_heads
    parts = split(machine.chip.cores, heads, keys)
    span = ceil(ceil(keys / parts) / _KEYS)  # tiles of one part
    waves = heads * ceil(ceil(keys / _KEYS) / span) / (machine.chip.cores * _resident(machine, work))
    last = waves - ceil(waves) + 1
    alone = span * cal.tile_cycles * machine.cycle
    stream = memory * (waves - last) / waves + max(memory * last / waves, alone)
    body = cal.block_cycles * machine.cycle + stream + _combine(machine, dims, parts)
    return body, f"{heads} heads of keys, split in {parts}, {waves:.3g} waves"


def split(cores: int, heads: int, keys: int) -> int:
    """Parts of *keys* for so many key *heads*: four blocks a core, if there are 64 keys for each.

    >>> split(132, 8, 2048), split(132, 128, 2048), split(132, 1024, 2048)
    (32, 5, 1)
    """
    return max(1, min(_MAX_PARTS, ceil(keys / _KEYS), ceil(_A_CORE * cores / heads)))


def _resident(machine: Machine, work: Attention) -> int:
    """Blocks that a core has room for at a time; two where its memory is not known."""
    own = max((level.capacity for level in machine.chip.memory.values() if level.scope == "core"), default=0)
    tile = _KEYS * (work.dims.head_dim + work.dims.value_dim) * work.size
    return max(1, int(own // (_STAGES * tile + 1))) if own else 2


def _combine(machine: Machine, dims: AttentionDims, parts: int) -> float:
    """Time of the kernel that adds up *parts*; one row of it is one head of one sequence."""
    cal = machine.calibration.paged
    rows = dims.batch * dims.heads / machine.chip.cores
    return cal.combine * machine.launch + (parts * cal.part_cycles + rows * cal.row_cycles) * machine.cycle
