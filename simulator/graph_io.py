"""Operator graphs as JSON files: versioned, lossless, checked when read."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from simulator import dims
from simulator.dims import Dims
from simulator.dtypes import DType
from simulator.errors import GraphError, nearest
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role, Tensor, Workload
from simulator.output import write_text

FORMAT = "xpusim-graph"
VERSION = 1
_DIMS: Mapping[str, type[Dims]] = {
    "matmul": dims.MatmulDims,
    "attention": dims.AttentionDims,
    "convolution": dims.ConvolutionDims,
    "rows": dims.RowDims,
    "collective": dims.CollectiveDims,
}
_DIMS_NAME = {factory: name for name, factory in _DIMS.items()}
_LARGEST = 2**60  # of a size in a file: sums of a few still fit in 64 bits

Size = Annotated[int, Field(ge=0, le=_LARGEST)]
Positive = Annotated[int, Field(ge=1, le=_LARGEST)]


@dataclass(frozen=True, slots=True)
class _Workload:
    name: str
    phase: str
    batch: Positive
    tokens: Size
    context: Size
    dtype: DType


@dataclass(frozen=True, slots=True)
class _Record:
    """One operator as it stands in a file; tensors are storage, shape and type."""

    module: str
    target: str
    kind: OpKind
    phase: Phase
    inputs: list[tuple[Size, tuple[Size, ...], DType]]
    outputs: list[tuple[Size, tuple[Size, ...], DType]]
    flops: Size
    reads: Size
    writes: Size
    deps: tuple[Size, ...]
    dtype: DType
    dims: tuple[str, dict[str, Any]] | None
    dispatches: Size
    group: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class _Document:
    format: str
    version: int
    workload: _Workload
    storages: list[tuple[str, Role, Size]]
    outputs: list[Size]
    released: list[tuple[Size, Size]]
    uncovered: dict[str, Size]
    operators: list[_Record]


def save_graph(graph: OperatorGraph, path: str | Path) -> None:
    """Write *graph* to *path*; load_graph gives an equal one back.  OutputError if *path* cannot be written."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "workload": asdict(graph.workload),
        "storages": [[s.name, s.role, s.nbytes] for s in graph.storages],
        "outputs": sorted(graph.outputs),
        "released": sorted(graph.released.items()),
        "uncovered": graph.uncovered,
        "operators": [_write_operator(op) for op in graph.operators],
    }
    write_text(Path(path), json.dumps(document))


def load_graph(path: str | Path) -> OperatorGraph:
    """Read a graph file; GraphError says where it breaks off or which value is wrong."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        _check_header(json.loads(text), path)
        return _read(TypeAdapter(_Document).validate_json(text, strict=True))
    except OSError as error:
        raise GraphError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise GraphError(f"{path} is not a graph file: it is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise GraphError(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise GraphError(f"{path} is not a graph file: it is nested too deeply") from None
    except ValidationError as error:
        raise GraphError(f"{path}: {_first_fault(error)}") from None
    except _WrongError as error:
        raise GraphError(f"{path}: {error}") from None


class _WrongError(Exception):
    """What is wrong with the contents of a file, without its name."""


def _check_header(document: object, path: Path) -> None:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise GraphError(f'{path} is not a graph file: it has no "format": "{FORMAT}"')
    if document.get("version") != VERSION:
        raise GraphError(f"{path}: graph format version {document.get('version')!r}; this xpusim reads {VERSION}")


def _first_fault(error: ValidationError) -> str:
    """The first thing that is wrong, with its place: ``operators[3].flops``."""
    detail: ErrorDetails = error.errors(include_url=False)[0]
    where = ""
    for part in detail["loc"]:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else str(part)
    if detail["type"] in ("missing", "missing_argument"):
        return f"the key {where} is missing"
    got = json.dumps(detail["input"], default=str)
    text = detail["msg"][:1].lower() + detail["msg"][1:]
    return f"{where}: {text}, got {got if len(got) <= _SHOWN else got[:_SHOWN] + '...'}"


_SHOWN = 60  # characters of a wrong value


def _read(document: _Document) -> OperatorGraph:
    graph = OperatorGraph(Workload(**asdict(document.workload)))
    for name, role, nbytes in document.storages:
        graph.add_storage(name, role, nbytes)
    for position, record in enumerate(document.operators):
        try:
            graph.add(_operator(position, record))
        except GraphError as error:
            raise _WrongError(str(error)) from None
    graph.outputs = frozenset(document.outputs)
    graph.released = dict(document.released)
    graph.uncovered = dict(document.uncovered)
    _check_references(graph)
    return graph


def _check_references(graph: OperatorGraph) -> None:
    for storage in [*graph.outputs, *graph.released]:
        if storage >= len(graph.storages):
            raise _WrongError(f"names storage {storage}; the graph has {len(graph.storages)}")
    for operator in graph.released.values():
        if operator >= len(graph.operators):
            raise _WrongError(f"names operator {operator}; the graph has {len(graph.operators)}")


def _write_operator(op: Operator) -> dict[str, Any]:
    return {
        "module": op.module,
        "target": op.target,
        "kind": op.kind,
        "phase": op.phase,
        "inputs": [[t.storage, t.shape, t.dtype] for t in op.inputs],
        "outputs": [[t.storage, t.shape, t.dtype] for t in op.outputs],
        "flops": op.flops,
        "reads": op.reads,
        "writes": op.writes,
        "deps": op.deps,
        "dtype": op.dtype,
        "dims": None if op.dims is None else [_DIMS_NAME[type(op.dims)], asdict(op.dims)],
        "dispatches": op.dispatches,
        "group": op.group,
    }


def _operator(position: int, record: _Record) -> Operator:
    return Operator(
        id=position,
        module=record.module,
        target=record.target,
        kind=record.kind,
        phase=record.phase,
        inputs=tuple(Tensor(*each) for each in record.inputs),
        outputs=tuple(Tensor(*each) for each in record.outputs),
        flops=record.flops,
        reads=record.reads,
        writes=record.writes,
        deps=record.deps,
        dtype=record.dtype,
        dims=None if record.dims is None else _dims(f"operators[{position}].dims", *record.dims),
        dispatches=record.dispatches,
        group=record.group,
    )


def _dims(where: str, name: str, values: dict[str, Any]) -> Dims:
    if name not in _DIMS:
        raise _WrongError(f"{where}: unknown dims {name!r}{nearest(name, _DIMS)} (known: {', '.join(_DIMS)})")
    made = _DIMS[name]
    kinds: dict[str, type] = get_type_hints(made)
    for key in (*(set(kinds) - set(values)), *(set(values) - set(kinds))):
        if key in kinds:
            raise _WrongError(f"the key {where}.{key} is missing")
        raise _WrongError(f"{where}.{key}: unknown key{nearest(key, kinds)} (known: {', '.join(kinds)})")
    for key, value in values.items():
        if type(value) is not kinds[key]:
            raise _WrongError(f"{where}.{key}: should be of type {kinds[key].__name__}, got {json.dumps(value)}")
        if type(value) is int and not 0 <= value <= _LARGEST:
            raise _WrongError(f"{where}.{key}: should be from 0 to {_LARGEST}, got {value}")
    return made(**values)
