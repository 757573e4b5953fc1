"""Measured decode steps beside simulated ones: quant, batch, seconds of a step."""

import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.errors import SpecError
from simulator.passes.quantise import SCHEMES
from simulator.units import PS_PER_SECOND

_NAMES = {"bf16": "none", "fp16": "none", "none": "none"} | {name: name for name in SCHEMES}


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """One measured step: picoseconds of a decode of *batch* sequences."""

    quant: str
    batch: int
    step: int


def read_measured(path: Path, model: str = "", context: int = 0) -> list[MeasuredPoint]:
    """Read a CSV with columns quant, batch, seconds, or JSON: a list of such objects, or one under "points".

    The engine's own measurements (docs/data/lab06_h200.json) are read too: steps of *model* at *context*.
    SpecError lists all faults with their row.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'not a text file'}") from None
    rows = _json(path, text, model, context) if path.suffix == ".json" else list(csv.DictReader(text.splitlines()))
    found, faults = [], list[str]()
    for number, row in enumerate(rows, 1):
        try:
            found.append(_point(row))
        except (KeyError, TypeError, ValueError) as error:
            faults.append(f"{path}: row {number}: {_words(error)}")
    if faults:
        raise SpecError("\n".join(faults))
    if not found:
        raise SpecError(f"{path}: no points")
    return found


def _json(path: Path, text: str, model: str, context: int) -> Iterable[Mapping[str, Any]]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise SpecError(f"{path}: line {error.lineno}, column {error.colno}: {error.msg}") from None
    own = _engines(data, model, context) if isinstance(data, dict) else []
    points = own or (data.get("points") if isinstance(data, dict) else data)
    if not isinstance(points, list):
        raise SpecError(f'{path}: wanted a list of objects with quant, batch and seconds, or one under "points"')
    return points


def _engines(data: Mapping[str, Any], model: str, context: int) -> list[Mapping[str, Any]]:
    """Decode steps of the device script: ``{"llama-8b w4": {"decode": [{"batch", "context", "us"}]}}``."""
    found: list[Mapping[str, Any]] = []
    for quant in _NAMES:
        steps = data.get(f"{model} {quant}", {})
        found += [
            {"quant": quant, "batch": each["batch"], "seconds": each["us"] / 1e6}
            for each in (steps.get("decode", []) if isinstance(steps, dict) else [])
            if each["context"] == context
        ]
    return found


def _point(row: Mapping[str, Any]) -> MeasuredPoint:
    quant, batch, time = str(row["quant"]), int(row["batch"]), float(row["seconds"])
    if quant not in _NAMES:
        raise ValueError(f"quant {quant!r} is not one of {', '.join(_NAMES)}")
    if batch < 1 or not 0 < time < 1e6:
        raise ValueError(f"batch {batch}, {time} s: wanted numbers above 0")
    return MeasuredPoint(_NAMES[quant], batch, round(time * PS_PER_SECOND))


def _words(error: Exception) -> str:
    return f"no {error.args[0]}" if isinstance(error, KeyError) else str(error)
