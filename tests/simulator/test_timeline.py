"""The trace that Perfetto opens: valid events, tracks without overlaps, memory as a counter."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.errors import OutputError
from simulator.graph import OpKind, Role
from simulator.hardware import Execution
from simulator.result import Result
from simulator.timeline import write_timeline
from tests.simulator.runs import empty, on_units, run, two_layers
from tests.simulator.toys import GraphMaker, toy_chip, with_overheads

US = 10**6


def events(result: Result, folder: Path) -> list[dict[str, Any]]:
    path = folder / "timeline.json"
    write_timeline(result, path)
    trace = json.loads(path.read_text())
    assert trace["displayTimeUnit"] == "ns"
    found: list[dict[str, Any]] = trace["traceEvents"]
    return found


def tracks(found: list[dict[str, Any]]) -> dict[str, list[tuple[int, int, str]]]:
    """Spans of each named track as whole nanoseconds; every span must be on a track with a name."""
    names = {each["tid"]: each["args"]["name"] for each in found if each["name"] == "thread_name"}
    spans: defaultdict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for each in found:
        if each["ph"] == "X":
            start, length = round(1000 * each["ts"]), round(1000 * each["dur"])
            assert (start, length) == (pytest.approx(1000 * each["ts"]), pytest.approx(1000 * each["dur"]))
            spans[names[each["tid"]]].append((start, start + length, each["name"]))
    return dict(spans)


def assert_no_overlap(spans: dict[str, list[tuple[int, int, str]]]) -> None:
    for track in spans.values():
        ordered = sorted(track)
        for before, after in pairwise(ordered):
            assert before[1] <= after[0], (before, after)


def test_two_layers_on_their_tracks(tmp_path: Path) -> None:
    # product 0 to 16.384 us, gap 1 us, addition 1.024 us, gap 1 us, and the same again; then 1 us
    assert tracks(events(run(two_layers()), tmp_path)) == {
        "matrix": [(0, 16384, "blocks.0.up/aten.mm"), (19408, 35792, "blocks.1.up/aten.mm")],
        "vector": [
            (17384, 18408, "blocks.0/aten.add"),
            (36792, 37816, "blocks.1/aten.add"),
            (38816, 39816, "custom.odd"),
        ],
    }


def test_an_operator_carries_what_a_reader_asks_for(tmp_path: Path) -> None:
    first = next(each for each in events(run(two_layers()), tmp_path) if each["ph"] == "X")
    assert first["args"] == {
        "kind": "matmul",
        "phase": "forward",
        "bound": "compute",
        "flops": 524288,
        "bytes": 24576,
        "off-chip bytes": 24576,
        "detail": "one tile",
    }


def test_memory_is_a_counter_with_the_bytes_of_each_role(tmp_path: Path) -> None:
    result = run(two_layers())
    counters = [each for each in events(result, tmp_path) if each["ph"] == "C"]
    assert [each["ts"] for each in counters] == [0, 17.384, 19.408, 36.792, 38.816]
    assert max(sum(each["args"].values()) for each in counters) == result.peak_memory_bytes
    assert counters[0]["args"] == {"weight": 16384, "input": 32384, "activation": 8192}


def test_the_host_of_an_eager_run_has_a_track(tmp_path: Path) -> None:
    result = run(two_layers(), with_overheads(toy_chip(), host_dispatch=20 * US), mode="eager")
    spans = tracks(events(result, tmp_path))
    assert [(start, end) for start, end, _ in spans["host"]] == [(20000 * i, 20000 * (i + 1)) for i in range(5)]
    assert spans["host"][0][2] == "dispatch blocks.0.up/aten.mm"


def test_weights_fetched_ahead_are_beside_the_moves_of_the_dma_unit(tmp_path: Path) -> None:
    maker = GraphMaker()
    maker.matmul(64, 64, 64)
    maker.op((maker.storage("a", Role.INPUT, 8192),), (), (), OpKind.MOVE)  # the DMA unit copies while it fetches
    maker.matmul(64, 64, 64, deps=(0,))
    spans = tracks(events(on_units(maker.graph), tmp_path))
    assert {"matrix", "dma", "weights ahead"} <= spans.keys()
    assert_no_overlap(spans)


def test_an_empty_run_is_an_empty_trace(tmp_path: Path) -> None:
    assert [each["ph"] for each in events(run(empty()), tmp_path)] == ["M"]


def test_a_bad_path_is_a_message(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write .*missing/x\.json: No such file or directory"):
        write_timeline(run(empty()), tmp_path / "missing" / "x.json")


@pytest.mark.parametrize("execution", list(Execution))
@pytest.mark.parametrize("mode", ["eager", "graph"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40), st.integers(0, 3)), max_size=20))
def test_spans_of_one_track_never_overlap(
    execution: Execution, mode: str, tmp_path: Path, work: list[tuple[int, int, int]]
) -> None:
    maker = GraphMaker()
    for number, (kind, size, back) in enumerate(work):
        deps = (number - back,) if 0 < back <= number else ()
        if kind == 0:
            maker.matmul(size, size, size, deps)
        else:
            source = maker.storage(f"s{size}", Role.INPUT, 7 * size)
            maker.op((source,), (), deps, OpKind.MOVE if kind == 1 else OpKind.POINTWISE, flops=size)
    chip = with_overheads(toy_chip(execution, sram=2**12), launch=333, gap=777, host_dispatch=1234, host_submit=555)
    assert_no_overlap(tracks(events(run(maker.graph, chip, mode), tmp_path)))
