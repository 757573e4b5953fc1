"""Reads what SCALE-Sim reads and writes: configurations, topologies, and tables of single-GEMM runs.

A word is one byte there, so ``64`` in ``IfmapSramSzkB`` means 65,536 words.  Bandwidth is given for each of three ports
and words a cycle; ours is shared by all, so the three are added up.  ``CALC`` means as much as is needed: infinite.
Memory layouts and bank settings are read over; sparsity and batches are refused.
"""

import configparser
import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hw_models.systolic import Array, Convention, Dataflow, Scratchpads
from hw_models.systolic.array import MOST_EXTENT, MOST_SIDE
from simulator.errors import SpecError, UsageError, nearest

KIB = 1024
MOST_CHANNELS = 65_536
"""Of a depthwise convolution, which is as many GEMMs."""


@dataclass(frozen=True, slots=True)
class Setup:
    """An array and the memory behind it; *bandwidth* in words a cycle, *pads* None for no memory at all."""

    array: Array
    pads: Scratchpads | None
    bandwidth: float = math.inf


@dataclass(frozen=True, slots=True)
class Layer:
    """One product C[m, n] = A[m, k] B[k, n] under the *name* that the file gives it.

    input_words  distinct words of the input of a convolution, of which A repeats most; None if A is what is stored
    place        where a file says so
    """

    name: str
    m: int
    n: int
    k: int
    input_words: int | None = None
    place: "Place | None" = field(default=None, compare=False)


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
    check_header(here, header)
    if not is_gemm and found["stride width"] is None:
        found["stride width"] = found["stride height"]
    columns = {key: (column, header[column].strip()) for key, column in found.items() if column is not None}
    read = _gemm if is_gemm else _convolution
    batch = _find(titles, ("Batch Size", "batch"))
    layers: list[Layer] = []
    for place, row in rows:
        if batch is not None and batch < len(row) and row[batch].strip() not in ("", "1"):
            raise place.fault(
                f"a batch of {short(row[batch])} is not supported, wanted 1", batch + 1, header[batch].strip()
            )
        layers += read(place, row, columns)
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
    yield Layer(_name(place, row, columns), m, n, k, place=place)


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
    pixels, channels = sizes["height"] * sizes["width"], sizes["channels"]
    if "DP" in name:
        if channels > MOST_CHANNELS:
            column, title = columns["channels"]
            text = f"{channels:,} channels of a depthwise convolution, wanted at most {MOST_CHANNELS:,}: a GEMM each"
            raise place.fault(text, column + 1, title)
        for channel in range(channels):
            yield Layer(f"{name}Channel_{channel}", math.prod(steps), sizes["filters"], taps, pixels, place)
    else:
        yield Layer(name, math.prod(steps), sizes["filters"], taps * channels, pixels * channels, place)


def read_config(path: Path) -> Setup:
    """Return the array and memory of a SCALE-Sim configuration; SpecError names what is missing or wrong."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(_text(path), source=str(path))
    except configparser.Error as error:
        raise SpecError(f"{path}: not a SCALE-Sim configuration: {' '.join(str(error).split())}") from None
    fields = dict(parser["architecture_presets"]) if parser.has_section("architecture_presets") else {}
    wanted = ("ArrayHeight", "ArrayWidth", "IfmapSramSzkB", "FilterSramSzkB", "OfmapSramSzkB", "Dataflow")
    missing = [name for name in wanted if name.lower() not in fields]
    if missing:
        raise SpecError(f"{path}: [architecture_presets] lacks {', '.join(missing)}")
    for section in parser.sections():
        if parser.get(section, "SparsitySupport", fallback="false").strip().lower() not in ("false", "0", "no", "off"):
            raise SpecError(f"{path}: [{section}] SparsitySupport is on, but sparsity is not supported, wanted false")
    most = (MOST_SIDE, MOST_SIDE, MOST_EXTENT, MOST_EXTENT, MOST_EXTENT)
    numbers = [_number(path, name, fields[name.lower()], limit) for name, limit in zip(wanted[:5], most, strict=True)]
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
    ports = [_number(path, "Bandwidth", part, MOST_EXTENT) for part in text.split(",")]
    return float(3 * ports[0] if len(ports) == 1 else sum(ports))


def _number(path: Path, name: str, text: str, most: int) -> int:
    digits = text.strip()
    if not _is_count(digits):
        raise SpecError(f"{path}: {name} is {short(digits)!r}, wanted a whole number of at least 1")
    if not _fits(digits, most):
        raise SpecError(f"{path}: {name} is {short(digits)}, wanted at most {most:,}")
    return int(digits)


def _is_count(text: str) -> bool:
    """Whether *text* is a whole number of at least 1, of any length."""
    return text.isdecimal() and text.isascii() and text.strip("0") != ""


def _fits(digits: str, most: int) -> bool:
    """Whether a number is at most *most*; one of thousands of digits is not even read."""
    return len(digits.lstrip("0")) <= len(str(most)) and int(digits.lstrip("0")) <= most


def short(text: str) -> str:
    """Return *text* for a message: its beginning, if it is long."""
    text = text.strip()
    return text if len(text) <= 40 else f"{text[:40]}..."


def file_dataflow(where: Path | str, name: str) -> Dataflow:
    return dataflow(name, f"{where}: ", SpecError)


def dataflow(name: str, where: str, error: type[SpecError] | type[UsageError] = UsageError) -> Dataflow:
    """Return the dataflow called *name*; *error* with the nearest name, after *where*, otherwise."""
    known = [str(each) for each in Dataflow]
    if name not in known:
        raise error(f"{where}unknown dataflow {short(name)!r}{nearest(name, known)} (known: {', '.join(known)})")
    return Dataflow(name)


def csv_rows(path: Path) -> Iterator[tuple[Place, list[str]]]:
    """Yield the lines of a CSV file that hold anything."""
    reader = enumerate(csv.reader(_text(path).splitlines()), start=1)
    line = 0
    while True:
        try:
            line, row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise Place(path, line + 1).fault(str(error)) from None
        if any(cell.strip() for cell in row):
            yield Place(path, line), row


def check_header(here: Place, header: Sequence[str]) -> None:
    """Refuse a column that stands in *header* twice."""
    seen: dict[str, int] = {}
    for column, title in enumerate(header, start=1):
        first = seen.setdefault(plain(title), column)
        if plain(title) and first != column:
            raise here.fault(f"the same title as column {first}, wanted each column once", column, title.strip())


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


def whole_number(place: Place, row: Sequence[str], column: int, title: str, most: int = MOST_EXTENT) -> int:
    """Return the number from 1 to *most* in a cell; SpecError with file, line and column otherwise."""
    if column >= len(row):
        raise place.fault(f"the line ends after {len(row)} columns", column + 1, title)
    text = row[column].strip()
    if not _is_count(text):
        raise place.fault(f"{short(text)!r} is not a whole number of at least 1", column + 1, title)
    if not _fits(text, most):
        raise place.fault(f"{short(text)} is too large, wanted at most {most:,}", column + 1, title)
    return int(text)
