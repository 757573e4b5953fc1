"""What tests of serving share: one small model, traced once, its step times, and steps made by hand."""

from functools import cache

from frontends import trace
from hw_models import load_chip
from simulator import OperatorGraph
from simulator.serving import Request, Sequence, Step
from simulator.serving.composed import Rows, StepShape
from simulator.serving.family import Family, family
from workloads import build
from workloads.inference.times import StepTimes

H200 = load_chip("h200")


def traced(phase: str, batch: int, length: int, model: str = "gpt2") -> OperatorGraph:
    size = {"context": length} if phase == "decode" else {"seq": length}
    program = build(model, phase, batch, **size)
    return trace(program.module, program.args, program.kwargs, workload=program.workload, dtype="bf16")


@cache
def gpt2() -> Family:
    return family(traced)


@cache
def times(chip: str = "h200") -> StepTimes:
    return StepTimes(gpt2(), load_chip(chip))


def decodes(batch: int, keys: int) -> StepShape:
    return StepShape(batch, batch, Rows(batch, 1, keys), None)


def running(contexts: list[int]) -> Step:
    found = [Sequence(Request(id, 0, length, 500), 500, None) for id, length in enumerate(contexts)]
    for each in found:
        each.computed = each.request.prompt
    return Step(1, found)
