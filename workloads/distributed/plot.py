"""The two figures of the chapter: what a rank sends over the degree, and what slow links cost."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from frontends import trace_training_step
from hw_models import load_chip, load_system
from hw_models.interconnect import Collectives
from simulator.dims import CollectiveDims
from simulator.graph import OperatorGraph
from simulator.links import Demand
from simulator.parallel.need import Needs
from simulator.parallel.plan import Plan, parse_plan
from simulator.parallel.played import Network
from simulator.parallel.run import kind_of, machine
from simulator.parallel.shard import shard
from simulator.parallel.stage import Stage
from simulator.system import System
from workloads.distributed.estimates import gradient_payload, ring_share, tensor_payload
from workloads.gpt.presets import preset
from workloads.gpt.program import program

SENT_MODEL, SEQ, REPLICAS = "llama-8b", 4096, 8
DATA_RANKS, TENSOR_RANKS = (2, 8, 64), (2, 4, 8)  # that are traced
LOST_MODEL, SYSTEM, BATCH, LIMIT = "llama-70b", "dgx-h200x16", 256, 0.05
LOST_PLAN = parse_plan("dp=4,tp=8,pp=4,sp", zero=1, precision="mixed")
_FACTORS = tuple(2.0**each for each in range(-2, 4))  # of the bandwidth that the system has
_KINDS = {"tp": ("tensor", "#2563eb"), "dp": ("data", "#c2410c"), "pp": ("pipeline", "#15803d")}
_INK, _GRID, _PALE = "#111827", "#e5e7eb", "#9ca3af"


def training_graph(model: str) -> OperatorGraph:
    """Return one step of the preset *model* in bf16 on one device, one sequence of SEQ tokens."""
    made = program(preset(model), "train", 1, SEQ)
    loss, workload = made.loss, made.workload
    return trace_training_step(made.module, made.args, made.kwargs, loss=loss, workload=workload, dtype="bf16")


def sent(stages: Sequence[Stage], plan: Plan) -> Counter[str]:
    """Return the bytes that a rank of *plan* sends for all-reduces, as rings, in a step of one microbatch."""
    found: Counter[str] = Counter()
    for op in (op for stage in stages for graph in (stage.forward, stage.last_backward) for op in graph):
        if isinstance(op.dims, CollectiveDims) and op.dims.pattern == "all_reduce":
            kind = kind_of(plan, op.dims.pattern, op.group)
            found[kind] += round(2 * ring_share(len(op.group)) * op.dims.nbytes)
    return found


def draw_sent(graph: OperatorGraph) -> Figure:
    """Bytes of one rank over its degree: closed forms as lines, *graph* divided by the plan as points."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    data, tensor = figure.subplots(1, 2, sharey=True)
    figure.suptitle(f"Sent by one rank in a step of {SENT_MODEL}, bf16, {SEQ:,} tokens a replica")
    _data_panel(data, graph)
    _tensor_panel(tensor, graph)
    data.set_ylabel("GB sent by a rank")
    for axes in (data, tensor):
        axes.set_ylim(0, 42)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.grid(color=_GRID)
        axes.legend(frameon=False)
    return figure


def _data_panel(axes: Axes, graph: OperatorGraph) -> None:
    payload, degrees = gradient_payload(preset(SENT_MODEL)), [2**each for each in range(1, 8)]
    color = _KINDS["dp"][1]
    axes.plot(degrees, [_ring(n, payload) for n in degrees], color=color, label="gradients: 2 (n - 1) / n x 2 P")
    axes.axhline(2 * payload / 1e9, color=_PALE, ls=":", label="any number of ranks: 4 P")
    traced = [_traced(graph, Plan(dp=n))["dp"] for n in DATA_RANKS]
    axes.plot(DATA_RANKS, [each / 1e9 for each in traced], "o", color=color, label="traced")
    axes.set_title("data parallel", loc="left")
    axes.set_xlabel("replicas n")


def _tensor_panel(axes: Axes, graph: OperatorGraph) -> None:
    config, degrees = preset(SENT_MODEL), [1, 2, 4, 8]
    whole = gradient_payload(config)
    (_, blue), (_, red) = _KINDS["tp"], _KINDS["dp"]
    sums = tensor_payload(config, SEQ)
    axes.plot(degrees, [_ring(t, sums) for t in degrees], color=blue, label="sums of layers: 2 (t - 1) / t x 8 L T h")
    divided = [_ring(REPLICAS, whole / t) for t in degrees]
    axes.plot(degrees, divided, color=red, label=f"gradients over {REPLICAS} replicas, P / t each")
    kept = [_ring(REPLICAS, gradient_payload(config, t)) for t in degrees]
    axes.plot(degrees, kept, color=red, ls="--", label="the same, vocabulary whole on every rank")
    traced = [_traced(graph, Plan(dp=REPLICAS, tp=t)) for t in TENSOR_RANKS]
    axes.plot(TENSOR_RANKS, [each["tp"] / 1e9 for each in traced], "o", color=blue, label="sums, traced")
    axes.plot(TENSOR_RANKS, [each["dp"] / 1e9 for each in traced], "o", color=red, label="gradients, traced")
    axes.set_title(f"tensor parallel in each of {REPLICAS} replicas", loc="left")
    axes.set_xlabel("tensor parallel ranks t")


def _ring(ranks: int, payload: float) -> float:
    """GB that a rank sends for an all-reduce of *payload* bytes."""
    return 2 * ring_share(ranks) * payload / 1e9


def _traced(graph: OperatorGraph, plan: Plan) -> Counter[str]:
    return sent(shard(graph, plan), plan)


class Losses(Needs):
    """What each parallelism loses at other bandwidths, as `xpusim links` counts it."""

    def over(self, factors: Sequence[float]) -> dict[tuple[str, str], list[float]]:
        """Return (parallelism, level) -> share of the time lost with each of *factors* of the level's bandwidth."""
        return {each: self._losses(*each, factors) for each in self._used()}

    def _losses(self, kind: str, level: str, factors: Sequence[float]) -> list[float]:
        best = self._time(kind, level, math.inf)
        return [self._time(kind, level, factor) / best - 1 for factor in factors]


@dataclass(frozen=True, slots=True)
class Lost:
    """Share of the time lost at each of the *bandwidths* of a level, by (parallelism, level)."""

    system: System
    losses: Mapping[tuple[str, str], Sequence[float]]

    def bandwidths(self, level: str) -> list[float]:
        """Bytes a second of a chip in one direction, at which the losses were found."""
        return [factor * self.system.links[level].bandwidth for factor in _FACTORS]


def lost() -> Lost:
    """Play a step of LOST_MODEL by LOST_PLAN with links from a quarter to 8 times as fast as SYSTEM's."""
    system = load_system(SYSTEM)
    on = machine(system, load_chip(system.chip), _network)
    stages = shard(training_graph(LOST_MODEL), LOST_PLAN)
    return Lost(system, Losses(stages, LOST_PLAN, on, BATCH, LIMIT).over(_FACTORS))


def _network(system: System) -> Network:
    known = Collectives(system)

    def price(pattern: str, nbytes: int, ranks: Sequence[int]) -> Demand:
        return known.predict(pattern, nbytes, ranks).best.demand if nbytes else Demand(0)

    return price


def draw_lost(found: Lost) -> Figure:
    """Time lost over the bandwidth of a chip, a line for each parallelism; marked is what the system has."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    for (kind, level), losses in found.losses.items():
        name, color = _KINDS[kind]
        percents = [100 * each for each in losses]
        bandwidths = [each / 1e9 for each in found.bandwidths(level)]
        axes.plot(bandwidths, percents, color=color, marker=".", label=f"{name} parallelism over {level}")
        has = _FACTORS.index(1.0)
        axes.plot(bandwidths[has], percents[has], "D", color=color, ms=9)
        axes.annotate(f"  {level} as it is: {percents[has]:.2g} %", (bandwidths[has], percents[has]), va="bottom")
    axes.axhline(100 * LIMIT, color=_INK, ls="--", lw=1, label=f"{100 * LIMIT:.0f} %")
    axes.set(xscale="log", yscale="log", ylim=(0.005, 300))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("GB/s of a chip in one direction")
    axes.set_ylabel("time lost, % of a step with infinitely wide links")
    degrees = f"dp={LOST_PLAN.dp}, tp={LOST_PLAN.tp}, pp={LOST_PLAN.pp}, sp"
    title = f"{LOST_MODEL} on {found.system.chips} chips of {found.system.name}, {degrees}, ZeRO-{LOST_PLAN.zero}"
    axes.set_title(title, loc="left")
    axes.grid(color=_GRID)
    axes.legend(frameon=False)
    return figure
