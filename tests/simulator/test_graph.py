"""The graph keeps its own order, and a file gives back the graph that was saved."""

import json
from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import load_graph, save_graph
from simulator.dims import AttentionDims
from simulator.errors import GraphError, OutputError
from simulator.graph import OperatorGraph, OpKind, Role, Workload
from tests.simulator.toys import GraphMaker


def small_graph() -> OperatorGraph:
    maker = GraphMaker("decode", tokens=3)
    first = maker.matmul(4, 4, 4, module="blocks.0.up")
    maker.op(deps=(first.id,), outputs=(maker.storage("out", Role.ACTIVATION, 7),), target="aten.gelu")
    maker.graph.outputs = frozenset({maker.graph.storages[-1].id})
    maker.graph.released = {2: 1}
    maker.graph.uncovered = {"mylib.op": 1}
    return maker.graph


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": 5}, "operator 5 (blocks.0.up/op0): the next free id is 1"),
        (
            {"id": 1, "deps": (1,)},
            "operator 1 (blocks.0.up/op0): depends on operator 1, which does not stand before it",
        ),
        (
            {"id": 1, "flops": -2},
            "operator 1 (blocks.0.up/op0): flops -2, reads 64, writes 32, dispatches 1: none may be negative",
        ),
        (
            {"id": 1, "kind": OpKind.COLLECTIVE},
            "operator 1 (blocks.0.up/op0): a collective, and only a collective, names its group",
        ),
    ],
)
def test_an_operator_that_breaks_a_rule_is_refused(change: dict[str, object], message: str) -> None:
    maker = GraphMaker()
    operator = maker.matmul(4, 4, 4, module="blocks.0.up")
    with pytest.raises(GraphError) as caught:
        maker.graph.add(replace(operator, **change))  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_an_operator_cannot_use_a_storage_of_another_graph() -> None:
    operator = GraphMaker().matmul(4, 4, 4)
    with pytest.raises(GraphError, match=r"^operator 0 \(op0\): uses storage 0; the graph has 0$"):
        OperatorGraph(Workload("empty")).add(operator)


@given(st.lists(st.sets(st.integers(0, 30), max_size=3), max_size=30))
def test_ids_are_a_topological_order(wanted: list[set[int]]) -> None:
    maker = GraphMaker()
    for index, deps in enumerate(wanted):
        maker.op(deps=tuple(dep for dep in deps if dep < index))
    order = list(maker.graph.to_networkx())
    assert order == sorted(order)
    assert nx.is_directed_acyclic_graph(maker.graph.to_networkx())


def test_a_saved_graph_comes_back_equal(tmp_path: Path) -> None:
    graph = small_graph()
    save_graph(graph, tmp_path / "g.json")
    assert load_graph(tmp_path / "g.json") == graph


def test_a_graph_cannot_be_saved_into_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(OutputError) as caught:
        save_graph(small_graph(), tmp_path / "no" / "g.json")
    assert str(caught.value) == f"cannot write {tmp_path}/no/g.json: No such file or directory"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "{path}:1:2: not JSON: Expecting property name enclosed in double quotes"),
        ("[]", '{path} is not a graph file: it has no "format": "xpusim-graph"'),
        (
            '{"format": "xpusim-graph", "version": 9}',
            "{path}: graph format version 9; this xpusim reads 1",
        ),
        ('{"format": "xpusim-graph", "version": 1}', "{path}: the key workload is missing"),
    ],
)
def test_a_broken_file_says_where_it_breaks(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    path.write_text(text)
    with pytest.raises(GraphError) as caught:
        load_graph(path)
    assert str(caught.value) == message.replace("{path}", str(path))


KINDS = "'matmul', 'attention', 'convolution', 'pointwise', 'reduction', 'move', 'collective' or 'other'"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("kind", "matmull", f'operators[0].kind: input should be {KINDS}, got "matmull"'),
        ("deps", [3], "operator 0 (blocks.0.up/op0): depends on operator 3, which does not stand before it"),
        ("flops", "many", 'operators[0].flops: input should be a valid integer, got "many"'),
        ("flops", 1.5, "operators[0].flops: input should be a valid integer, got 1.5"),
        ("reads", True, "operators[0].reads: input should be a valid integer, got true"),
        ("writes", -1, "operators[0].writes: input should be greater than or equal to 0, got -1"),
        ("flops", 10**30, f"operators[0].flops: input should be less than or equal to {2**60}, got {10**30}"),
        ("module", None, "operators[0].module: input should be a valid string, got null"),
        ("inputs", {}, "operators[0].inputs: input should be a valid array, got {}"),
        ("inputs", [[0]], "the key operators[0].inputs[0][1] is missing"),
        (
            "dims",
            ["cube", {}],
            "operators[0].dims: unknown dims 'cube' (known: matmul, attention, convolution, rows, collective)",
        ),
        ("dims", ["rows", {"rows": 4, "inner": 1}], "the key operators[0].dims.columns is missing"),
        (
            "dims",
            ["rows", {"rows": 4, "columns": 2, "inner": 1, "colums": 2}],
            "operators[0].dims.colums: unknown key; did you mean 'columns'? (known: rows, columns, inner)",
        ),
        (
            "dims",
            ["rows", {"rows": 4.5, "columns": 2, "inner": 1}],
            "operators[0].dims.rows: should be of type int, got 4.5",
        ),
        (
            "dims",
            ["rows", {"rows": -4, "columns": 2, "inner": 1}],
            f"operators[0].dims.rows: should be from 0 to {2**60}, got -4",
        ),
    ],
)
def test_a_wrong_operator_in_a_file_is_named(key: str, value: object, message: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, ("operators", 0, key), value) == message


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("workload", "batch"), "x", 'workload.batch: input should be a valid integer, got "x"'),
        (("workload", "batch"), 0, "workload.batch: input should be greater than or equal to 1, got 0"),
        (("workload", "tokens"), -5, "workload.tokens: input should be greater than or equal to 0, got -5"),
        (("storages", 0), ["a", "wait", 1], None),
        (("uncovered",), ["a"], 'uncovered: input should be an object, got ["a"]'),
        (("outputs",), [99], "names storage 99; the graph has 4"),
    ],
)
def test_a_wrong_value_in_a_file_is_named(
    place: tuple[str | int, ...], value: object, message: str | None, tmp_path: Path
) -> None:
    text = refusal(tmp_path, place, value)
    assert text == message if message else text.startswith("storages[0][1]: input should be 'weight'")


def test_a_file_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    path.write_text("[" * 100_000)
    with pytest.raises(GraphError, match=r"g\.json is not a graph file: it is nested too deeply$"):
        load_graph(path)


def refusal(tmp_path: Path, place: tuple[str | int, ...], value: object) -> str:
    """What is said of a graph file with *value* at *place*, without the file's name."""
    path = tmp_path / "g.json"
    save_graph(small_graph(), path)
    document = inner = json.loads(path.read_text())
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    path.write_text(json.dumps(document))
    with pytest.raises(GraphError) as caught:
        load_graph(path)
    return str(caught.value).removeprefix(f"{path}: ")


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 40))
def test_causal_pairs_equal_a_count_of_the_mask(queries: int, extra: int, window: int) -> None:
    keys = queries + extra - 1
    first = keys - queries
    visible = sum(
        1 for q in range(queries) for k in range(keys) if k <= first + q and (not window or k > first + q - window)
    )
    assert AttentionDims(1, 1, 1, queries, keys, 8, 8, causal=True, window=window).pairs == visible
