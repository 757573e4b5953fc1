"""What every pass keeps, on random graphs of views, broadcasts, reductions, products and writes in place."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.costs import compute_model
from simulator.dims import CollectiveDims, MatmulDims, RowDims
from simulator.dtypes import DType
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role, Tensor
from simulator.memory import memory_timeline
from simulator.passes import INDUCTOR, PASSES, compile_graph
from simulator.passes.draft import hazards, needed
from simulator.passes.prices import Prices
from tests.simulator.test_passes_fusion import MATMUL, MOVE, REDUCE, Maker
from tests.simulator.toys import toy_chip

SHAPES = ((2, 8), (16,), (8,), (2, 4), (2,))
POINTWISE = ("add", "mul", "exp", "silu", "_to_copy", "clone", "embedding", "cat", "neg")
BUYS = ("padding", "decompose", "recompute", "inline", "w8", "w4")  # time or memory with bytes, kernels or precision
SAVES = [name for name in PASSES if name not in BUYS]


@st.composite
def graphs(draw: st.DrawFn) -> OperatorGraph:
    make = Maker()
    known = [make.tensor(*shape, role=draw(st.sampled_from(list(Role)[:4]))) for shape in SHAPES]
    backward = draw(st.integers(0, 12))
    for number in range(draw(st.integers(1, 12))):
        phase = Phase.BACKWARD if number >= backward else Phase.FORWARD
        inputs = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))
        if draw(st.integers(0, 5)) == 0:  # a piece of a storage
            inputs[0] = replace(inputs[0], shape=(max(1, inputs[0].elements // 2),))
        known.append(_made(draw, make, inputs, known, phase))
    graph = make.returns(*draw(st.lists(st.sampled_from(known), max_size=3)))
    held = draw(st.sampled_from(known)).storage
    if not graph.storages[held].role.resident:
        graph.released = {held: len(graph) - 1}
    return graph


def _made(draw: st.DrawFn, make: Maker, inputs: list[Tensor], known: list[Tensor], phase: Phase) -> Tensor:
    """One operator more; returns what it makes."""
    widest = max(inputs, key=lambda tensor: tensor.elements)
    sort = draw(st.sampled_from(("pointwise", "pointwise", "pointwise", "place", "rows", "product", "collective")))
    if sort == "place":
        out = draw(st.sampled_from(known))
        make.op("copy_", inputs, (out,), MOVE, phase=phase)
    elif sort == "rows":
        rows, columns = widest.elements // widest.shape[-1], widest.shape[-1]
        whole = draw(st.booleans())
        out = make.tensor(*(widest.shape if whole else (rows,)))
        dims = RowDims(rows, columns, draw(st.sampled_from((1, 1, 2))))
        make.op("_softmax" if whole else "sum", (widest, *inputs), (out,), REDUCE, dims, widest.elements, phase)
    elif sort == "product":
        out = make.tensor(2, 8)
        make.op("mm", inputs, (out,), MATMUL, MatmulDims(2, 8, 3), flops=96, phase=phase)
    elif sort == "collective":
        out = make.tensor(*widest.shape)
        dims_ = CollectiveDims("all_reduce", widest.nbytes)
        make.op("all_reduce", (widest,), (out,), OpKind.COLLECTIVE, dims_, phase=phase, group=(0, 1))
    else:
        out = make.tensor(*widest.shape)
        if draw(st.booleans()):
            out = replace(make.tensor(2 * widest.elements), shape=widest.shape, dtype=DType.FP32)
        make.op(draw(st.sampled_from(POINTWISE)), inputs, (out,), flops=widest.elements, phase=phase)
    return out


def frozen(graph: OperatorGraph) -> tuple[object, ...]:
    return tuple(graph.operators), tuple(graph.storages), graph.outputs, dict(graph.released)


def peak(graph: OperatorGraph) -> int:
    return memory_timeline(graph, range(len(graph))).peak


def written_last(graph: OperatorGraph) -> dict[int, set[str]]:
    """For each storage that matters afterwards, what the last operator that writes it does."""
    found = {}
    for op in graph:
        for tensor in op.outputs:
            if needed(graph, tensor.storage):
                found[tensor.storage] = {op.target.removeprefix("fused.").rsplit(".", 1)[-1]}
    return found


@pytest.mark.parametrize("name", SAVES)
@given(graph=graphs())
@settings(max_examples=40, deadline=None)
def test_every_pass_keeps_the_work_and_saves_the_rest(name: str, graph: OperatorGraph) -> None:
    before = frozen(graph)
    found = PASSES[name](graph, Prices(compute_model("fixed", toy_chip())))
    assert frozen(graph) == before
    if name not in ("dead", "common", "constants"):
        assert found.flops == graph.flops
    assert found.flops <= graph.flops
    assert sum(op.nbytes for op in found) <= sum(op.nbytes for op in graph)
    assert all(op.reads >= 0 and op.writes >= 0 for op in found)
    assert len(found) <= len(graph)
    assert peak(found) <= peak(graph)
    assert [op.id for op in found] == list(range(len(found)))
    assert all(dep < op.id for op in found for dep in op.deps)
    assert (found.workload, found.outputs) == (graph.workload, graph.outputs)
    changed = [old for old, new in zip(graph.storages, found.storages, strict=True) if old != new]
    assert not changed or name == "constants"
    assert all(each.role in (Role.ACTIVATION, Role.GRADIENT) for each in changed)  # and is a buffer now
    assert written_last(found).keys() == written_last(graph).keys()


@pytest.mark.parametrize("name", SAVES)
@given(graph=graphs())
@settings(max_examples=20, deadline=None)
def test_every_pass_is_done_after_once(name: str, graph: OperatorGraph) -> None:
    prices = Prices(compute_model("fixed", toy_chip()))
    once = PASSES[name](graph, prices)
    assert len(PASSES[name](once, prices)) == len(once)


@given(graph=graphs())
@settings(max_examples=40, deadline=None)
def test_what_waited_for_something_still_does(graph: OperatorGraph) -> None:
    """Follow each storage: the kernel that has a reader in it comes after the one that has its writer in it."""
    labelled = OperatorGraph(graph.workload, graph.storages, outputs=graph.outputs, released=graph.released)
    for op in graph:
        labelled.add(replace(op, target=f"aten.{op.target.removeprefix('aten.')}"))
    found = PASSES["pointwise"](labelled, Prices(compute_model("fixed", toy_chip())))
    for op, waits in zip(found, hazards(found), strict=True):
        assert waits <= set(op.deps)
    writes = {key: _sequence(labelled, key) for key in written_last(labelled)}
    assert {key: _sequence(found, key) for key in writes} == writes


def _sequence(graph: OperatorGraph, storage: int) -> int:
    """How many kernels write a storage that matters: none of those writes may be lost or moved into another."""
    return sum(any(tensor.storage == storage for tensor in op.outputs) for op in graph)


@given(graph=graphs())
@settings(max_examples=20, deadline=None)
def test_padding_never_makes_a_program_slower(graph: OperatorGraph) -> None:
    model = compute_model("tile", toy_chip())
    found = PASSES["padding"](graph, Prices(model))
    assert found.flops == graph.flops
    assert _time(model.costs(found)) <= _time(model.costs(graph)) + len(found)  # rounded up to picoseconds each


def _time(costs: object) -> int:
    assert isinstance(costs, list)
    return sum(cost.time for cost in costs)


@given(graph=graphs())
@settings(max_examples=20, deadline=None)
def test_a_whole_pipeline_ends_in_a_graph_that_plays(graph: OperatorGraph) -> None:
    model = compute_model("fixed", toy_chip())
    done = compile_graph(graph, model, lambda each: (6_000 * len(each), "launch"), INDUCTOR)
    assert done.reports[-1].after.kernels == len(done.graph)
    assert all(isinstance(op, Operator) for op in done.graph)
    assert done.reports[-1].after.time <= done.reports[0].before.time
