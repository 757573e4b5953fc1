"""Reads a YAML file strictly: keys stand once, and every value knows the line that it came from."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from simulator.errors import SpecError

_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml if PyYAML was built with it
_MAX_BYTES = 1 << 20

Keys = tuple[str, ...]  # the keys from the top of a document down to a value


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: at *path*, which came from *origin* (a line, an override), and *text* says what."""

    path: Keys
    origin: str
    text: str

    def __str__(self) -> str:
        where = ".".join(self.path)
        if self.origin:
            where = f"{where} ({self.origin})" if where else self.origin
        return f"{where}: {self.text}" if where else self.text


@dataclass(slots=True)
class Document:
    """A file's *data*, the *origins* of its values by path, and the *faults* met while reading it."""

    data: dict[str, Any] = field(default_factory=dict)
    origins: dict[Keys, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)


def read(path: Path) -> Document:
    """Return the mapping in the YAML file at *path*; SpecError if there is none to be had.

    A key that stands twice is a fault and not an exception, so that it is reported with all the others.
    Anchors, aliases and merge keys are refused: a description says what it means where it says it.
    """
    text = _text(path)
    loader = _LOADER(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise SpecError(f"{path}: the file is empty; expected a chip description in YAML")
        if not isinstance(node, yaml.MappingNode):
            raise SpecError(f"{path}: expected a mapping of keys to values, got {_kind(node)}")
        reader = _Reader(loader)
        document = Document(reader.mapping(node, ()), reader.origins, reader.faults)
    except yaml.YAMLError as error:
        raise SpecError(_syntax(path, error)) from None
    except RecursionError:
        raise SpecError(f"{path}: nested too deeply for a chip description") from None
    finally:
        loader.dispose()
    return document


def scalar(text: str) -> Any:
    """Return *text* as YAML reads it, so that ``--set`` and a file agree: 4 is a number, true a truth value.

    >>> scalar("6 TB/s"), scalar("4"), scalar("os"), scalar("null")
    ('6 TB/s', 4, 'os', None)
    """
    try:
        return yaml.load(text, _LOADER)
    except (yaml.YAMLError, RecursionError, ValueError):
        return text


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except IsADirectoryError:
        raise SpecError(f"{path}: is a directory; expected a chip description, a YAML file") from None
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file") from None
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # a zero byte in the name
        raise SpecError(f"{str(path)!r}: cannot be read: {error}") from None
    if len(raw) > _MAX_BYTES:
        raise SpecError(f"{path}: {len(raw)} bytes; a chip description has at most {_MAX_BYTES}")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        bad = raw[error.start]
        raise SpecError(f"{path}: not UTF-8 text: byte 0x{bad:02x} at offset {error.start}") from None


def _syntax(path: Path, error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{path}, line {mark.line + 1}, column {mark.column + 1}: not valid YAML: {error.problem}"
    return f"{path}: not valid YAML: {' '.join(str(error).split())}"


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return "a mapping" if isinstance(node, yaml.MappingNode) else "a single value"


class _Reader:
    """Turns nodes into plain data and writes down where each value stood and what was wrong."""

    def __init__(self, loader: yaml.SafeLoader) -> None:
        self.origins: dict[Keys, str] = {}
        self.faults: list[Fault] = []
        self._loader = loader
        self._seen: set[int] = set()

    def mapping(self, node: yaml.MappingNode, path: Keys) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node, path)
            if key is None:
                continue
            here = (*path, key)
            line = _line(key_node)
            if key in data:
                self._fault(here, line, f"stands twice (first on {self.origins[here]})")
                continue
            self.origins[here] = line
            data[key] = self._value(value_node, here)
        return data

    def _value(self, node: yaml.Node, path: Keys) -> Any:
        if id(node) in self._seen:
            self._fault(path, _line(node), "aliases are not used in chip descriptions; write the value out")
            return None
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, path) for item in node.value]
        try:
            return self._loader.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:  # a tag that SafeLoader does not know, or the 31st of June
            problem = error.problem if isinstance(error, yaml.MarkedYAMLError) else error
            self._fault(path, _line(node), f"not a plain value: {problem}")
            return None

    def _key(self, node: yaml.Node, path: Keys) -> str | None:
        key: Hashable = None
        if isinstance(node, yaml.ScalarNode) and node.tag != "tag:yaml.org,2002:merge":
            key = self._loader.construct_object(node)
        if isinstance(key, str):
            return key
        shown = node.value if isinstance(node, yaml.ScalarNode) else _kind(node)
        self._fault(path, _line(node), f"a key must be a word, got {shown}")
        return None

    def _fault(self, path: Keys, line: str, text: str) -> None:
        self.faults.append(Fault(path, line, text))


def _line(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}"
