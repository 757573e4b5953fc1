"""What binds a run of a server: the time of its steps by resource, each kind of step judged by replay."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from simulator.costs import ComputeModel, compute_model
from simulator.engine import play
from simulator.hardware import Chip
from simulator.program import Mode, place
from simulator.serving.composed import StepShape, compose
from simulator.serving.family import Family
from simulator.variants import INFINITE, Resource, scaled
from simulator.verdict import operator_bounds, seconds_by_resource
from workloads.inference.times import StepTimes

_JUDGED = 0.97  # of the time of all steps: the rest is bound as these are


@dataclass(slots=True)
class Judge:
    """Divides the time of a step by what binds its operators; one set of models for all steps."""

    family: Family
    chip: Chip
    mode: Mode
    fidelity: str
    _models: dict[Resource | None, ComputeModel] = field(default_factory=dict)

    def shares(self, times: StepTimes, shape: StepShape) -> dict[Resource, float]:
        """Part of a step of that *shape* by resource; they add up to one."""
        graph = compose(self.family, shape, times.cache)
        costs = self._model(None).costs(graph)
        without = {resource: self._model(resource).costs(graph) for resource in Resource}
        around = scaled(self.chip, Resource.LAUNCH, INFINITE) if self._model(None).ideal else self.chip
        schedule = play(graph, costs, around, place(graph, costs, around, self.mode))
        found = seconds_by_resource(graph, costs, schedule, operator_bounds(costs, without), self.chip)
        return {resource: time / max(1, schedule.makespan) for resource, time in found.items()}

    def _model(self, resource: Resource | None) -> ComputeModel:
        if resource not in self._models:
            chip = self.chip if resource is None else scaled(self.chip, resource, INFINITE)
            self._models[resource] = compute_model(self.fidelity, chip)
        return self._models[resource]


def step_bounds(times: StepTimes, spent: Mapping[StepShape, int] | None = None) -> dict[Resource, int]:
    """Picoseconds of all steps that *times* has timed (or *spent*), by the resource that binds their operators."""
    spent = times.spent if spent is None else spent
    judge = Judge(times.family, times.chip, times.mode, times.fidelity)
    total, judged = sum(spent.values()), 0
    parts = dict.fromkeys(Resource, 0.0)
    for shape, time in sorted(spent.items(), key=lambda item: -item[1]):
        if judged >= _JUDGED * total:
            break
        judged += time
        for resource, share in judge.shares(times, shape).items():
            parts[resource] += share * time
    whole = sum(parts.values()) or 1.0
    return {resource: round(total * part / whole) for resource, part in parts.items()}
