"""A traced single-device graph becomes the graphs of one rank of a parallel plan; the model is not changed."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from simulator.errors import UsageError
from simulator.graph import OperatorGraph, Phase, Role, Tensor
from simulator.memory import lifetimes
from simulator.parallel.experts import expert_storages, shard_experts
from simulator.parallel.gathers import gathered
from simulator.parallel.gradients import accumulated, reduced
from simulator.parallel.plan import Plan
from simulator.parallel.recompute import recompute
from simulator.parallel.roles import shape_of
from simulator.parallel.stage import Stage
from simulator.parallel.stages import Part, split
from simulator.parallel.tensor import Sharded, shard_tensors
from simulator.parallel.updates import Shared, Update, Weight, optimizer, update_of


def shard(graph: OperatorGraph, plan: Plan, *, accumulate: bool = True) -> list[Stage]:
    """Return the stages of *plan*, in the order in which a microbatch passes them.

    graph       the training step of one microbatch, traced on one device (``trace_training_step``).
    accumulate  whether gradients are added to those of earlier microbatches.

    Raises UsageError if the plan does not divide the model, naming all faults at once, and for a graph without backward
    pass; GraphError for an optimizer that is not one fused operator.
    """
    plan.check(shape_of(graph))
    if not any(op.phase is Phase.BACKWARD for op in graph):
        raise UsageError(f"plan {plan}: the graph of {graph.workload.name} has no backward pass; trace a training step")
    update = update_of(graph)
    sharded = recompute(shard_experts(shard_tensors(graph, plan), plan), plan.recompute)
    experts = _names(sharded.graph, expert_storages(sharded.graph)) if plan.ep > 1 else frozenset[str]()
    parts = split(sharded, plan.chunks)
    tied = _tied(parts)
    return [
        _stage(
            index, part, plan, update, experts, _shared(index, sharded, tied, plan, update), sharded.notes, accumulate
        )
        for index, part in enumerate(parts)
    ]


def shard_inference(graph: OperatorGraph, plan: Plan) -> OperatorGraph:
    """Return the graph of one rank of *plan* for prefill or decode: tensor parallel, and expert parallel.

    Raises UsageError if the plan does not divide the model, or divides what an inference step does not have.
    """
    given = [
        f"{name} is for training" for name, on in (("pp", plan.pp > 1), ("sp", plan.sp), ("zero", plan.zero > 0)) if on
    ]
    if given:
        raise UsageError(f"plan {plan}: {'; '.join(given)}")
    plan.check(shape_of(graph))
    return shard_experts(shard_tensors(graph, plan), plan).graph


def _names(graph: OperatorGraph, storages: frozenset[int]) -> frozenset[str]:
    return frozenset(graph.storages[each].name for each in storages)


def _tied(parts: Sequence[Part]) -> dict[str, list[int]]:
    """Weights that more than one stage has (an embedding that is the head too), with those stages."""
    found: dict[str, list[int]] = {}
    for index, part in enumerate(parts):
        for each in {name for graph in (part.forward, part.backward) for name in _weights(graph)}:
            found.setdefault(each, []).append(index)
    return {name: stages for name, stages in found.items() if len(stages) > 1}


def _weights(graph: OperatorGraph) -> dict[str, Tensor]:
    """Weights that *graph* uses, flat, by name."""
    found: dict[str, Tensor] = {}
    for op in graph:
        for each in op.inputs:
            storage = graph.storages[each.storage]
            if storage.role is Role.WEIGHT and storage.name not in found:
                found[storage.name] = Tensor(storage.id, (storage.nbytes * 8 // each.dtype.bits,), each.dtype)
    return found


def _shared(
    index: int, sharded: Sharded, tied: dict[str, list[int]], plan: Plan, update: Update | None
) -> list[Shared]:
    """Gradients of stage *index* that are summed over tensor-parallel ranks, or over the stages that share a weight."""
    if update is None:
        return []
    ranks, (modules, times) = plan.ranks_of("tp", _rank(index, plan)), sharded.repeated
    heads = [name for weight, name in update.gradients.items() if weight.rpartition(".")[0] in modules]
    found = [Shared(ranks, _names(sharded.graph, sharded.partial)), Shared(ranks[:times], frozenset(heads))]
    for weight, stages in tied.items():
        if index in stages and weight in update.gradients:
            ends = tuple(dict.fromkeys(_rank(each, plan) for each in stages))
            found.append(Shared(ends, frozenset({update.gradients[weight]})))
    return found


def _rank(index: int, plan: Plan) -> int:
    """The first rank of the pipeline stage that chunk *index* stands on."""
    return plan.ranks_of("pp")[index % plan.pp]


def _stage(
    index: int,
    part: Part,
    plan: Plan,
    update: Update | None,
    experts: frozenset[str],
    shared: list[Shared],
    notes: tuple[str, ...],
    accumulate: bool,
) -> Stage:
    rank = _rank(index, plan)
    forward = _moved(part.forward, rank)
    backward = accumulated(_moved(part.backward, rank), plan.precision == "mixed", accumulate)
    own = _own(part, update, experts)
    if plan.zero == 3:
        forward = gathered(forward, part.forward_layers, plan, rank, experts)
        backward = gathered(backward, part.backward_layers, plan, rank, experts)
    last = reduced(backward, plan, rank, experts)
    closing = optimizer(update, own, plan, rank, shared, forward) if update else OperatorGraph(forward.workload)
    return Stage(
        index=index,
        layers=part.layers,
        forward=forward,
        backward=last if plan.zero > 1 else backward,
        last_backward=last,
        optimizer=closing,
        send_bytes=part.sent,
        weight_bytes=_bytes(Role.WEIGHT, forward, backward),
        gradient_bytes=_bytes(Role.GRADIENT, last),
        optimizer_bytes=_bytes(Role.OPTIMIZER, closing),
        activation_bytes=part.kept,
        peak_forward_bytes=peak_activations(forward),
        peak_backward_bytes=peak_activations(last),
        notes=notes,
    )


def _moved(graph: OperatorGraph, rank: int) -> OperatorGraph:
    """*graph* of the first stage's ranks on those of the stage that begins with *rank*."""
    if rank:
        for index, op in enumerate(graph.operators):
            if op.group:
                graph.operators[index] = replace(op, group=tuple(each + rank for each in op.group))
    return graph


def _own(part: Part, update: Update | None, experts: frozenset[str]) -> list[Weight]:
    """Weights of *part* that are trained."""
    found = {**_weights(part.backward), **_weights(part.forward)}
    trained = update.gradients if update else {}
    return [Weight(name, each.elements, each.dtype, name in experts) for name, each in found.items() if name in trained]


def _bytes(role: Role, *graphs: OperatorGraph) -> int:
    """Bytes of *role* in any of *graphs*, each name once."""
    return sum({each.name: each.nbytes for graph in graphs for each in graph.storages if each.role is role}.values())


def peak_activations(graph: OperatorGraph) -> int:
    """Most bytes of activations alive at once in one pass; what it did not make itself is there from its start."""
    count = len(graph)
    if not count:
        return 0
    first, last = lifetimes(graph, np.arange(count))
    made: set[int] = set()
    for op in graph:
        for each in op.inputs:
            if each.storage not in made:
                first[each.storage] = 0
        made |= {each.storage for each in op.outputs}
    change = np.zeros(count + 1, dtype=np.int64)
    for storage in graph.storages:
        if storage.role is Role.ACTIVATION and last[storage.id] >= 0:
            change[first[storage.id]] += storage.nbytes
            change[last[storage.id] + 1] -= storage.nbytes
    return int(np.cumsum(change).max())
