"""Reads descriptions of chips and systems: the library beside this file, and the user's own YAML files."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from hw_models import overrides as override
from hw_models.faults import faults
from hw_models.schema import Section, chip_schema, system_schema
from hw_models.yamlfile import Document, Fault, read
from simulator.errors import SpecError, nearest
from simulator.hardware import Chip
from simulator.system import System

LIBRARY = Path(__file__).parent / "chips"
SYSTEMS = Path(__file__).parent / "systems"
_SUFFIXES = (".yaml", ".yml")
Described = TypeVar("Described", Chip, System)


@dataclass(frozen=True, slots=True)
class _Kind:
    """What is described: a word for messages, the folder of its library, and what a description may hold."""

    word: str
    library: Path
    schema: Callable[[], Section]

    def names(self) -> list[str]:
        return sorted(path.stem for path in self.library.glob("*.yaml"))


_CHIP = _Kind("chip", LIBRARY, chip_schema)
_SYSTEM = _Kind("system", SYSTEMS, system_schema)


def chip_names() -> list[str]:
    """Names of the chips of the library, sorted; each is the stem of its file."""
    return _CHIP.names()


def system_names() -> list[str]:
    """Names of the systems of the library, sorted; each is the stem of its file."""
    return _SYSTEM.names()


def load_chip(name_or_path: str | Path, overrides: Sequence[str] = ()) -> Chip:
    """Return the chip of that name in the library, or the one that the YAML file at that path describes.

    overrides  ``path=value`` texts such as ``memory.hbm.bandwidth=6TB/s``, as ``--set`` gives them, applied to the
               description before anything is checked; ``null`` takes a value or section away.

    Raises SpecError that lists every fault of the file at once, each with its path and its line.
    """
    return _load(_CHIP, _chip_adapter(), _find(_CHIP, name_or_path), name_or_path, overrides)


def is_system(name_or_path: str | Path) -> bool:
    """Whether *name_or_path* means a system: by its name, or by the ``chip`` that only a system's file has."""
    seen: set[Path] = set()
    while _is_path(name_or_path):
        path = Path(name_or_path)
        if not path.is_file() or path.resolve() in seen:
            return False  # and loading it as a chip says what is wrong
        seen.add(path.resolve())
        data = read(path).data
        base = data.get("extends")
        if "chip" in data or not isinstance(base, str):
            return "chip" in data
        name_or_path = path.parent / base if _is_path(base) else base
    return _split(name_or_path)[0] in system_names()


def load_system(name_or_path: str | Path, overrides: Sequence[str] = ()) -> System:
    """Return the system of that name in the library, or the one that the YAML file at that path describes.

    A name may end in ``xN``: N of the system, joined by its outermost level, as in ``dgx-h200x16``.
    Overrides and errors are those of load_chip.
    """
    name, count = _split(name_or_path)
    path = _find(_SYSTEM, name)
    more = [] if count is None else [f"links.{_outermost(path, name_or_path)}.size={count}"]
    system = _load(_SYSTEM, _system_adapter(), path, name_or_path, [*more, *overrides])
    if not _is_path(system.chip) and system.chip not in chip_names():
        raise SpecError(f"{name_or_path}: chip: unknown chip {system.chip!r}{nearest(system.chip, chip_names())}")
    return system if count is None else replace(system, name=str(name_or_path))


def _split(name_or_path: str | Path) -> tuple[str | Path, int | None]:
    """(name, how many) of ``dgx-h200x16``; a path, or a name that the library has, is left whole."""
    found = re.fullmatch(r"(.+?)x(\d+)", str(name_or_path))
    if found is None or _is_path(name_or_path) or str(name_or_path) in system_names():
        return name_or_path, None
    return found[1], int(found[2])


def _outermost(path: Path, label: str | Path) -> str:
    """The level along which a system is repeated: the last of its file, which must join one member so far."""
    links = _resolve(_SYSTEM, path).data.get("links", {})
    name = next(reversed(links), "") if isinstance(links, dict) else ""
    level = links.get(name) if name else None
    if not isinstance(level, dict) or level.get("size") != 1:
        raise SpecError(
            f"{label}: {path.stem} cannot be repeated: its outermost level {name!r} joins more than one member already"
        )
    return name


def _load(
    kind: _Kind, adapter: TypeAdapter[Described], path: Path, label: str | Path, overrides: Sequence[str]
) -> Described:
    document = _resolve(kind, path)
    override.apply(document, overrides, kind.schema(), lists=kind is _SYSTEM)
    try:
        described = adapter.validate_python(document.data)
    except ValidationError as error:
        raise SpecError(_report(kind, label, faults(error, document, kind.schema()))) from None
    if document.faults:
        raise SpecError(_report(kind, label, document.faults))
    return described


@cache
def _chip_adapter() -> TypeAdapter[Chip]:
    return TypeAdapter(Chip)


@cache
def _system_adapter() -> TypeAdapter[System]:
    return TypeAdapter(System)


def _find(kind: _Kind, name_or_path: str | Path) -> Path:
    """The file that *name_or_path* means: a path if it looks like one, else a name of the library."""
    if _is_path(name_or_path):
        return Path(name_or_path)
    otherwise = f"a {kind.word} description of your own is given as a path that ends in .yaml"
    return _in_library(kind, str(name_or_path), otherwise)


def _is_path(name_or_path: str | Path) -> bool:
    text = str(name_or_path)
    return isinstance(name_or_path, Path) or text.endswith(_SUFFIXES) or "/" in text or "\\" in text


def _in_library(kind: _Kind, name: str, otherwise: str) -> Path:
    known = kind.names()
    if name not in known:
        meant = [system for system in system_names() if name.startswith(system)] if kind is _CHIP else []
        hint = f"; {meant[0]} is a system, {meant[0]}x16 would be 16 of it" if meant else nearest(name, known)
        raise SpecError(f"unknown {kind.word} {name!r}{hint} (known: {', '.join(known)}; {otherwise})")
    return kind.library / f"{name}.yaml"


def _resolve(kind: _Kind, path: Path, below: tuple[Path, ...] = ()) -> Document:
    """Read *path* and lay it over the description that it extends, which may extend another."""
    document = read(path)
    here = path.resolve()
    if here in below:
        circle = " -> ".join(file.name for file in (*below[below.index(here) :], here))
        raise SpecError(f"{path}: extends itself: {circle}")
    base = document.data.pop("extends", None)
    if base is None:
        return _without_nulls(document)
    if not isinstance(base, str):
        where = f"{path}: extends ({document.origins[('extends',)]})"
        raise SpecError(f"{where}: must be a {kind.word} or a file, got {base!r}")
    base_path = _base(kind, path, base, document.origins["extends",])
    parent = _resolve(kind, base_path, (*below, here))
    document.data.setdefault("name", path.stem)
    return _without_nulls(_merge(parent, document, base_path.name))


def _base(kind: _Kind, path: Path, base: str, line: str) -> Path:
    """The file that ``extends: base`` in *path* means; a path counts from the folder of *path*."""
    where = f"{path}: extends ({line})"
    if not base.endswith(_SUFFIXES) and "/" not in base:
        try:
            return _in_library(kind, base, "a file is given as a path that ends in .yaml")
        except SpecError as error:
            raise SpecError(f"{where}: {error}") from None
    if not (path.parent / base).is_file():
        raise SpecError(f"{where}: there is no file {path.parent / base}")
    return path.parent / base


def _merge(parent: Document, child: Document, parent_name: str) -> Document:
    """Lay *child* over *parent*: sections are merged key by key, any other value replaces what was there."""
    inherited = {path: _of_file(origin, parent_name) for path, origin in parent.origins.items()}
    kept = [Fault(f.path, _of_file(f.origin, parent_name), f.text) for f in parent.faults]
    return Document(_laid_over(parent.data, child.data), inherited | child.origins, kept + child.faults)


def _of_file(origin: str, name: str) -> str:
    return origin if ".y" in origin else f"{name}, {origin}"


def _laid_over(parent: dict[str, Any], child: dict[str, Any]) -> dict[str, Any]:
    merged = dict(parent)
    for key, value in child.items():
        below = merged.get(key)
        merged[key] = _laid_over(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _without_nulls(document: Document) -> Document:
    """Take away what is ``null``: that is how a description drops a value or a section that it inherits."""
    document.data = _pruned(document.data)
    return document


def _pruned(data: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _pruned(value) if isinstance(value, dict) else value for key, value in data.items() if value is not None
    }


def _report(kind: _Kind, label: str | Path, found: Sequence[Fault]) -> str:
    return "\n".join([f"{label}: not a valid {kind.word} description:", *(f"  {fault}" for fault in found)])
