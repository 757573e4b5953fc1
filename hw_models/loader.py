"""Reads chip descriptions: the library in ``hw_models/chips`` and the user's own YAML files."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hw_models import overrides as override
from hw_models.faults import faults
from hw_models.yamlfile import Document, Fault, read
from simulator.errors import SpecError, nearest
from simulator.hardware import Chip

LIBRARY = Path(__file__).parent / "chips"
_SUFFIXES = (".yaml", ".yml")


def chip_names() -> list[str]:
    """Names of the chips of the library, sorted; each is the stem of its file."""
    return sorted(path.stem for path in LIBRARY.glob("*.yaml"))


def load_chip(name_or_path: str | Path, overrides: Sequence[str] = ()) -> Chip:
    """Return the chip of that name in the library, or the one that the YAML file at that path describes.

    overrides  ``path=value`` texts such as ``memory.hbm.bandwidth=6TB/s``, as ``--set`` gives them, applied to the
               description before anything is checked; ``null`` takes a value or section away.

    Raises SpecError that lists every fault of the file at once, each with its path and its line.
    """
    path = _find(name_or_path)
    document = _resolve(path)
    override.apply(document, overrides)
    try:
        chip = _adapter().validate_python(document.data)
    except ValidationError as error:
        raise SpecError(_report(name_or_path, faults(error, document))) from None
    if document.faults:
        raise SpecError(_report(name_or_path, document.faults))
    return chip


@cache
def _adapter() -> TypeAdapter[Chip]:
    return TypeAdapter(Chip)


def _find(name_or_path: str | Path) -> Path:
    """The file that *name_or_path* means: a path if it looks like one, else a name of the library."""
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or text.endswith(_SUFFIXES) or "/" in text or "\\" in text:
        return Path(name_or_path)
    return _in_library(text, "a chip description of your own is given as a path that ends in .yaml")


def _in_library(name: str, otherwise: str) -> Path:
    known = chip_names()
    if name not in known:
        raise SpecError(f"unknown chip {name!r}{nearest(name, known)} (known: {', '.join(known)}; {otherwise})")
    return LIBRARY / f"{name}.yaml"


def _resolve(path: Path, below: tuple[Path, ...] = ()) -> Document:
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
        raise SpecError(f"{path}: extends ({document.origins[('extends',)]}): must be a chip or a file, got {base!r}")
    base_path = _base(path, base, document.origins["extends",])
    parent = _resolve(base_path, (*below, here))
    document.data.setdefault("name", path.stem)
    return _without_nulls(_merge(parent, document, base_path.name))


def _base(path: Path, base: str, line: str) -> Path:
    """The file that ``extends: base`` in *path* means; a path counts from the folder of *path*."""
    where = f"{path}: extends ({line})"
    if not base.endswith(_SUFFIXES) and "/" not in base:
        try:
            return _in_library(base, "a file is given as a path that ends in .yaml")
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


def _report(label: str | Path, found: Sequence[Fault]) -> str:
    return "\n".join([f"{label}: not a valid chip description:", *(f"  {fault}" for fault in found)])
