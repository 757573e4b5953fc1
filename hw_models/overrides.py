"""Applies ``--set memory.hbm.bandwidth=6TB/s`` to a description before it is checked."""

from collections.abc import Sequence
from typing import Any

from hw_models.schema import Section, chip_schema
from hw_models.yamlfile import Document, scalar
from simulator.errors import SpecError, nearest

ORIGIN = "--set"
_SOURCE = "set by hand, with no source"


def apply(document: Document, overrides: Sequence[str], schema: Section | None = None, lists: bool = False) -> None:
    """Put each ``path=value`` of *overrides* into *document*, the last word on a path winning.

    A path names one value of the description; ``null`` takes a value or a whole section away.  SpecError lists
    every override that names nothing, or a whole section.  Values are checked later, with all the others.
    *schema* says what the description may hold: that of a chip, if not given.  *lists*: some values may be lists.
    """
    schema = schema or chip_schema()
    faults = [fault for text in overrides if (fault := _apply_one(document, text, schema, lists))]
    if faults:
        raise SpecError("\n".join(faults))


def _apply_one(document: Document, text: str, schema: Section, lists: bool) -> str | None:
    """Apply one override; return what is wrong with it, or None."""
    dotted, equals, raw = text.partition("=")
    path = tuple(part.strip() for part in dotted.split("."))
    if not equals or not raw.strip() or not all(path):
        return f"--set {text}: expected PATH=VALUE, such as memory.hbm.bandwidth=6TB/s"
    value = scalar(raw.strip())
    if isinstance(value, dict) or (isinstance(value, list) and not lists):
        return f"--set {text}: sets one value at a time, got {'a mapping' if isinstance(value, dict) else 'a list'}"
    data: dict[str, Any] = document.data
    section: Section | None = schema
    for depth, key in enumerate(path):
        if section is None:
            return f"--set {text}: {'.'.join(path[:depth])} is a single value and has nothing inside"
        known = _known(section, data)
        if key not in known:
            dots = ".".join((*path[:depth], ""))
            hint = nearest(dots + key, [dots + name for name in known])
            return f"--set {text}: the description has no {dots}{key}{hint or _choices(known)}"
        section = section.child(key)
        if depth < len(path) - 1 and section is not None:
            data = _enter(document, data, path[: depth + 1], section)
    if section is not None and value is not None:
        inside = data.get(path[-1])
        names = ", ".join(_known(section, inside if isinstance(inside, dict) else {}))
        return f"--set {text}: {dotted} is a section; set one of its values ({dotted}.X=... with X one of {names})"
    _put(document, data, path, value)
    return None


def _known(section: Section, data: dict[str, Any]) -> list[str]:
    """Keys that an override may name: those of the class, or those that an open mapping already has."""
    return list(section.children) or list(data)


def _choices(known: Sequence[str]) -> str:
    return f" (it has {', '.join(known)})" if known else ""


def _enter(document: Document, data: dict[str, Any], path: tuple[str, ...], section: Section) -> dict[str, Any]:
    """Return the mapping at *path*, made if the file has none; a new one says that its numbers are set by hand."""
    inner = data.get(path[-1])
    if not isinstance(inner, dict):
        inner = {"source": _SOURCE} if "source" in section.children else {}
        data[path[-1]] = inner
        document.origins[path] = ORIGIN
    return inner


def _put(document: Document, data: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    document.origins[path] = ORIGIN
    if value is None:
        data.pop(path[-1], None)
    else:
        data[path[-1]] = value
    document.faults[:] = [fault for fault in document.faults if fault.path != path]
