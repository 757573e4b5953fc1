"""Writes a chip out again: every value under the path that ``--set`` knows it by, with its unit."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass
from enum import Enum
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from simulator.hardware import (
    Attojoules,
    Bytes,
    BytesPerSecond,
    Chip,
    Hertz,
    Picoseconds,
    SomeBytes,
    SquareMillimetres,
    Watts,
)
from simulator.system import System
from simulator.units import binary, decimal, joules, seconds


@dataclass(frozen=True, slots=True)
class Passage:
    """A section of a description: its *path* (empty at the top), where its numbers come from, and its *values*."""

    path: str
    source: str
    values: tuple[tuple[str, str], ...]


def describe(chip: Chip | System) -> list[Passage]:
    """Every value of *chip* (or of a system), section by section, as (path, text with unit)."""
    return list(_passages(chip, ""))


def size(nbytes: int) -> str:
    """Write a capacity as its vendor would: binary if it is a round binary number, decimal otherwise.

    >>> size(40 * 2**20), size(80 * 10**9)
    ('40 MiB', '80 GB')
    """
    return binary(nbytes, digits=4) if nbytes % 1024 == 0 and nbytes % 1000 else decimal(nbytes, "B", 4)


def _passages(section: Any, path: str) -> Iterator[Passage]:
    hints = get_type_hints(type(section), include_extras=True)
    given = [item for item in fields(section) if item.name != "source" and not _unsaid(section, item)]
    values = [(item.name, getattr(section, item.name)) for item in given]
    plain = [(_join(path, name), _text(value, hints[name])) for name, value in values if not _inner(value)]
    mappings = [(name, value) for name, value in values if _is_table(value)]
    for name, table in mappings:
        mapping = get_args(hints[name])[0] if get_origin(hints[name]) is Annotated else hints[name]
        inner = get_args(mapping)[-1]
        plain += [(_join(path, f"{name}.{key}"), _text(value, inner)) for key, value in table.items()]
    yield Passage(path, getattr(section, "source", ""), tuple((name, text) for name, text in plain if text))
    for name, value in values:
        for key, inner in _sections(name, value):
            yield from _passages(inner, _join(path, key))


def _unsaid(section: Any, item: Field[Any]) -> bool:
    """Whether a value stands for 'not given': a zero such as a latency that nobody published, an empty list."""
    value = getattr(section, item.name)
    return value == () or (item.default == 0 and value == 0)


def _inner(value: Any) -> bool:
    return is_dataclass(value) or isinstance(value, Mapping)


def _is_table(value: Any) -> bool:
    """Whether *value* is a mapping of plain values, such as rates by type."""
    return isinstance(value, Mapping) and not any(is_dataclass(inner) for inner in value.values())


def _sections(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if is_dataclass(value):
        yield name, value
    elif isinstance(value, Mapping) and not _is_table(value):
        yield from ((f"{name}.{key}", inner) for key, inner in value.items())


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _text(value: Any, hint: Any) -> str:
    """*value* with the unit that its type *hint* stands for; nothing for what is not given."""
    if value is None:
        return ""
    for kind in (hint, *(arg for arg in get_args(hint) if arg is not NoneType)):
        for unit, write in _UNITS:
            if kind == unit:
                return write(value)
    return str(value.value) if isinstance(value, Enum) else str(value)


_UNITS: tuple[tuple[Any, Callable[[int], str]], ...] = (
    (Bytes, size),
    (SomeBytes, size),
    (BytesPerSecond, lambda value: decimal(value, "B/s", 6)),
    (Hertz, lambda value: decimal(value, "Hz", 7)),
    (Watts, lambda value: decimal(value, "W", 4) if value < 10_000 else decimal(value, "W")),
    (SquareMillimetres, lambda value: f"{value} mm2"),
    (Picoseconds, lambda value: seconds(value, 6)),
    (Attojoules, lambda value: joules(value, 6)),
)
