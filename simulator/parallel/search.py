"""Plans estimated from what one layer costs: which fit, and which are fast.

A layer is divided and played once for each way of dividing it (tp, sp, microbatch, recomputation); a plan is then so
many of them in a pipeline, by closed form.  The best are to be played in full.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from simulator.errors import UsageError
from simulator.graph import OperatorGraph
from simulator.links import Demand
from simulator.parallel.plan import Plan
from simulator.parallel.played import Network, Player
from simulator.parallel.run import Machine, kind_of, kinds_of
from simulator.parallel.shard import shard
from simulator.parallel.stage import Stage

Tracer = Callable[[int], OperatorGraph]  # a training step of so many sequences, of a model of few layers


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a plan comes to by closed form; picoseconds and bytes of the fullest rank."""

    plan: Plan
    time: int
    bubble: int
    exposed: int
    memory: int


class _Part(NamedTuple):
    """Time and bytes of one layer, or of what the first and last stages have beside their layers."""

    forward: int
    backward: int
    exposed: int
    optimizer: int
    weights: int
    gradients: int
    states: int
    kept: int
    peak: int

    def less(self, other: "_Part") -> "_Part":
        return _Part(*(max(0, one - two) for one, two in zip(self, other, strict=True)))

    def plus(self, other: "_Part") -> "_Part":
        """Both; their peaks are at different times."""
        both = _Part(*(one + two for one, two in zip(self, other, strict=True)))
        return both._replace(peak=max(self.peak, other.peak))


@dataclass(frozen=True, slots=True)
class _Layers:
    """One layer, and what embedding and head add to it, and *both* on one stage; *sent* bytes between stages."""

    layer: _Part
    first: _Part
    last: _Part
    both: _Part
    sent: int


@dataclass
class Estimator:
    """Estimates plans of a model of *layers*, of which *trace* gives a few, for *batch* sequences a step."""

    on: Machine
    trace: Tracer
    layers: int
    batch: int
    _graphs: dict[int, OperatorGraph] = field(default_factory=dict, repr=False)
    _parts: dict[Plan, _Layers] = field(default_factory=dict, repr=False)
    _whole: dict[tuple[int, int], Stage] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.network: Network = self.on.network

    def estimate(self, plan: Plan) -> Estimate:
        """Time and memory of *plan*, by closed form."""
        found = self._layers_of(plan)
        microbatches = self.batch // (plan.dp * plan.microbatch)
        own = -(-self.layers // plan.pp)
        slow = _slowest(plan, found)
        forward, backward = own * found.layer.forward + slow.forward, own * found.layer.backward + slow.backward
        gathers = self._zero3(plan, found, own, forward, backward) if plan.zero == 3 else 0
        send = self._send(plan, found.sent)
        passes = forward + backward + gathers
        bubble = (plan.pp - 1) * (passes // plan.interleave + 2 * send) if plan.pp > 1 else 0
        sending = 2 * send * (plan.interleave - 1) * microbatches
        tail = self._reduction(plan, found, own, backward)
        optimizer = (own * found.layer.optimizer + slow.optimizer) // (plan.dp if plan.zero else 1)
        exposed = microbatches * (own * found.layer.exposed + slow.exposed + gathers) + tail + sending
        time = microbatches * passes + bubble + sending + tail + optimizer
        return Estimate(plan, time, bubble, exposed, self._memory(plan, found, own, microbatches))

    def _layers_of(self, plan: Plan) -> _Layers:
        """What a layer costs divided as in *plan*, data parallelism and schedule left out."""
        alike = Plan(
            dp=plan.ep, ep=plan.ep, tp=plan.tp, sp=plan.sp, microbatch=plan.microbatch, recompute=plan.recompute,
            precision=plan.precision,
        )  # fmt: skip
        if alike not in self._parts:
            if plan.microbatch not in self._graphs:
                self._graphs[plan.microbatch] = self.trace(plan.microbatch)
            graph = self._graphs[plan.microbatch]
            deep = replace(alike, pp=_depth(graph))
            stages = shard(graph, deep)
            player = Player(self.on.prices, self._first_stage(deep), kinds_of(deep), self.on.held)
            first, layer, last = (_played(player, stages[index]) for index in (0, 1, -1))
            ends = first.less(layer), last.less(layer)
            both = self._on_one_stage(alike, graph, layer, ends[0].plus(ends[1]))
            self._parts[alike] = _Layers(layer, *ends, both, stages[0].send_bytes)
        return self._parts[alike]

    def _on_one_stage(self, plan: Plan, graph: OperatorGraph, layer: _Part, both: _Part) -> _Part:
        """*both* ends on one stage, where a head that is the embedding is held once."""
        key = (plan.tp, plan.ep)
        if key not in self._whole:
            self._whole[key] = shard(graph, plan)[0]
        whole, depth = self._whole[key], _depth(graph)
        return both._replace(
            weights=whole.weight_bytes - depth * layer.weights,
            gradients=whole.gradient_bytes - depth * layer.gradients,
            states=whole.optimizer_bytes - depth * layer.states,
        )

    def _first_stage(self, plan: Plan) -> Network:
        """The network where every layer lies on the first ranks; what stages send each other is counted elsewhere."""
        across = plan.tp * plan.dp

        def price(pattern: str, nbytes: int, ranks: Sequence[int]) -> Demand:
            if kind_of(plan, pattern, ranks) == "pp":
                return Demand(0)
            offset = ranks[0] // across * across
            return self.network(pattern, nbytes, [rank - offset for rank in ranks])

        return price

    def _send(self, plan: Plan, nbytes: int) -> int:
        if plan.pp == 1:
            return 0
        return self.network("send_recv", nbytes, (0, plan.tp * plan.dp)).alone

    def _reduction(self, plan: Plan, found: _Layers, own: int, backward: int) -> int:
        """Of the gradients, after the last backward pass; with zero=1|2 the weights are gathered once more."""
        if plan.dp == 1 or plan.zero == 3:
            return 0
        ranks = plan.ranks_of("dp")
        pattern = "reduce_scatter" if plan.zero else "all_reduce"
        each = self.network(pattern, max(1, found.layer.gradients), ranks).alone
        tail = max(each, own * each - backward * (own - 1) // own)
        tail += self._slowing(own * each - tail)
        if plan.zero:
            tail += own * self.network("all_gather", max(1, found.layer.weights), ranks).alone
        return tail

    def _zero3(self, plan: Plan, found: _Layers, own: int, forward: int, backward: int) -> int:
        """What gathering weights in both passes and scattering gradients adds to a microbatch."""
        ranks = plan.ranks_of("dp")
        gather = self.network("all_gather", max(1, found.layer.weights), ranks).alone
        scatter = self.network("reduce_scatter", max(1, found.layer.gradients), ranks).alone
        exposed = max(gather, own * gather - forward) + max(scatter, own * (gather + scatter) - backward)
        return exposed + self._slowing(own * (2 * gather + scatter) - exposed)

    def _slowing(self, hidden: int) -> int:
        """What computing loses to the kernels of *hidden* collectives that run beside it."""
        return round(max(0, hidden) * self.on.held / (1 - self.on.held))

    def _memory(self, plan: Plan, found: _Layers, own: int, microbatches: int) -> int:
        """Of the fullest rank: the first has most microbatches in flight, the last the logits."""
        return max(
            self._rank(plan, found, own, found.first, _flying(plan, microbatches, 0)),
            self._rank(plan, found, own, found.last, _flying(plan, microbatches, plan.pp - 1)),
        )

    def _rank(self, plan: Plan, found: _Layers, own: int, more: _Part, flying: float) -> int:
        layer = found.layer
        more = found.both if plan.pp == 1 else more
        weights, gradients = own * layer.weights + more.weights, own * layer.gradients + more.gradients
        states, kept = own * layer.states + more.states, own * layer.kept + more.kept
        passing = layer.peak + more.peak - layer.kept - more.kept
        shares = [plan.dp if plan.zero >= stage else 1 for stage in (3, 2, 1)]
        model = weights // shares[0] + gradients // shares[1] + states // shares[2]
        return model + round(kept * flying) + max(0, passing) + self.on.library


def _slowest(plan: Plan, found: _Layers) -> _Part:
    """What the slowest stage has beside its layers."""
    if plan.pp == 1:
        return found.both
    return max(found.first, found.last, key=lambda each: each.forward + each.backward)


def _flying(plan: Plan, microbatches: int, rank: int) -> float:
    """Microbatches in flight on stage *rank*: all with gpipe, one for each stage from here on with 1F1B."""
    if plan.schedule == "gpipe":
        return microbatches
    if plan.interleave == 1:
        return min(microbatches, plan.pp - rank)
    warm = 2 * (plan.pp - rank - 1) + (plan.interleave - 1) * plan.pp + 1
    return min(microbatches, warm / plan.interleave)


def _depth(graph: OperatorGraph) -> int:
    from simulator.parallel.roles import shape_of  # noqa: PLC0415

    layers = shape_of(graph).layers
    if layers < 3:
        raise UsageError(f"the search needs a model of three layers or more, got {layers}")
    return layers


def _played(player: Player, stage: Stage) -> _Part:
    forward, backward = player.play(stage.forward), player.play(stage.backward)
    waits = sum(forward.exposed.values()) + sum(backward.exposed.values())
    peak = max(stage.peak_forward_bytes, stage.peak_backward_bytes)
    return _Part(
        forward.time, backward.time, waits, player.play(stage.optimizer).time, stage.weight_bytes,
        stage.gradient_bytes, stage.optimizer_bytes, stage.activation_bytes, peak,
    )  # fmt: skip
