"""The pass manager: names, order, and what each pass did."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulator.costs import ComputeModel
from simulator.errors import UsageError, nearest
from simulator.graph import Operator, OperatorGraph, Phase
from simulator.passes.attention import attention
from simulator.passes.cleaning import common, dead
from simulator.passes.constants import constants
from simulator.passes.decompose import decompose
from simulator.passes.fused import PREFIX
from simulator.passes.fusion import epilogue, pointwise, reductions
from simulator.passes.inlining import inline, recompute
from simulator.passes.padding import padding
from simulator.passes.prices import Prices
from simulator.passes.quantise import w4, w8
from simulator.passes.reports import PassReport, State

Pass = Callable[[OperatorGraph, Prices], OperatorGraph]
Judge = Callable[[OperatorGraph], tuple[int, str]]

PASSES: dict[str, Pass] = {
    "dead": dead,
    "common": common,
    "constants": constants,
    "attention": attention,
    "padding": padding,
    "decompose": decompose,
    "recompute": recompute,
    "inline": inline,
    "pointwise": pointwise,
    "reductions": reductions,
    "epilogue": epilogue,
    "w8": w8,
    "w4": w4,
}
INDUCTOR = (  # what torch.compile does by default: matrix products stay calls of the vendor's library
    "dead",
    "common",
    "attention",
    "padding",
    "decompose",
    "recompute",
    "inline",
    "pointwise",
    "reductions",
)
_INDEX = re.compile(r"(?<![^.])\d+(?![^.])")


def graph_pass(name: str) -> Callable[[Pass], Pass]:
    """Decorator: the function below is the pass called *name*; see the package for an example."""

    def enter(function: Pass) -> Pass:
        PASSES[name] = function
        return function

    return enter


@dataclass(frozen=True, slots=True)
class Compiled:
    """The *graph* after all passes and what each of them did."""

    graph: OperatorGraph
    reports: tuple[PassReport, ...]


def check_passes(names: Sequence[str]) -> None:
    """Raise UsageError unless each of *names* is a pass."""
    for name in names:
        if name not in PASSES:
            raise UsageError(f"unknown pass {name!r}{nearest(name, PASSES)} (known: {', '.join(PASSES)})")


def compile_graph(
    graph: OperatorGraph,
    model: ComputeModel,
    judge: Judge,
    passes: Sequence[str] = INDUCTOR,
    cores: int = 1,
    capacity: int = 0,
) -> Compiled:
    """Run *passes* over *graph*, which stays as it is.

    model  decides whether a rewrite pays; *judge* gives the time of a whole graph and what binds it, for the reports.
    cores  of the chip that is compiled for; *capacity* bytes of its memory, 0 if that is not known.
    Raises UsageError for an unknown pass.
    """
    check_passes(passes)
    prices = Prices(model, cores, capacity)
    reports = []
    state = _state(graph, judge)
    for name in passes:
        found = PASSES[name](graph, prices)
        after = state if found.operators == graph.operators else _state(found, judge)
        reports.append(PassReport(name, state, after, *_change(graph, found)))
        graph, state = found, after
    return Compiled(graph, tuple(reports))


def _state(graph: OperatorGraph, judge: Judge) -> State:
    time, bound = judge(graph)
    used = {tensor.storage for op in graph for tensor in (*op.inputs, *op.outputs)}
    resident = sum(each.nbytes for each in graph.storages if each.role.resident and each.id in used)
    return State(len(graph), sum(op.nbytes for op in graph), time, bound, resident)


def _change(before: OperatorGraph, after: OperatorGraph) -> tuple[tuple[tuple[str, int], ...], ...]:
    """Operators that only the new graph has; where there are none, those that only the old one has."""
    old, new = Counter(map(_label, before)), Counter(map(_label, after))
    made = new - old
    gone = Counter[str]() if made else old - new
    return tuple(made.most_common()), tuple(gone.most_common())


def _label(op: Operator) -> str:
    """Module and operator, with ``*`` for the index of a repeated layer."""
    target = op.target.removeprefix("aten.").removeprefix("xpusim.").removeprefix(PREFIX).removesuffix(".rows")
    module = _INDEX.sub("*", op.module)
    label = f"{module}/{target}" if module else target
    return label if op.phase is Phase.FORWARD else f"{label} ({op.phase})"
