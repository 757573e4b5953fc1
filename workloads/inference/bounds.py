"""What binds a run of a server: the time of its steps by resource, each kind of step judged by replay."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from simulator.costs import ComputeModel, Cost, compute_model
from simulator.engine import play
from simulator.graph import Operator, OperatorGraph
from simulator.program import place
from simulator.serving.composed import StepShape, compose
from simulator.serving.fold import Folded
from simulator.variants import INFINITE, Resource, scaled
from simulator.verdict import operator_bounds, seconds_by_resource
from workloads.inference.times import StepTimes

_JUDGED = 0.97  # of the time of all steps: the rest is bound as these are


@dataclass(slots=True)
class Judge:
    """Divides a step of *times* by what binds its operators; one set of models for all steps."""

    times: StepTimes
    _models: dict[Resource | None, ComputeModel] = field(default_factory=dict)

    def shares(self, shape: StepShape) -> dict[Resource, float]:
        """Part of a step of that *shape* by resource; they add up to one.

        Where times add up, equal layers are judged once; gaps between operators are launch time.
        """
        return self._added(shape) if self.times.adds_up else self._played(shape)

    def _added(self, shape: StepShape) -> dict[Resource, float]:
        folded = self.times.folded
        graph = compose(folded.family, shape, self.times.cache)
        costs, bounds = self._judged(graph)
        counted = zip(folded.family.first, folded.times, strict=True)
        counts = [count for op, count in counted for _ in _made(folded, op, shape)]
        found = dict.fromkeys(Resource, 0)
        for cost, bound, count in zip(costs, bounds, counts, strict=True):
            found[bound] += count * cost.time
            found[Resource.LAUNCH] += count * self.times.gap
        return _normal(found)

    def _played(self, shape: StepShape) -> dict[Resource, float]:
        times = self.times
        graph = times.graph(shape)
        costs, bounds = self._judged(graph)
        around = scaled(times.chip, Resource.LAUNCH, INFINITE) if self._model(None).ideal else times.chip
        schedule = play(graph, costs, around, place(graph, costs, around, times.mode))
        return _normal(seconds_by_resource(graph, costs, schedule, bounds, times.chip))

    def _judged(self, graph: OperatorGraph) -> tuple[Sequence[Cost], list[Resource]]:
        """Costs of the operators and what binds each."""
        costs = self._model(None).costs(graph)
        without = {resource: self._model(resource).costs(graph) for resource in Resource}
        return costs, operator_bounds(costs, without)

    def _model(self, resource: Resource | None) -> ComputeModel:
        if resource not in self._models:
            chip = self.times.chip if resource is None else scaled(self.times.chip, resource, INFINITE)
            self._models[resource] = compute_model(self.times.fidelity, chip)
        return self._models[resource]


def _made(folded: Folded, op: Operator, shape: StepShape) -> range:
    """As many as operators that *op* becomes: attention is one kernel for decodes and one for chunks."""
    return range(len(shape.attention) if op.id in folded.family.attention else 1)


def _normal(found: dict[Resource, int]) -> dict[Resource, float]:
    whole = max(1, sum(found.values()))
    return {resource: time / whole for resource, time in found.items()}


def step_bounds(times: StepTimes, spent: Mapping[StepShape, int] | None = None) -> dict[Resource, int]:
    """Picoseconds of all steps that *times* has timed (or *spent*), by the resource that binds their operators."""
    spent = times.spent if spent is None else spent
    judge = Judge(times)
    total, judged = sum(spent.values()), 0
    parts = dict.fromkeys(Resource, 0.0)
    for shape, time in sorted(spent.items(), key=lambda item: -item[1]):
        if judged >= _JUDGED * total:
            break
        judged += time
        for resource, share in judge.shares(shape).items():
            parts[resource] += share * time
    whole = sum(parts.values()) or 1.0
    return {resource: round(total * part / whole) for resource, part in parts.items()}
