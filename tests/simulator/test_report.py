"""The HTML page: everything is there, well formed, escaped, self-contained and small."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from simulator.errors import OutputError
from simulator.graph import OperatorGraph, OpKind, Role
from simulator.report import write_report
from simulator.report.memory import curve
from simulator.report.page import page
from simulator.result import Result
from tests.simulator.runs import HOSTILE, empty, on_units, run, too_large, training, two_layers
from tests.simulator.toys import GraphMaker, toy_chip, with_overheads

VOID = {"meta", "link", "input", "br"}
SECTIONS = (
    "bounds", "roofline", "modules-section", "memory", "units", "operators-section", "uncovered", "chip", "conventions",
)  # fmt: skip


class Walk(HTMLParser):
    """Checks that every element is closed where it was opened, and keeps texts, ids and counts of tags."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def walk(text: str) -> Walk:
    parser = Walk()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    assert len(parser.ids) == len(set(parser.ids))
    return parser


def results() -> list[Result]:
    eager = with_overheads(toy_chip(), launch=100, host_dispatch=10**6)
    return [
        run(two_layers()),
        run(two_layers(), eager, mode="eager"),
        run(training()),
        run(empty()),
        on_units(two_layers()),
        too_large(),
        too_large(link=10**9),
        run(only_moves()),
    ]


def only_moves() -> OperatorGraph:
    maker = GraphMaker()
    maker.op((maker.storage("a", Role.INPUT, 64),), (), (), OpKind.MOVE)
    return maker.graph


@pytest.mark.parametrize("result", results(), ids=range(8))
def test_every_page_is_well_formed_and_needs_nothing_from_outside(result: Result) -> None:
    text = page(result)
    found = walk(text)
    assert set(SECTIONS) - set(found.ids) <= (set() if result.memory.peak else {"memory"})
    assert not re.search(r"""(src|href)=["'](?!#|data:)|url\(|@import|<link rel="stylesheet""", text)
    assert not re.search(r"\bNaN\b|\binf\b", text)


def test_the_page_tells_what_the_terminal_tells() -> None:
    words = " ".join(walk(page(run(two_layers()))).words)
    for wanted in (
        "toy prefill, batch 1 of 64 tokens, bf16",
        "with infinitely fast arithmetic the run would take 29.7 us less (75 %)",
        "blocks.*.up",
        "ridge 2 FLOP/B",
        "32 GFLOP/s bf16 matrix",
        "DRAM 16 GB/s",
        "peak 65.2 kB at 17.38 us",
        "capacity 1.05 MB",
        "made up for the tests",
        "custom.odd",
        "A multiply-add counts as two FLOP",
    ):
        assert wanted in words, wanted


def test_a_hostile_name_is_text_wherever_it_appears() -> None:
    maker = GraphMaker()
    for target in ("aten.mm", HOSTILE):
        maker.op((maker.storage("a", Role.INPUT, 64),), (), (), flops=100, module=HOSTILE, target=target)
    maker.graph.uncovered[HOSTILE] = 1
    maker.graph.workload = type(maker.graph.workload)(HOSTILE)
    text = page(run(maker.graph))
    found = walk(text)
    assert HOSTILE not in text
    assert found.tags.count("script") == 1  # our own
    assert sum(HOSTILE in word for word in found.words) >= 4


def test_a_run_that_does_not_fit_says_by_how_much() -> None:
    words = " ".join(walk(page(too_large(link=10**9))).words)
    assert "Does not fit: 1.05 MB more than the 1.05 MB of the device memory." in words
    assert "(spill over the host link)" in words


def test_the_same_run_gives_the_same_page() -> None:
    assert page(run(two_layers())) == page(run(two_layers()))


@pytest.fixture(scope="module")
def large() -> Result:
    """12000 operators, no two alike, whose memory peaks in one short operator."""
    maker = GraphMaker()
    for number in range(12_000):
        size = 4 * (number % 997) + 400_000 * (number == 7001) + number
        out = maker.storage(f"t{number}", Role.ACTIVATION, size + 1)
        maker.op((), (out,), (), flops=size, module=f"part{number % 600}.with.a.long.name")
    return run(maker.graph)


def test_a_page_of_many_operators_stays_small(large: Result) -> None:
    text = page(large)
    walk(text)
    assert len(text.encode()) < 2_000_000
    assert "The 500 largest of 12000 rows" in text


def test_fewer_points_of_memory_keep_the_peak(large: Result) -> None:
    points = curve(large, buckets=100)
    assert len(points.time) <= 200
    assert int(points.total.max()) == large.memory.peak
    assert np.all(np.diff(points.time) >= 0)
    assert points.total[-1] == large.memory.total[-1]


def test_few_points_of_memory_are_all_kept() -> None:
    result = run(two_layers())
    assert curve(result).time.tolist() == [result.schedule.start[index] for index in result.memory.order]


def test_a_bad_path_is_a_message(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write .*missing/x\.html: No such file or directory"):
        write_report(run(empty()), tmp_path / "missing" / "x.html")


def test_neither_core_nor_report_loads_a_plotting_library() -> None:
    code = "import simulator, simulator.report, sys; print('matplotlib' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
