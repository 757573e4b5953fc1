"""Tables of measurements: which format a file has, and its rows with every cell checked."""

import csv
import json
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from simulator.dtypes import DType
from simulator.errors import SpecError, nearest


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of table: *columns* that it must have, the one with what was *measured*, and its *unit*.

    base  seconds (joules for energies) of one unit.
    """

    name: str
    columns: tuple[str, ...]
    measured: str
    unit: str
    base: float


KERNELS = Format("kernels", ("op", "dtype", "shape", "us"), "us", "us", 1e-6)
STEPS = Format("steps", ("phase", "model", "config", "mode", "ms"), "ms", "ms", 1e-3)
ENERGY = Format("energies", ("op", "shape", "mJ_per_call"), "mJ_per_call", "mJ", 1e-3)
GEMM = Format("gemm", ("dtype", "m", "n", "k", "latency_ms"), "latency_ms", "ms", 1e-3)
CONTEXT = Format(
    "attention_context",
    ("batch_size", "isl", "num_heads", "num_kv_heads", "head_dim", "latency_ms"),
    "latency_ms",
    "ms",
    1e-3,
)
GENERATION = Format(
    "attention_generation",
    ("batch_size", "kv_len", "num_heads", "num_kv_heads", "head_dim", "latency_ms"),
    "latency_ms",
    "ms",
    1e-3,
)
FORMATS = (KERNELS, STEPS, ENERGY, GEMM, CONTEXT, GENERATION)
_JSON = {"shape", "config"}
_INTEGERS = {"m", "n", "k", "batch_size", "isl", "kv_len", "num_heads", "num_kv_heads", "head_dim"}


@dataclass(frozen=True, slots=True)
class Measured:
    """One row: *line* of the file, its cells as *values* (JSON and numbers read), *measured* in the format's unit."""

    line: int
    values: dict[str, Any]
    measured: float


def read_table(path: Path) -> tuple[Format, list[Measured]]:
    """Return what *path* holds; SpecError names file, line and column of the first fault."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.reader(file)
            header = next(reader, None)
            if not header:
                raise SpecError(f"{path}: empty, expected a table of measurements")
            form = _format(path, header)
            rows = [_row(path, reader.line_num, form, header, cells) for cells in reader if cells]
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SpecError(f"{path}: not a text file in UTF-8") from None
    except csv.Error as error:
        raise SpecError(f"{path}: not a CSV file: {error}") from None
    if not rows:
        raise SpecError(f"{path}: no rows under the header")
    return form, rows


def _format(path: Path, header: list[str]) -> Format:
    """The format whose columns are all there, else a message about the one that fits best."""
    for form in FORMATS:
        if set(form.columns) <= set(header):
            return form
    best = max(FORMATS, key=lambda form: len(set(form.columns) & set(header)) / len(form.columns))
    missing = [name for name in best.columns if name not in header]
    spare = [name for name in header if name not in best.columns]
    hint = nearest(missing[0], spare).replace("did you mean", "is it")
    raise SpecError(
        f"{path}, line 1: no column {missing[0]!r}{hint} (a table of {best.name} has: {', '.join(best.columns)})"
    )


def _row(path: Path, line: int, form: Format, header: list[str], cells: list[str]) -> Measured:
    if len(cells) != len(header):
        raise SpecError(f"{path}, line {line}: {len(cells)} cells under {len(header)} columns")
    values: dict[str, Any] = {}
    for name, text in zip(header, cells, strict=True):
        where = f"{path}, line {line}, column {name}"
        if name in form.columns:
            values[name] = _value(where, name, text, form)
        else:
            values[name] = text
    return Measured(line, values, values[form.measured])


def _value(where: str, name: str, text: str, form: Format) -> Any:
    if name == form.measured:
        return _positive(where, text)
    if name in _JSON:
        return _sizes(where, text)
    if name in _INTEGERS:
        if not text.isdecimal() or int(text) < 1:
            raise SpecError(f"{where}: must be a whole number of at least 1, got {text!r}")
        return int(text)
    if name == "dtype" and form is KERNELS and text not in list(DType):
        known = [str(dtype) for dtype in DType]
        raise SpecError(f"{where}: unknown dtype {text!r}{nearest(text, known)} (known: {', '.join(known)})")
    return text


def _positive(where: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise SpecError(f"{where}: must be a number, got {text!r}") from None
    if not isfinite(number) or number <= 0:
        raise SpecError(f"{where}: must be a number above zero, got {text!r}")
    return number


def _sizes(where: str, text: str) -> dict[str, int]:
    try:
        sizes = json.loads(text)
    except json.JSONDecodeError as error:
        raise SpecError(f"{where}: not JSON: {error.msg} at character {error.pos + 1} of {text!r}") from None
    if not isinstance(sizes, dict):
        raise SpecError(f'{where}: must be an object of sizes such as {{"M": 16}}, got {text!r}')
    for key, size in sizes.items():
        if not isinstance(size, int) or (size < 1 and not isinstance(size, bool)):
            raise SpecError(f"{where}: {key} must be a whole number of at least 1, got {json.dumps(size)}")
    return sizes
