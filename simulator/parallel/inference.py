"""One inference step of a parallel plan: every rank does its share of each layer, replicas share the batch."""

from collections import Counter
from dataclasses import replace

from simulator.graph import OperatorGraph, Role
from simulator.memory import library_workspace, memory_timeline
from simulator.parallel.links import STEP, elasticity, wider
from simulator.parallel.memory import RankMemory
from simulator.parallel.plan import Plan
from simulator.parallel.played import NOTHING, Network, Player
from simulator.parallel.result import Run
from simulator.parallel.run import Machine, kinds_of
from simulator.parallel.step import Part, Step, play_step


def inference_run(graph: OperatorGraph, plan: Plan, on: Machine, flops: int) -> Run:
    """Play *graph*, one rank's share of the step of one replica, of *flops* model FLOPs over all its ranks."""
    step = _step(graph, plan, on, on.network)
    more = {
        name: elasticity(step.time, _step(graph, plan, on, on.networks(wider(on.system, name, STEP))).time)
        for name, level in on.system.levels
        if level.members > 1
    }
    traced = graph.workload
    whole = replace(traced, batch=traced.batch * plan.dp, tokens=traced.tokens * plan.dp)
    return Run(whole, on.system, on.chip, plan, flops * plan.dp, step, [_memory(graph, on)], more)


def _step(graph: OperatorGraph, plan: Plan, on: Machine, network: Network) -> Step:
    played = Player(on.prices, network, kinds_of(plan), on.held).play(graph)
    step = play_step([Part(played, NOTHING, NOTHING, NOTHING)], "gpipe", 1, 1)
    exposed = Counter(step.exposed)
    exposed["tp"] += exposed.pop("dp", 0)  # what goes on after the last operator gathers logits: there are no gradients
    return replace(step, exposed=dict(exposed))


def _memory(graph: OperatorGraph, on: Machine) -> RankMemory:
    """Weights, and cache and activations at their fullest."""
    library = library_workspace(graph, on.chip, captured=True)
    peak = memory_timeline(graph, range(len(graph))).peak
    weights = graph.bytes_of(Role.WEIGHT) + graph.bytes_of(Role.BUFFER)
    return RankMemory(weights, 0, 0, max(0, peak - weights), library, on.chip.dram.capacity, 1)
