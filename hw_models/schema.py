"""What a chip description may say: the fields of the hardware classes, walked by path."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import EnumMeta
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from simulator.hardware import Chip
from simulator.system import System


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping of a description: *children* maps each key that it may have to what stands there.

    A child is another Section, or None for a single value.  *open_to*, if given, stands for keys of the user's
    choosing, such as the names of memory levels.
    """

    children: Mapping[str, "Section | None"]
    open_to: "Section | None" = None

    def child(self, key: str) -> "Section | None":
        """What stands at *key*; None for a single value.  The key must be one that may stand here."""
        return self.children.get(key, self.open_to)


@cache
def chip_schema() -> Section:
    """The sections and values of a chip description."""
    section = _section(Chip)
    assert section is not None
    return section


@cache
def system_schema() -> Section:
    """The sections and values of a system description."""
    section = _section(System)
    assert section is not None
    return section


def _section(hint: Any) -> Section | None:
    """What a field with the type *hint* holds: a Section for a class or a mapping, None for a single value."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _section(get_args(hint)[0])
    if origin in (Union, UnionType):
        (inner,) = (arg for arg in get_args(hint) if arg is not NoneType)
        return _section(inner)
    if origin is not None and issubclass(origin if isinstance(origin, type) else object, Mapping):
        return _mapping(*get_args(hint))
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        return Section({item.name: _section(hints[item.name]) for item in fields(hint)})
    return None


def _mapping(key: Any, value: Any) -> Section:
    if isinstance(key, EnumMeta):
        return Section({str(name): _section(value) for name in key})  # type: ignore[var-annotated]
    return Section({}, open_to=_section(value))
