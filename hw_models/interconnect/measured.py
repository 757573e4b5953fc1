"""Measured collectives: tables of NCCL times, and what is predicted for their rows."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hw_models.interconnect.algorithms import PATTERNS
from hw_models.interconnect.prediction import Prediction, predict
from simulator.errors import SpecError, nearest
from simulator.system import System

_NCCL = ("collective", "num_gpus", "message_bytes", "latency_ms")
_DATA = Path(__file__).parents[1] / "data"
PACKAGED = {"dgx-a100": "a100/nccl_collectives.csv"}  # half of its rows are fitted: halves(rows)
_NAMES = {"alltoall": "all_to_all"}


@dataclass(frozen=True, slots=True)
class Measured:
    """One row: *pattern* of *size* bytes among the first *ranks* chips took *time* picoseconds."""

    pattern: str
    ranks: int
    size: int
    time: int

    def predicted(self, system: System) -> Prediction:
        return predict(system, self.pattern, self.size, range(self.ranks))


def halves(rows: Sequence[Measured], seed: int = 0) -> tuple[list[Measured], list[Measured]]:
    """(rows to fit to, rows kept back): *rows* in two halves by lot."""
    order = np.random.default_rng(seed).permutation(len(rows))
    return [rows[index] for index in order[: len(rows) // 2]], [rows[index] for index in order[len(rows) // 2 :]]


def packaged(system: str) -> Path | None:
    """The measurements that come with the project for a system of that name, or None."""
    return _DATA / PACKAGED[system] if system in PACKAGED else None


def is_nccl(columns: list[str]) -> bool:
    """Whether a table with these *columns* holds NCCL times."""
    return all(name in columns for name in _NCCL)


def read_table(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Columns and rows of the CSV file at *path*; SpecError if there are none to be had."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            rows = [_row(path, reader.line_num, row) for row in reader]
            columns = [name for name in reader.fieldnames or () if name is not None]
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise SpecError(f"{path}: is a folder; expected a CSV file") from None
    except UnicodeDecodeError as error:
        raise SpecError(
            f"{path}: not UTF-8 text: byte 0x{error.object[error.start]:02x} at offset {error.start}"
        ) from None
    except (OSError, ValueError, csv.Error) as error:
        raise SpecError(f"{path}: cannot be read as CSV: {error}") from None
    if not rows:
        raise SpecError(f"{path}: has no rows")
    return columns, rows


def _row(path: Path, line: int, row: dict[str | None, str | None]) -> dict[str, str]:
    """One row; SpecError where it has more cells than there are columns, as a comma too many makes it."""
    if None in row:
        wanted = len(row) - 1
        raise SpecError(
            f"{path}, line {line}: has {wanted + len(row[None] or ())} cells, expected {wanted} as in line 1"
        )
    return {key: value or "" for key, value in row.items() if key is not None}


def read_nccl(path: Path) -> list[Measured]:
    """The rows of a table of NCCL times: collective, num_gpus, message_bytes, latency_ms."""
    columns, rows = read_table(path)
    missing = [name for name in _NCCL if name not in columns]
    if missing:
        raise SpecError(f"{path}: lacks the column {missing[0]} (it has {', '.join(columns)})")
    return [_measured(path, number, row) for number, row in enumerate(rows, 2)]


def _measured(path: Path, line: int, row: dict[str, str]) -> Measured:
    try:
        time = round(float(row["latency_ms"]) * 10**9)
        found = Measured(
            _NAMES.get(row["collective"], row["collective"]), int(row["num_gpus"]), int(row["message_bytes"]), time
        )
    except (ValueError, OverflowError) as error:
        raise SpecError(f"{path}, line {line}: {error}") from None
    if found.pattern not in PATTERNS:
        raise SpecError(
            f"{path}, line {line}: unknown collective {row['collective']!r}{nearest(found.pattern, PATTERNS)}"
        )
    for column, value in (("latency_ms", time), ("num_gpus", found.ranks), ("message_bytes", found.size)):
        if value <= 0:
            raise SpecError(f"{path}, line {line}: {column} must be greater than 0, got {row[column]}")
    return found
