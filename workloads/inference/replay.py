"""A served schedule played again: the same scheduler on the simulator's clock, step by step beside the device's."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Any

from simulator.hardware import Chip
from simulator.program import Mode
from simulator.serving import Limits, Request, Scheduler, Step
from simulator.units import PS_PER_SECOND
from workloads.inference.families import engine_family, packed
from workloads.inference.times import StepTimes

_US = PS_PER_SECOND // 10**6


@dataclass(frozen=True, slots=True)
class Played:
    """One step: whether its slices are those of the device's step, and its microseconds as measured and as simulated.

    replayed  it was a captured graph; otherwise its operators were launched one by one from Python.
    """

    same: bool
    replayed: bool
    measured: float
    simulated: float


@dataclass(frozen=True, slots=True)
class Replay:
    """All steps of one run; *extra* steps that only one of both sides had."""

    model: str
    scheme: str
    steps: tuple[Played, ...]
    extra: int

    @property
    def same(self) -> int:
        """Steps with the same slices."""
        return sum(step.same for step in self.steps)

    @property
    def captured(self) -> list[Played]:
        """Steps that were captured graphs."""
        return [step for step in self.steps if step.replayed]

    @property
    def error(self) -> float:
        """Mean absolute error of the captured steps, relative."""
        return mean(abs(step.simulated / step.measured - 1) for step in self.captured)

    @property
    def total(self) -> float:
        """Relative error of the time of all captured steps together."""
        return sum(step.simulated for step in self.captured) / sum(step.measured for step in self.captured) - 1


def replay(model: str, scheme: str, served: Mapping[str, Any], chip: Chip) -> Replay:
    """Serve the requests of *served*, which all wait from the start, and lay each step beside the device's."""
    limits = Limits(**served["limits"])
    family = packed(engine_family(model), scheme)
    sizes = tuple(1 << power for power in range(limits.max_batch.bit_length()))
    graphs = StepTimes(family, chip, captured=sizes)
    eager = StepTimes(family, chip, Mode.EAGER)
    found = []
    steps = _steps(limits, served["requests"])
    for step, wanted in zip(steps, served["steps"], strict=False):
        times = graphs if wanted["replayed"] else eager
        found.append(Played(_same(step, wanted), wanted["replayed"], wanted["device_us"], times.time(step) / _US))
    extra = sum(1 for _ in steps) + len(served["steps"]) - len(found)
    return Replay(model, scheme, tuple(found), extra)


def _steps(limits: Limits, requests: list[list[int]]) -> Iterator[Step]:
    """The steps of the scheduler, each before it is finished."""
    scheduler = Scheduler(limits)
    for id, prompt, output in requests:
        scheduler.add(Request(id, 0, prompt, output))
    while (step := scheduler.schedule()) is not None:
        yield step
        scheduler.finish(step)


def _same(step: Step, wanted: Mapping[str, Any]) -> bool:
    """Whether both steps decode at the same positions and read the same chunks of prompts."""
    single = [each.start for each in step.slices if each.count == 1]
    chunks = [[each.start, each.count, int(each.samples)] for each in step.slices if each.count > 1]
    return bool(single == wanted["decodes"] and chunks == wanted["chunks"])
