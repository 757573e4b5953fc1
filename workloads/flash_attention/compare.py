"""Predicted DRAM bytes beside those that hardware counters saw: PyTorch's kernels, and the kernels of this lab."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from hw_models import load_chip
from simulator import simulate
from simulator.dims import AttentionDims
from simulator.dtypes import DType
from simulator.hardware import Chip
from workloads.flash_attention import traffic
from workloads.flash_attention.graphs import Fused, Written, graph_of
from workloads.flash_attention.traffic import Kernel

COUNTERS = Path(__file__).parents[2] / "hw_models" / "data" / "h200" / "attention_dram.csv"
LARGE = 10_000_000  # bytes from which a kernel counts
TARGET = 0.10
_SIZE = 2  # bytes of fp16
_BLOCK_Q = 128
_STAYS = 10_000_000  # one constant for nine kernels of this lab: a sixth of the L2 of an H200


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel: bytes *read* and *written* by the counters, by formula (*closed*) and by the simulator.

    stays      bytes of what it wrote that are still in the L2 when it ends, where nothing of others was there before.
    simulated  all bytes; None where the simulator has no such kernel (parts of a split, single backward kernels).
    """

    case: str
    kernel: Kernel
    read: float
    written: float
    simulated: int | None
    stays: int = 0

    @property
    def counted(self) -> float:
        return self.read + self.written

    @property
    def large(self) -> bool:
        return self.counted > LARGE

    @property
    def error(self) -> float:
        """Of the formula, over all bytes, as far as the counters can see them."""
        return (self.kernel.reads + self.seen) / self.counted - 1

    @property
    def seen(self) -> int:
        """Bytes that leave for the memory before the kernel ends."""
        return max(0, self.kernel.writes - self.stays)

    @property
    def read_error(self) -> float:
        """Of the formula, over the bytes that are read."""
        return self.kernel.reads / self.read - 1

    @property
    def simulated_error(self) -> float | None:
        return None if self.simulated is None else self.simulated / self.counted - 1


def library_rows(path: Path = COUNTERS, chip: Chip | None = None) -> list[Row]:
    """Rows of PyTorch's kernels: attention written out, and its flash kernel; fp16, one sequence, no mask."""
    where = chip or load_chip("h200")
    with path.open(newline="") as file:
        found = list(csv.DictReader(file))
    rows: list[Row] = []
    for (mode, length, heads, head), group in groupby(found, lambda row: (row["mode"], row["S"], row["H"], row["D"])):
        dims = AttentionDims(1, int(heads), int(heads), int(length), int(length), int(head), int(head))
        counted = list(group)
        kernels = _library_kernels(mode, dims, where, len(counted))
        simulated = () if len(counted) == 2 else _simulated(mode, dims, where.name)  # the library's split is its own
        for index, (row, kernel) in enumerate(zip(counted, kernels, strict=True)):
            read, written = float(row["dram_read_bytes"]), float(row["dram_write_bytes"])
            traffic_of = simulated[index] if simulated else None
            rows.append(Row(f"{mode} {length} x {heads} x {head}", kernel, read, written, traffic_of))
    return rows


def _library_kernels(mode: str, dims: AttentionDims, chip: Chip, count: int) -> Sequence[Kernel]:
    held = chip_cache(chip)
    if mode == "naive":
        return traffic.naive(dims, _SIZE, held)
    whole = traffic.flash(dims, _SIZE, _BLOCK_Q, held)
    if count == 1:
        return (whole,)
    # The library splits keys where heads and blocks of 64 queries do not fill two slots of each core: 12 x 16 blocks
    # for 264 slots, and 1024 keys in blocks of 256, are most even in 4 parts.  Each writes its output in fp32.
    parts = 4
    out = dims.heads * dims.q_len * dims.value_dim
    partial = parts * (4 * out + 4 * dims.heads * dims.q_len)
    return Kernel("split", whole.reads, partial), Kernel("combine", 0, _SIZE * out)


@cache
def _simulated(mode: str, dims: AttentionDims, name: str) -> tuple[int, ...]:
    module = Written() if mode == "naive" else Fused()
    return tuple(cost.traffic for cost in simulate(graph_of(module, dims, DType.FP16), load_chip(name)).costs)


def own_rows(facts: Mapping[str, Any], chip: Chip | None = None) -> list[Row]:
    """Rows of the kernels of this lab, bf16, from the counters that ``device-run`` read; none if it read none."""
    counted = facts.get("counters")
    return list(_own(counted, chip or load_chip("h200"))) if isinstance(counted, list) else []


def _own(counted: Sequence[Mapping[str, Any]], chip: Chip) -> Iterator[Row]:
    for row in counted:
        kind, *rest = row["case"].split()
        length, heads, head = map(int, rest[-3:])
        decode = kind == "decode"
        dims = AttentionDims(1, heads, heads, 1 if decode else length, length, head, head, causal="causal" in rest)
        kernel = _own_kernels(dims, chip).get(row["expected"])
        if kernel is not None:
            yield Row(row["case"], kernel, row["dram_read_bytes"], row["dram_write_bytes"], None, _STAYS)


def _own_kernels(dims: AttentionDims, chip: Chip) -> dict[str, Kernel]:
    """Closed forms by the name of the kernel; the parts of decode are small beside its keys and left out."""
    whole = traffic.flash(dims, _SIZE, _BLOCK_Q, chip_cache(chip))
    queries, _, _ = traffic.tensors(dims, _SIZE)
    sums, of_queries, of_keys = traffic.flash_backward(dims, _SIZE)
    return {
        "forward": whole,
        "decode": whole,
        "row_sums": sums,
        # the run hands V over as the gradient of the output, so that one of four tensors is there already
        "query_gradient": replace(of_queries, reads=of_queries.reads - queries),
        "key_gradient": replace(of_keys, reads=of_keys.reads - queries),
    }


@cache
def predicted_us(dims: AttentionDims) -> float:
    """Microseconds of fused attention of bf16 on an H200 by the simulator, whose constants are of PyTorch's kernels."""
    return simulate(graph_of(Fused(dims.causal), dims, DType.BF16), load_chip("h200")).seconds * 1e6


def chip_cache(chip: Chip) -> int:
    """Bytes of the caches that all cores share."""
    return sum(level.capacity for level in chip.memory.values() if level.scope == "chip")


def within(rows: Sequence[Row]) -> tuple[int, int]:
    """How many of the large kernels the formula predicts within `TARGET`, and how many there are."""
    large = [row for row in rows if row.large]
    return sum(abs(row.error) <= TARGET for row in large), len(large)
