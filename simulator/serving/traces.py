"""Request traces: CSV files with arrival, prompt and output lengths, of our own or as Azure and BurstGPT publish them.

own       arrival [s], prompt, output
Azure     TIMESTAMP (date and time), ContextTokens, GeneratedTokens     AzurePublicDataset, LLM inference traces
BurstGPT  Timestamp [s], Model, Request tokens, Response tokens, ...    github.com/HPMLL/BurstGPT
"""

import csv
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from simulator.errors import SpecError, UsageError, nearest
from simulator.serving.sequence import Request
from simulator.units import PS_PER_SECOND

_FIELDS = ("arrival", "prompt", "output")
_KNOWN = (
    {"arrival": "arrival", "prompt": "prompt", "output": "output"},
    {"arrival": "TIMESTAMP", "prompt": "ContextTokens", "output": "GeneratedTokens"},
    {"arrival": "Timestamp", "prompt": "Request tokens", "output": "Response tokens"},
)
_MOST_FAULTS = 20  # shown of one file


def column_mapping(text: str | None) -> dict[str, str] | None:
    """``arrival=X,prompt=Y,output=Z`` as a mapping; UsageError says what is wrong with it."""
    if text is None:
        return None
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, column = part.partition("=")
        if not equals or not column or name not in _FIELDS:
            hint = nearest(name, _FIELDS)
            raise UsageError(f"--columns {part}: wanted arrival=X,prompt=Y,output=Z{hint}")
        found[name] = column
    missing = [name for name in _FIELDS if name not in found]
    if missing:
        raise UsageError(f"--columns {text}: {', '.join(missing)} missing; wanted arrival=X,prompt=Y,output=Z")
    return found


def read_trace(path: Path, columns: Mapping[str, str] | None = None) -> list[Request]:
    """Read *path*, the first request at time 0, in order of arrival; SpecError lists all faults with line and column.

    A request without output (a failed one in BurstGPT) counts as one token.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise SpecError(f"{path}: cannot be read: {reason}") from None
    rows = list(csv.reader(text.splitlines()))
    if not rows:
        raise SpecError(f"{path}: empty; wanted a header and a row for each request")
    names = [name.strip() for name in rows[0]]
    places = _places(path, names, columns)
    found, faults = [], list[str]()
    for line, row in enumerate(rows[1:], 2):
        if any(cell.strip() for cell in row):
            found.append(_request(line, row, places, faults))
    if faults:
        more = [f"... and {len(faults) - _MOST_FAULTS} more"] if len(faults) > _MOST_FAULTS else []
        raise SpecError("\n".join(f"{path}: {fault}" for fault in [*faults[:_MOST_FAULTS], *more]))
    if not found:
        raise SpecError(f"{path}: no requests below the header")
    return _from_zero([each for each in found if each is not None])


def _places(path: Path, names: list[str], columns: Mapping[str, str] | None) -> dict[str, tuple[str, int]]:
    """Field -> its column's name and place."""
    for known in (columns,) if columns is not None else _KNOWN:
        if all(known[each] in names for each in _FIELDS):
            return {each: (known[each], names.index(known[each])) for each in _FIELDS}
    if columns is not None:
        missing = next(columns[each] for each in _FIELDS if columns[each] not in names)
        raise SpecError(f"{path}: line 1: no column {missing!r}{nearest(missing, names)} (columns: {', '.join(names)})")
    raise SpecError(
        f"{path}: line 1: columns {', '.join(names)} are not known; wanted arrival, prompt, output, or those of Azure "
        "or BurstGPT, or a mapping: --columns arrival=X,prompt=Y,output=Z"
    )


def _request(line: int, row: list[str], places: dict[str, tuple[str, int]], faults: list[str]) -> Request | None:
    """The request of one *line*; what is wrong with it is added to *faults*."""
    values: dict[str, int] = {}
    for field, (name, place) in places.items():
        cell = row[place].strip() if place < len(row) else ""
        try:
            values[field] = _time(cell) if field == "arrival" else _length(cell, 0 if field == "output" else 1)
        except ValueError as error:
            faults.append(f"line {line}, column {name}: {error}")
    if len(values) < len(places):
        return None
    return Request(line - 2, values["arrival"], values["prompt"], max(1, values["output"]))


def _time(cell: str) -> int:
    """Picoseconds of seconds, or of a date and time."""
    try:
        return _whole(float(cell))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(cell)
    except ValueError:
        raise ValueError(f"{cell!r} is neither seconds nor a date and time") from None
    start = datetime(1970, 1, 1, tzinfo=moment.tzinfo)
    past = moment - start
    return ((past.days * 86400 + past.seconds) * 10**6 + past.microseconds) * (PS_PER_SECOND // 10**6)


def _whole(seconds: float) -> int:
    if not 0 <= seconds < 1e12:
        raise ValueError(f"{seconds} s is no time since a start")
    return round(seconds * PS_PER_SECOND)


def _length(cell: str, least: int) -> int:
    try:
        value = float(cell)
    except ValueError:
        raise ValueError(f"{cell!r} is not a number of tokens") from None
    if value != value // 1 or not least <= value < 10**9:
        raise ValueError(f"{cell!r} is not a whole number of tokens of at least {least}")
    return int(value)


def _from_zero(requests: list[Request]) -> list[Request]:
    ordered = sorted(requests, key=lambda each: (each.arrival, each.id))
    start = ordered[0].arrival
    return [replace(each, id=index, arrival=each.arrival - start) for index, each in enumerate(ordered)]
