"""One GEMM of ``xpusim array``: its options, and its row.

Keys of the row beside those of hw_models/array_model/runs.py, of which phases, folds, mapping efficiency and words are
those of one core, the one with the largest block:

    cores, grid, block          arrays; parts of m, n and k, whose product is the cores at work; the largest block
    reduction_cycles            to add up the parts of k, at the end and in ``cycles``
    clock_hz, word_bytes, seconds
    sram_bytes, dram_bytes      moved by one core; ``dram_bytes`` is null without scratchpads
    accumulator_bytes           of one core; 0 for os, whose sums stay in the cells, and for SCALE-Sim, which has none
    bound                       compute, bandwidth or capacity
    saved, ten_percent          share of the time that an unlimited amount of each, or 10 % more, would save
    least_bandwidth             bytes a second, at most 5 % slower than with infinitely many; null without scratchpads
    least_sram_bytes            the same for the scratchpads: ifmap, filter, ofmap; null without scratchpads
"""

import argparse
import math
from dataclasses import astuple, dataclass, fields
from typing import Any

from hw_models.array_model.place import SUM_BYTES
from hw_models.array_model.runs import DRAM, rows_of
from hw_models.array_model.scalesim import Layer
from hw_models.array_model.sizing import Machine, Sizing, size_up
from hw_models.systolic import Array, Convention, Dataflow, Scratchpads, Split, map_gemm
from hw_models.systolic.array import MOST_SIDE
from hw_models.systolic.cores import MOST_CORES
from hw_models.systolic.traffic import minimum_scratchpads
from simulator.cli.gemm_options import Shape, amount, gemm_shape, one_of, size
from simulator.dtypes import DType
from simulator.errors import UsageError

_DTYPES = (str(DType.INT8), str(DType.BF16))
_EXAMPLE = "256KiB,256KiB,128KiB"
SRAM = ("sram_ifmap_reads", "sram_filter_reads", "sram_ofmap_writes")


@dataclass(frozen=True, slots=True)
class Gemm:
    """One GEMM that has run on one machine."""

    shape: Shape
    dtype: str
    machine: Machine
    split: Split
    sizing: Sizing

    @classmethod
    def of(cls, options: argparse.Namespace, convention: Convention) -> "Gemm":
        """Run what *options* say; UsageError names the option that is wrong."""
        shape = gemm_shape(options.gemm)
        dtype = one_of("--dtype", options.dtype or _DTYPES[0], _DTYPES)
        machine = _machine(options, convention, DType(dtype).bits // 8)
        _check_room(machine, shape)
        return cls(shape, dtype, machine, machine.run(shape), size_up(machine, shape))

    @property
    def block(self) -> Shape:
        """m, n, k of the largest block."""
        parts = self.split.m_parts, self.split.n_parts, self.split.k_parts
        m, n, k = (-(-extent // part) for extent, part in zip(self.shape, parts, strict=True))
        return m, n, k

    @property
    def utilisation(self) -> float:
        """Multiply-adds over those of all cells of all cores in all cycles."""
        return math.prod(self.shape) / (self.machine.array.cells * self.machine.cores * self.split.cycles)

    @property
    def accumulator_bytes(self) -> int:
        """Bytes behind one array that hold partial sums."""
        array, time = self.machine.array, int(self.split.largest.mapping.time)
        if array.convention is Convention.SCALESIM or array.dataflow is Dataflow.OUTPUT:
            return 0
        return SUM_BYTES * array.columns * (array.depth or time)

    def row(self) -> dict[str, Any]:
        """Return what ``--json`` writes."""
        machine, split, sizing = self.machine, self.split, self.sizing
        (row,) = rows_of([Layer("1", *self.shape)], split.largest)
        word = machine.word_bytes
        return row | {
            "cycles": split.cycles,
            "utilisation": self.utilisation,
            "cores": machine.cores,
            "grid": [split.m_parts, split.n_parts, split.k_parts],
            "block": list(self.block),
            "reduction_cycles": split.reduction_cycles,
            "clock_hz": machine.clock,
            "word_bytes": word,
            "seconds": sizing.seconds,
            "sram_bytes": word * sum(row[name] for name in SRAM),
            "dram_bytes": None if machine.pads is None else word * sum(row[name] for name in DRAM),
            "accumulator_bytes": self.accumulator_bytes,
            "bound": str(sizing.bound),
            "saved": {str(resource): share for resource, share in sizing.saved.items()},
            "ten_percent": {str(resource): share for resource, share in sizing.ten_percent.items()},
            "least_bandwidth": sizing.least_bandwidth,
            "least_sram_bytes": sizing.least_pads and [word * words for words in astuple(sizing.least_pads)],
        }


def _machine(options: argparse.Namespace, convention: Convention, word_bytes: int) -> Machine:
    dataflow = one_of("--dataflow", options.dataflow or str(Dataflow.WEIGHT), tuple(map(str, Dataflow)))
    if options.dram_bandwidth and not options.sram:
        raise UsageError(
            f"--dram-bandwidth needs --sram: without scratchpads nothing is fetched (add, say, --sram {_EXAMPLE})"
        )
    array = Array(
        _size("--rows", options.rows, 128, MOST_SIDE),
        _size("--cols", options.cols, 128, MOST_SIDE),
        Dataflow(dataflow),
        convention,
        None if options.depth is None else size("--depth", options.depth),
    )
    bandwidth = options.dram_bandwidth
    return Machine(
        array,
        _size("--cores", options.cores, 1, MOST_CORES),
        amount("--clock", options.clock or "1GHz", "Hz", "1GHz"),
        word_bytes,
        _scratchpads(options.sram, word_bytes) if options.sram else None,
        amount("--dram-bandwidth", bandwidth, "B/s", "64GB/s") if bandwidth else math.inf,
    )


def _check_room(machine: Machine, shape: Shape) -> None:
    """Refuse scratchpads that hold no fold, in the bytes in which they were given."""
    if machine.pads is None:
        return
    least = minimum_scratchpads(machine.array, map_gemm(machine.array, *shape))
    faults = [
        f"{field.name} has {machine.word_bytes * has:,} B, wanted at least {machine.word_bytes * wanted:,} B"
        for field, has, wanted in zip(fields(Scratchpads), astuple(machine.pads), astuple(least), strict=True)
        if has < wanted
    ]
    if faults:
        raise UsageError(f"--sram holds no fold of {machine.array.rows} x {machine.array.columns}: {'; '.join(faults)}")


def _size(option: str, value: int | None, default: int, most: int) -> int:
    return size(option, default if value is None else value, most)


def _scratchpads(text: str, word_bytes: int) -> Scratchpads:
    parts = text.split(",")
    if len(parts) != 3:
        raise UsageError(
            f"--sram {text}: {len(parts)} sizes, wanted three: ifmap,filter,ofmap, as in --sram {_EXAMPLE}"
        )
    return Scratchpads(*(amount("--sram", part.strip(), "B", _EXAMPLE) // word_bytes for part in parts))
