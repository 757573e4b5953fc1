"""Turns what pydantic finds wrong with a description into sentences that name the place and the way out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from hw_models.schema import Section, chip_schema
from hw_models.yamlfile import Document, Fault
from simulator.errors import nearest

MISSING = "is missing"


def faults(error: ValidationError, document: Document, schema: Section | None = None) -> list[Fault]:
    """Faults met while reading *document*, then those of *error* in the order of the hardware classes.

    schema  what the description may hold: that of a chip, if not given.
    """
    unread = {fault.path for fault in document.faults}
    found = (_fault(detail, document.origins, schema or chip_schema()) for detail in error.errors(include_url=False))
    return document.faults + [fault for fault in found if fault.path not in unread or fault.text != MISSING]


def _fault(detail: ErrorDetails, origins: Mapping[tuple[str, ...], str], schema: Section) -> Fault:
    path = tuple(str(part) for part in detail["loc"] if part != "[key]")
    kind = detail["type"]
    if "[key]" in detail["loc"] or kind == "unexpected_keyword_argument":
        return Fault(path, _origin(path, origins), f"unknown key{_hint(path, schema)}")
    if kind == "missing":
        return Fault(path, _origin(path[:-1], origins), MISSING)
    if not path:
        path, text = _own_path(detail)
        return Fault(path, _origin(path, origins), text)
    return Fault(path, _origin(path, origins), _text(detail))


def _origin(path: Sequence[str], origins: Mapping[tuple[str, ...], str]) -> str:
    """The line of *path*, or of the nearest section around it that the file mentions."""
    for end in range(len(path), 0, -1):
        if (found := origins.get(tuple(path[:end]))) is not None:
            return found
    return ""


def _own_path(detail: ErrorDetails) -> tuple[tuple[str, ...], str]:
    """Split 'memory.hbm: needs a bandwidth', said by a class about itself, into the path and the rest."""
    where, colon, rest = str(detail["ctx"]["error"]).partition(": ") if "ctx" in detail else ("", "", detail["msg"])
    return (tuple(where.split(".")), rest) if colon else ((), where or rest)


def _hint(path: tuple[str, ...], schema: Section) -> str:
    """The nearest key that could stand there, or all of them."""
    section: Section | None = schema
    for key in path[:-1]:
        section = section.child(key) if section is not None else None
    known = list(section.children) if section is not None else []
    return nearest(path[-1], known) or (f"; expected one of {', '.join(known)}" if known else "")


def _text(detail: ErrorDetails) -> str:
    say = _SAY.get(detail["type"])
    if say is not None:
        return say(detail.get("ctx", {}), detail["input"])
    return f"{detail['msg'][:1].lower()}{detail['msg'][1:]}, got {_shown(detail['input'])}"


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return f"a mapping of {', '.join(map(str, value))}" if value else "an empty mapping"
    return "a list" if isinstance(value, list) else repr(value)


_SAY: Mapping[str, Callable[[dict[str, Any], Any], str]] = {
    "value_error": lambda ctx, got: str(ctx["error"]),
    "greater_than": lambda ctx, got: f"must be greater than {ctx['gt']}, got {_shown(got)}",
    "greater_than_equal": lambda ctx, got: f"must be at least {ctx['ge']}, got {_shown(got)}",
    "less_than_equal": lambda ctx, got: f"must be at most {ctx['le']}, got {_shown(got)}",
    "int_type": lambda ctx, got: f"must be a whole number, got {_shown(got)}",
    "int_parsing": lambda ctx, got: f"must be a whole number, got {_shown(got)}",
    "float_type": lambda ctx, got: f"must be a number, got {_shown(got)}",
    "float_parsing": lambda ctx, got: f"must be a number, got {_shown(got)}",
    "string_type": lambda ctx, got: f"must be text, got {_shown(got)}",
    "string_too_short": lambda ctx, got: (
        f"needs at least {ctx['min_length']} characters, enough to name where the numbers come from, got {_shown(got)}"
    ),
    "finite_number": lambda ctx, got: f"must be a finite number, got {_shown(got)}",
    "too_short": lambda ctx, got: f"needs at least {ctx['min_length']}, got {_shown(got)}",
    "enum": lambda ctx, got: f"must be {ctx['expected']}, got {_shown(got)}{nearest(str(got), _words(ctx))}",
    "literal_error": lambda ctx, got: f"must be {ctx['expected']}, got {_shown(got)}{nearest(str(got), _words(ctx))}",
    "dataclass_type": lambda ctx, got: f"must be a section of its own, with keys and values, got {_shown(got)}",
    "dict_type": lambda ctx, got: f"must be a section of its own, with keys and values, got {_shown(got)}",
    "mapping_type": lambda ctx, got: f"must be a section of its own, with keys and values, got {_shown(got)}",
}


def _words(ctx: Mapping[str, Any]) -> list[str]:
    return str(ctx["expected"]).replace(" or ", ", ").replace("'", "").split(", ")
