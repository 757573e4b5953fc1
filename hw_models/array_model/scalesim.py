"""Reads what SCALE-Sim reads and writes: configurations, topologies, and tables of single-GEMM runs.

A word is one byte there, so ``64`` in ``IfmapSramSzkB`` means 65,536 words.  Bandwidth is given for each of three ports
and words a cycle; ours is shared by all, so the three are added up.  ``CALC`` means as much as is needed: infinite.
Sparsity, memory layouts and bank settings are read over.
"""

import configparser
import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hw_models.systolic import Array, Convention, Dataflow, Scratchpads
from simulator.errors import SpecError, UsageError, nearest

KIB = 1024


@dataclass(frozen=True, slots=True)
class Setup:
    """An array and the memory behind it; *bandwidth* in words a cycle, *pads* None for no memory at all."""

    array: Array
    pads: Scratchpads | None
    bandwidth: float = math.inf


@dataclass(frozen=True, slots=True)
class Layer:
    """One product C[m, n] = A[m, k] B[k, n] under the *name* that the file gives it."""

    name: str
    m: int
    n: int
    k: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a file something stands, for messages."""

    path: Path
    line: int

    def fault(self, text: str, column: int | None = None, title: str = "") -> SpecError:
        """Return an error that names file, line and, if given, column and its title."""
        where = f", column {column} ({title})" if column is not None else ""
        return SpecError(f"{self.path}, line {self.line}{where}: {text}")


def read_topology(path: Path) -> list[Layer]:
    """Return the layers of a topology file, convolutions (a GEMM each) or M, N, K; its header says which.

    A name with ``DP`` is a depthwise convolution: one layer a channel, as SCALE-Sim counts them.  Commas at the end of
    a line, and columns beyond those known, are read over.  SpecError names file, line and column.
    """
    rows = csv_rows(path)
    here, header = next(rows, (Place(path, 1), []))
    if not header:
        raise SpecError(f"{path}: empty, expected layers{_HINT}")
    titles = [plain(title) for title in header]
    is_gemm = bool({"m", "n", "k"} & set(titles))
    wanted = _GEMM if is_gemm else _CONVOLUTION
    found = {key: _find(titles, names) for key, names in wanted.items()}
    missing = [names[0] for key, names in wanted.items() if found[key] is None and key != "stride width"]
    if missing:
        raise here.fault(f"missing columns: {', '.join(missing)}{_HINT}")
    if not is_gemm and found["stride width"] is None:
        found["stride width"] = found["stride height"]
    columns = {key: (column, header[column].strip()) for key, column in found.items() if column is not None}
    read = _gemm if is_gemm else _convolution
    layers = [layer for place, row in rows for layer in read(place, row, columns)]
    if not layers:
        raise SpecError(f"{path}: has a header and no layers")
    return layers


_Columns = dict[str, tuple[int, str]]
_GEMM = {"name": ("Layer", "layer name"), "m": ("M",), "n": ("N",), "k": ("K",)}
_CONVOLUTION = {
    "name": ("Layer name", "layer"),
    "height": ("IFMAP Height",),
    "width": ("IFMAP Width",),
    "filter height": ("Filter Height",),
    "filter width": ("Filter Width",),
    "channels": ("Channels",),
    "filters": ("Num Filter", "num filters"),
    "stride height": ("Strides", "stride", "stride height"),
    "stride width": ("Stride width",),
}
_HINT = " (a topology has 'Layer,M,N,K' or 'Layer name,IFMAP Height,IFMAP Width,Filter Height,...')"


def _gemm(place: Place, row: Sequence[str], columns: _Columns) -> Iterator[Layer]:
    m, n, k = (whole_number(place, row, *columns[key]) for key in "mnk")
    yield Layer(_name(place, row, columns), m, n, k)


def _convolution(place: Place, row: Sequence[str], columns: _Columns) -> Iterator[Layer]:
    sizes = {key: whole_number(place, row, *columns[key]) for key in columns if key != "name"}
    for axis in ("height", "width"):
        if sizes[f"filter {axis}"] > sizes[axis]:
            column, title = columns[f"filter {axis}"]
            text = f"a filter of {sizes[f'filter {axis}']} is larger than its input of {sizes[axis]}"
            raise place.fault(text, column + 1, title)
    steps = [
        (sizes[axis] - sizes[f"filter {axis}"] + sizes[f"stride {axis}"] - 1) // sizes[f"stride {axis}"] + 1
        for axis in ("height", "width")
    ]
    name, taps = _name(place, row, columns), sizes["filter height"] * sizes["filter width"]
    if "DP" in name:
        for channel in range(sizes["channels"]):
            yield Layer(f"{name}Channel_{channel}", math.prod(steps), sizes["filters"], taps)
    else:
        yield Layer(name, math.prod(steps), sizes["filters"], taps * sizes["channels"])


def read_config(path: Path) -> Setup:
    """Return the array and memory of a SCALE-Sim configuration; SpecError names what is missing or wrong."""
    parser = configparser.ConfigParser()
    try:
        parser.read_string(_text(path), source=str(path))
    except configparser.Error as error:
        raise SpecError(f"{path}: not a SCALE-Sim configuration: {' '.join(str(error).split())}") from None
    fields = dict(parser["architecture_presets"]) if parser.has_section("architecture_presets") else {}
    wanted = ("ArrayHeight", "ArrayWidth", "IfmapSramSzkB", "FilterSramSzkB", "OfmapSramSzkB", "Dataflow")
    missing = [name for name in wanted if name.lower() not in fields]
    if missing:
        raise SpecError(f"{path}: [architecture_presets] lacks {', '.join(missing)}")
    numbers = [_number(path, name, fields[name.lower()]) for name in wanted[:5]]
    rows, columns, *kilobytes = numbers
    mode = parser.get("run_presets", "InterfaceBandwidth", fallback="CALC").strip()
    return Setup(
        Array(rows, columns, file_dataflow(path, fields["dataflow"].strip()), Convention.SCALESIM),
        Scratchpads(*(KIB * size for size in kilobytes)),
        _bandwidth(path, mode, fields.get("bandwidth", "")),
    )


def _bandwidth(path: Path, mode: str, text: str) -> float:
    if mode == "CALC":
        return math.inf
    if mode != "USER":
        raise SpecError(f"{path}: InterfaceBandwidth is {mode!r}{nearest(mode, ('CALC', 'USER'))} (known: CALC, USER)")
    ports = [_number(path, "Bandwidth", part) for part in text.split(",")]
    return float(3 * ports[0] if len(ports) == 1 else sum(ports))


def _number(path: Path, name: str, text: str) -> int:
    digits = text.strip()
    if not digits.isdecimal() or not int(digits):
        raise SpecError(f"{path}: {name} is {digits!r}, wanted a whole number of at least 1")
    return int(digits)


def file_dataflow(where: Path | str, name: str) -> Dataflow:
    return dataflow(name, f"{where}: ", SpecError)


def dataflow(name: str, where: str, error: type[SpecError] | type[UsageError] = UsageError) -> Dataflow:
    """Return the dataflow called *name*; *error* with the nearest name, after *where*, otherwise."""
    known = [str(each) for each in Dataflow]
    if name not in known:
        raise error(f"{where}unknown dataflow {name!r}{nearest(name, known)} (known: {', '.join(known)})")
    return Dataflow(name)


def csv_rows(path: Path) -> Iterator[tuple[Place, list[str]]]:
    """Yield the lines of a CSV file that hold anything."""
    for line, row in enumerate(csv.reader(_text(path).splitlines()), start=1):
        if any(cell.strip() for cell in row):
            yield Place(path, line), row


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise SpecError(f"cannot read {path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise SpecError(f"cannot read {path}: {reason}") from None


def plain(title: str) -> str:
    return " ".join(title.replace("_", " ").lower().split())


def _find(titles: Sequence[str], names: Sequence[str]) -> int | None:
    known = [plain(name) for name in names]
    return next((column for column, title in enumerate(titles) if title in known), None)


def _name(place: Place, row: Sequence[str], columns: _Columns) -> str:
    column, title = columns["name"]
    if column >= len(row) or not row[column].strip():
        raise place.fault("a layer needs a name", column + 1, title)
    return row[column].strip()


def whole_number(place: Place, row: Sequence[str], column: int, title: str) -> int:
    if column >= len(row):
        raise place.fault(f"the line ends after {len(row)} columns", column + 1, title)
    text = row[column].strip()
    if not text.isdecimal() or not int(text):
        raise place.fault(f"{text!r} is not a whole number of at least 1", column + 1, title)
    return int(text)
