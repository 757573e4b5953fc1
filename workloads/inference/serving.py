"""A server of one model on a chip: memory shared out, requests served, the saturation point found, the run judged."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from simulator.errors import UsageError
from simulator.hardware import Chip
from simulator.serving.capacity import Capacity
from simulator.serving.clock import Link, Server, Timer
from simulator.serving.metrics import Objective, figures
from simulator.serving.records import Log
from simulator.serving.saturation import Saturation, engine_rate, link_rate
from simulator.serving.scheduler import Limits
from simulator.serving.sequence import Request
from simulator.serving.summary import Summary
from simulator.units import PS_PER_SECOND
from simulator.variants import INFINITE, Resource
from workloads.inference.bounds import step_bounds
from workloads.inference.speculate import Gains, Speculation, SpeculativeTimes
from workloads.inference.times import StepTimes

_SATURATING = 2000  # requests that find the saturation point; fewer come again and again


@dataclass(frozen=True, slots=True)
class Plan:
    """What serves.

    readers, writers  engines that read prompts and engines that decode; no writers: the readers do both.
    link              between the two pools.
    draft             times of the model that proposes, and how it is used.
    """

    model: str
    setting: str
    chip: Chip
    limits: Limits
    capacity: Capacity
    times: StepTimes
    readers: int = 1
    writers: int = 0
    link: Link | None = None
    draft: StepTimes | None = None
    speculation: Speculation | None = None
    seed: int = 0

    @property
    def timer(self) -> Timer:
        """Times of a step, the draft model's included."""
        if self.draft is None or self.speculation is None:
            return self.times
        return SpeculativeTimes(self.times, self.draft, self.speculation.tokens)

    def run(self, requests: Sequence[Request]) -> Log:
        """Serve *requests*."""
        gains = None if self.speculation is None else Gains(self.speculation, self.seed)
        return Server(self.limits, self.timer, self.readers, self.writers, self.link, gains).serve(requests)


def serve(plan: Plan, requests: Sequence[Request], slo: Objective | None = None) -> Summary:
    """Serve *requests* by *plan* and sum up; UsageError if none of them can be served at all."""
    everything = [plan.times] if plan.draft is None else [plan.times, plan.draft]
    for times in everything:
        times.spent.clear()
    log = plan.run(requests)
    if not log.served:
        reasons = "; ".join(f"{count:,} because {reason}" for reason, count in log.rejected.items())
        raise UsageError(f"no request can be served: {reasons}")
    bounds = dict.fromkeys(Resource, 0)
    for times in everything:
        for resource, time in step_bounds(times).items():
            bounds[resource] += time
    _recomputed(bounds, log)
    bounds[Resource.INTERCONNECT] += log.interconnect
    idle = max(0, log.end * len(log.tracks) - sum(bounds.values()))
    return Summary(
        model=plan.model,
        setting=plan.setting,
        chip=plan.chip,
        limits=plan.limits,
        capacity=plan.capacity,
        figures=figures(log, plan.limits, slo),
        log=log,
        bounds=bounds,
        idle=idle,
        offered=_offered(requests, len(log.served)),
        saturation=_saturation(plan, requests),
        slo=slo,
        link=plan.link,
    )


def _recomputed(bounds: dict[Resource, int], log: Log) -> None:
    """Move the part of the time in which lost positions were computed again to capacity."""
    part = log.recomputed / max(1, log.computed)
    for resource in Resource:
        if resource is not Resource.CAPACITY:
            moved = int(bounds[resource] * part)
            bounds[resource] -= moved
            bounds[Resource.CAPACITY] += moved


def _offered(requests: Sequence[Request], served: int) -> float | None:
    """Requests a second, those rejected left out; None if there is no time between the first and the last."""
    span = requests[-1].arrival - requests[0].arrival
    return (len(requests) - 1) * served / len(requests) * PS_PER_SECOND / span if span else None


def _saturation(plan: Plan, requests: Sequence[Request]) -> Saturation:
    """What *plan* serves when as many requests as possible always wait: its engines by a run, its link by bytes."""
    again = max(1, _SATURATING // len(requests))
    some = [replace(each, id=id, arrival=0) for id, each in enumerate([*requests[:_SATURATING]] * again)]
    link = plan.link and replace(plan.link, bandwidth=plan.link.bandwidth * INFINITE)
    log = replace(plan, link=link).run(some)
    engines, least = engine_rate(log)
    return Saturation(engines, least, link_rate(log, plan.link))
