"""One pass of one stage on one rank: computing units and streams of collectives side by side, and what held it up."""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from simulator.costs import Cost, compute_model
from simulator.dims import CollectiveDims
from simulator.engine import Schedule, play
from simulator.graph import Operator, OperatorGraph, OpKind
from simulator.hardware import Chip
from simulator.links import Demand
from simulator.program import Mode, Program, place
from simulator.variants import INFINITE, Resource, scaled
from simulator.verdict import operator_bounds

Network = Callable[[str, int, Sequence[int]], Demand]  # pattern, bytes as NCCL's tests count them, ranks
Kinds = Callable[[Operator], str]  # which parallelism a collective serves: dp, tp, pp, ep
_ROUNDS = 2  # of finding out what runs beside what: a third changes nothing that can be seen
_COMPUTING = (Resource.COMPUTE, Resource.BANDWIDTH, Resource.LAUNCH, Resource.CAPACITY)


@dataclass(frozen=True, slots=True)
class Played:
    """One pass; times in picoseconds.

    time     until the last computing operator ends: then its result can be sent on.
    after    for which collectives go on after that (gradients).
    bounds   what the time went to; adds up to *time*.
    exposed  of it, waits for collectives, by parallelism; adds up to ``bounds[INTERCONNECT]``.
    alone    what the collectives would take one after the other, by parallelism; *volume* their payload in bytes.
    """

    time: int
    after: int
    bounds: Mapping[Resource, int]
    exposed: Mapping[str, int]
    alone: Mapping[str, int]
    volume: Mapping[str, int]


NOTHING = Played(0, 0, dict.fromkeys(Resource, 0), {}, {}, {})


@dataclass(frozen=True, slots=True)
class Priced:
    """Costs of the operators of one graph, and what binds each."""

    costs: Sequence[Cost]
    bounds: Sequence[Resource]


@dataclass
class Prices:
    """What operators cost on *chip* when nobody sends anything: the same whatever the network."""

    chip: Chip
    fidelity: str = "tile"
    mode: Mode = Mode.GRAPH
    _known: dict[Hashable, Priced] = field(default_factory=dict, repr=False)
    _seen: dict[int, tuple[OperatorGraph, Priced]] = field(default_factory=dict, repr=False)  # graphs, kept alive

    def __post_init__(self) -> None:
        self._model = compute_model(self.fidelity, self.chip)
        self._without = {
            resource: compute_model(self.fidelity, scaled(self.chip, resource, INFINITE)) for resource in _COMPUTING
        }
        self.around = scaled(self.chip, Resource.LAUNCH, INFINITE) if self._model.ideal else self.chip

    def of(self, graph: OperatorGraph) -> Priced:
        """Price *graph*, or remember what it or an equal one costs."""
        if id(graph) not in self._seen:
            self._seen[id(graph)] = (graph, self._priced(graph))
        return self._seen[id(graph)][1]

    def _priced(self, graph: OperatorGraph) -> Priced:
        signature = _signature(graph)
        if signature not in self._known:
            costs = self._model.costs(graph)
            bounds = operator_bounds(costs, {each: model.costs(graph) for each, model in self._without.items()})
            self._known[signature] = Priced(costs, bounds)
        return self._known[signature]


@dataclass
class Player:
    """Plays passes, each different one once.

    network  what a collective asks of the links; *kinds* which parallelism it serves.
    held     share of the chip's cores that a collective's kernels hold while they run.
    """

    prices: Prices
    network: Network
    kinds: Kinds
    held: float = 0.0
    _known: dict[Hashable, Played] = field(default_factory=dict, repr=False)

    def play(self, graph: OperatorGraph) -> Played:
        """Play *graph*; an empty one takes no time."""
        if not len(graph):
            return NOTHING
        demands = {op.id: self._demand(op) for op in graph if op.kind is OpKind.COLLECTIVE}
        priced = self.prices.of(graph)
        asked = tuple((index, each.fixed, tuple(each.busy.items())) for index, each in demands.items())
        key = (id(priced), asked)
        if key not in self._known:
            self._known[key] = self._play(graph, priced, demands)
        return self._known[key]

    def _demand(self, op: Operator) -> Demand:
        assert isinstance(op.dims, CollectiveDims)
        pattern = "send_recv" if op.dims.pattern in ("send", "recv") else op.dims.pattern
        return self.network(pattern, op.dims.nbytes, op.group)

    def _play(self, graph: OperatorGraph, priced: Priced, demands: Mapping[int, Demand]) -> Played:
        prices = self.prices
        program = self._split(graph, place(graph, priced.costs, prices.around, prices.mode))
        schedule, costs = play(graph, priced.costs, prices.around, program, demands), priced.costs
        for _ in range(_ROUNDS if self.held and demands else 0):
            costs = slowed(priced.costs, schedule, demands, self.held)
            schedule = play(graph, costs, prices.around, program, demands)
        computing = [op.id for op in graph if op.id not in demands]
        kinds = {index: self.kinds(graph.operators[index]) for index in demands}
        time = max((schedule.end[index] for index in computing), default=0)
        spent, exposed = _account(graph, schedule, computing, priced.bounds, kinds)
        alone: Counter[str] = Counter()
        volume: Counter[str] = Counter()
        for index, demand in demands.items():
            alone[kinds[index]] += demand.alone
            dims = graph.operators[index].dims
            assert isinstance(dims, CollectiveDims)
            volume[kinds[index]] += dims.nbytes
        return Played(time, schedule.makespan - time, spent, exposed, alone, volume)

    def _split(self, graph: OperatorGraph, program: Program) -> Program:
        """*program* with collectives in a queue for each parallelism, beside the computing ones."""
        queues: dict[str, list[int]] = {}
        for name, queue in program.queues.items():
            for index in queue:
                op = graph.operators[index]
                own = f"{self.kinds(op)} collectives" if op.kind is OpKind.COLLECTIVE else name
                queues.setdefault(own, []).append(index)
        return Program(queues, program.gap, program.host_start, program.host_steps, program.prefetch)


def slowed(costs: Sequence[Cost], schedule: Schedule, demands: Mapping[int, Demand], held: float) -> Sequence[Cost]:
    """*costs* where a share *held* of the cores is gone as long as collectives are under way, as in *schedule*.

    What memory holds up anyway is not slowed.
    """
    flights = sorted((schedule.start[index], schedule.end[index]) for index in demands)
    found, first = list(costs), 0
    for index in sorted((each for each in range(len(costs)) if each not in demands), key=schedule.start.__getitem__):
        start, end, cost = schedule.start[index], schedule.end[index], costs[index]
        while first < len(flights) and flights[first][1] <= start:
            first += 1
        beside, reached = 0, start
        for begin, until in flights[first:]:
            if begin >= end:
                break
            beside += max(0, min(end, until) - max(reached, begin))
            reached = max(reached, min(end, until))
        if beside and cost.compute > cost.memory:
            longer = round(cost.time * held / (1 - held) * beside / (end - start))
            found[index] = replace(cost, time=cost.time + longer, compute=cost.compute + longer)
    return found


def _account(
    graph: OperatorGraph,
    schedule: Schedule,
    computing: Sequence[int],
    bounds: Sequence[Resource],
    kinds: Mapping[int, str],
) -> tuple[dict[Resource, int], dict[str, int]]:
    """(time by resource, exposed communication by parallelism) up to the last computing operator.

    Where nothing computes, the operator that comes next waits: for a collective as long as that runs, else for its
    launch.  Where several units compute, the one that ends first counts.
    """
    spent: dict[Resource, int] = dict.fromkeys(Resource, 0)
    exposed: dict[str, int] = {}
    reached = 0
    for index in sorted(computing, key=lambda each: (schedule.end[each], each)):
        start, end = schedule.start[index], schedule.end[index]
        if start > reached:
            last = max(
                (dep for dep in graph.operators[index].deps if dep in kinds),
                key=lambda dep: schedule.end[dep],
                default=None,
            )
            waits = 0 if last is None else max(0, min(start, schedule.end[last]) - reached)
            if last is not None and waits:
                exposed[kinds[last]] = exposed.get(kinds[last], 0) + waits
            spent[Resource.INTERCONNECT] += waits
            spent[Resource.LAUNCH] += start - reached - waits
        if end > reached:
            spent[bounds[index]] += end - max(start, reached)
            reached = end
    return spent, exposed


def _signature(graph: OperatorGraph) -> Hashable:
    """Equal for graphs that cost equally much: stages of the same layers, whichever ranks they lie on."""
    first: dict[int, int] = {}  # storages by order of first use: what is still in the cache depends on them
    return tuple(
        (
            op.target,
            op.kind,
            op.phase,
            op.dtype,
            op.dims,
            op.flops,
            op.reads,
            op.writes,
            op.deps,
            tuple(first.setdefault(each.storage, len(first)) for each in chain(op.inputs, op.outputs)),
        )
        for op in graph
    )
