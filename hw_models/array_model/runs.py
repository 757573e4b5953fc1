"""Tables of single-GEMM runs, in the format of ``hw_models/data/scalesim``: read, run all at once, and as rows.

Keys of a row, all in cycles or words unless said otherwise:

    id                                      the row's own, or its number from 1
    m, n, k, rows, columns, dataflow        what was run
    cycles                                  all cycles, stalls included
    stall_free_cycles, stall_cycles         its two parts
    phases                                  stall-free cycles as preload, fill, stream, drain
    folds                                   fillings of the cells
    mapping_efficiency                      share of cells that hold something, from 0 to 1
    utilisation                             multiply-adds over cells x cycles, from 0 to 1
    sram_ifmap_reads, sram_filter_reads, sram_ofmap_writes
    dram_ifmap_reads, dram_filter_reads, dram_ofmap_writes    null without scratchpads; partial sums count both ways
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hw_models.array_model.scalesim import (
    KIB,
    Layer,
    Place,
    Setup,
    check_header,
    csv_rows,
    file_dataflow,
    plain,
    short,
    whole_number,
)
from hw_models.systolic import Array, Convention, Run, Scratchpads, run_gemm
from hw_models.systolic.array import MOST_COUNT, MOST_EXTENT, MOST_SIDE
from simulator.errors import SpecError, UsageError, nearest

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """One GEMM on one array."""

    layer: Layer
    setup: Setup


def read_runs(path: Path, convention: Convention = Convention.SCALESIM) -> list[Request]:
    """Return the runs of a table; SpecError names file, line and column of what is wrong.

    Columns: array_rows, array_cols, dataflow, M, N, K; optional: id, ifmap_sram_kb, filter_sram_kb and ofmap_sram_kb
    (all three or none; 1 kB = 1024 words), bandwidth_mode (CALC: infinite; USER: two reading ports and one writing port
    with read_bw_words_per_cycle and write_bw_words_per_cycle, added up).
    """
    rows = csv_rows(path)
    here, header = next(rows, (Place(path, 1), []))
    titles = {plain(title): column for column, title in enumerate(header)}
    missing = [name for name in _WANTED if plain(name) not in titles]
    if missing:
        raise here.fault(f"missing columns: {', '.join(missing)}")
    check_header(here, header)
    found = [_request(place, _Line(place, row, titles, header), convention) for place, row in rows]
    if not found:
        raise here.fault("a header and no rows")
    return found


_WANTED = ("array_rows", "array_cols", "dataflow", "M", "N", "K")
_PADS = ("ifmap_sram_kb", "filter_sram_kb", "ofmap_sram_kb")


@dataclass(frozen=True, slots=True)
class _Line:
    place: Place
    row: Sequence[str]
    titles: dict[str, int]
    header: Sequence[str]

    def text(self, name: str) -> str:
        """The cell, or nothing."""
        column = self.titles.get(plain(name), len(self.row))
        return self.row[column].strip() if column < len(self.row) else ""

    def whole(self, name: str, most: int = MOST_EXTENT) -> int:
        column = self.titles.get(plain(name))
        if column is None:
            raise self.place.fault(f"there is no column {name}, wanted a whole number of at least 1")
        return whole_number(self.place, self.row, column, self.header[column].strip(), most)

    def fault(self, name: str, text: str) -> SpecError:
        """An error at the cell, or at the line if there is no such column."""
        column = self.titles.get(plain(name))
        return self.place.fault(text, column if column is None else column + 1, name)


def _request(place: Place, line: _Line, convention: Convention) -> Request:
    column = line.titles[plain("dataflow")] + 1
    array = Array(
        line.whole("array_rows", MOST_SIDE),
        line.whole("array_cols", MOST_SIDE),
        file_dataflow(f"{place.path}, line {place.line}, column {column} (dataflow)", line.text("dataflow")),
        convention,
    )
    m, n, k = (line.whole(name) for name in "MNK")
    layer = Layer(line.text("id") or str(place.line - 1), m, n, k, place=place)
    return Request(layer, Setup(array, _pads(line), _bandwidth(line)))


def _pads(line: _Line) -> Scratchpads | None:
    empty = [name for name in _PADS if not line.text(name)]
    if len(empty) == len(_PADS):
        return None
    if empty:
        raise line.fault(empty[0], f"{empty[0]} is empty and others are not, wanted all of {', '.join(_PADS)} or none")
    return Scratchpads(*(KIB * line.whole(name) for name in _PADS))


def _bandwidth(line: _Line) -> float:
    mode = line.text("bandwidth_mode") or _MODES[0]
    if mode not in _MODES:
        text = f"unknown bandwidth mode {short(mode)!r}{nearest(mode, _MODES)} (known: {', '.join(_MODES)})"
        raise line.fault("bandwidth_mode", text)
    if mode == _MODES[0]:
        return float("inf")
    return 2 * line.whole("read_bw_words_per_cycle") + line.whole("write_bw_words_per_cycle")


_MODES = ("CALC", "USER")


def run_all(requests: Sequence[Request]) -> list[Row]:
    """Run every request, those on equal arrays together; rows come in the order of *requests*."""
    groups: defaultdict[Setup, list[int]] = defaultdict(list)
    for index, request in enumerate(requests):
        groups[request.setup].append(index)
    rows: list[Row] = [{}] * len(requests)
    for setup, indices in groups.items():
        layers = [requests[index].layer for index in indices]
        try:
            made = run_layers(setup, layers)
        except UsageError as error:
            raise _with_name(error, setup, layers) from None
        for index, row in zip(indices, made, strict=True):
            rows[index] = row
    return rows


def _with_name(error: UsageError, setup: Setup, layers: Sequence[Layer]) -> UsageError:
    """Say at which layer a run of many failed."""
    for layer in layers:
        try:
            run_layers(setup, [layer])
        except UsageError as alone:
            where = f"{layer.place.path}, line {layer.place.line}: " if layer.place is not None else ""
            return UsageError(f"{where}{layer.name}: {alone}")
    return error


def run_layers(setup: Setup, layers: Sequence[Layer]) -> list[Row]:
    """Run all *layers* on one array at once."""
    m, n, k = (np.array([min(getattr(layer, name), MOST_COUNT) for layer in layers], dtype=np.int64) for name in "mnk")
    inputs = None
    if any(layer.input_words is not None for layer in layers):
        stored = [layer.m * layer.k if layer.input_words is None else layer.input_words for layer in layers]
        inputs = np.array([min(words, MOST_COUNT) for words in stored], dtype=np.int64)
    return rows_of(layers, run_gemm(setup.array, m, n, k, setup.pads, setup.bandwidth, inputs))


def rows_of(layers: Sequence[Layer], run: Run) -> list[Row]:
    """Return a row for each of *layers*, which *run* has run."""
    columns = {name: np.atleast_1d(np.asarray(value)).tolist() for name, value in _columns(run).items()}
    return [
        _row(run.array, layer, {name: value[at] for name, value in columns.items()}) for at, layer in enumerate(layers)
    ]


def _columns(run: Run) -> Row:
    columns = {
        "cycles": run.cycles,
        "stall_free_cycles": run.phases.cycles,
        "stall_cycles": run.stall_cycles,
        **{f"phase_{name}": getattr(run.phases, name) for name in PHASES},
        "folds": run.folds,
        "mapping_efficiency": run.mapping_efficiency,
        "utilisation": run.utilisation,
        "sram_ifmap_reads": run.sram.ifmap,
        "sram_filter_reads": run.sram.filter,
        "sram_ofmap_writes": run.sram.ofmap,
    }
    if run.dram is not None:
        columns |= dict(zip(DRAM, (run.dram.ifmap, run.dram.filter, run.dram.ofmap), strict=True))
    return columns


PHASES = ("preload", "fill", "stream", "drain")
DRAM = ("dram_ifmap_reads", "dram_filter_reads", "dram_ofmap_writes")


def _row(array: Array, layer: Layer, values: Row) -> Row:
    phases = {name: values.pop(f"phase_{name}") for name in PHASES}
    what = {"id": layer.name, "m": layer.m, "n": layer.n, "k": layer.k}
    where = {"rows": array.rows, "columns": array.columns, "dataflow": str(array.dataflow)}
    return what | where | values | {"phases": phases} | {name: values.get(name) for name in DRAM}
