"""Operator graphs as JSON files: versioned, lossless, checked when read."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simulator import dims
from simulator.dims import Dims
from simulator.dtypes import DType
from simulator.errors import GraphError
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role, Tensor, Workload
from simulator.output import write_text

FORMAT = "xpusim-graph"
VERSION = 1
_DIMS: Mapping[str, Callable[..., Dims]] = {
    "matmul": dims.MatmulDims,
    "attention": dims.AttentionDims,
    "convolution": dims.ConvolutionDims,
    "rows": dims.RowDims,
    "collective": dims.CollectiveDims,
}
_DIMS_NAME = {factory: name for name, factory in _DIMS.items()}


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
    """Read a graph file; GraphError says where it breaks off or which operator is wrong."""
    path = Path(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise GraphError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise GraphError(f"{path} is not a graph file: it is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise GraphError(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    _check_header(document, path)
    try:
        return _read(document)
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from None
    except KeyError as error:
        raise GraphError(f"{path}: the key {error} is missing") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise GraphError(f"{path}: {error}") from None


def _check_header(document: object, path: Path) -> None:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise GraphError(f'{path} is not a graph file: it has no "format": "{FORMAT}"')
    if document.get("version") != VERSION:
        raise GraphError(f"{path}: graph format version {document.get('version')!r}; this xpusim reads {VERSION}")


def _read(document: dict[str, Any]) -> OperatorGraph:
    workload = document["workload"]
    graph = OperatorGraph(Workload(**{**workload, "dtype": DType(workload["dtype"])}))
    for name, role, nbytes in document["storages"]:
        graph.add_storage(name, Role(role), nbytes)
    for position, record in enumerate(document["operators"]):
        graph.add(_at(position, record))
    graph.outputs = frozenset(document["outputs"])
    graph.released = dict(document["released"])
    graph.uncovered = dict(document["uncovered"])
    _check_references(graph)
    return graph


def _check_references(graph: OperatorGraph) -> None:
    for storage in [*graph.outputs, *graph.released]:
        if not 0 <= storage < len(graph.storages):
            raise GraphError(f"names storage {storage}; the graph has {len(graph.storages)}")
    for operator in graph.released.values():
        if not 0 <= operator < len(graph.operators):
            raise GraphError(f"names operator {operator}; the graph has {len(graph.operators)}")


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


def _at(position: int, record: Any) -> Operator:
    try:
        return _read_operator(position, record)
    except KeyError as error:
        raise GraphError(f"operator {position}: the key {error} is missing") from None
    except (TypeError, ValueError) as error:
        raise GraphError(f"operator {position}: {error}") from None


def _read_operator(position: int, record: dict[str, Any]) -> Operator:
    return Operator(
        id=position,
        module=record["module"],
        target=record["target"],
        kind=OpKind(record["kind"]),
        phase=Phase(record["phase"]),
        inputs=tuple(_read_tensor(each) for each in record["inputs"]),
        outputs=tuple(_read_tensor(each) for each in record["outputs"]),
        flops=int(record["flops"]),
        reads=int(record["reads"]),
        writes=int(record["writes"]),
        deps=tuple(int(dep) for dep in record["deps"]),
        dtype=DType(record["dtype"]),
        dims=_read_dims(record["dims"]),
        dispatches=int(record["dispatches"]),
        group=tuple(record["group"]),
    )


def _read_tensor(record: Any) -> Tensor:
    storage, shape, dtype = record
    return Tensor(int(storage), tuple(int(size) for size in shape), DType(dtype))


def _read_dims(record: Any) -> Dims | None:
    if record is None:
        return None
    name, values = record
    if name not in _DIMS:
        raise ValueError(f"unknown dims {name!r} (known: {', '.join(_DIMS)})")
    return _DIMS[name](**values)
