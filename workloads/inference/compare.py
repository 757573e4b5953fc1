"""Steps of the engine as measured on a device beside the same steps simulated: docs/data/lab06_h200.json."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from simulator.errors import SpecError
from simulator.hardware import Chip
from simulator.serving.composed import Rows, StepShape
from simulator.units import PS_PER_SECOND
from workloads.inference.families import engine_family, packed
from workloads.inference.times import StepTimes

Facts = Mapping[str, Any]
MODELS = ("llama-8b", "llama-1b", "qwen3-0.6b")
SCHEMES = ("none", "w8", "w4")
PARTS = ("decode", "prefill", "prefill, paged", "mixed")
_US = PS_PER_SECOND // 10**6


@dataclass(frozen=True, slots=True)
class Row:
    """One step in a captured graph: microseconds as measured and as simulated.

    decodes, context  sequences with a single token, and the positions that each looks back on.
    start, chunk      of the one prompt in the step, or part of it; no chunk: 0.
    """

    model: str
    scheme: str
    part: str
    decodes: int
    context: int
    start: int
    chunk: int
    measured: float
    simulated: float

    @property
    def error(self) -> float:
        """Relative error of the simulated time."""
        return self.simulated / self.measured - 1


def load(path: Path) -> Facts:
    """Return what ``device-run`` wrote.  SpecError says what is wrong with the file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(found, dict) or "provenance" not in found or not any(_parts(found)):
        raise SpecError(f"{path}: is no file of 'python -m workloads.inference device-run'")
    return found


def _parts(facts: Facts) -> Iterator[tuple[str, str, Facts]]:
    """Models and schemes that were measured."""
    for model in MODELS:
        for scheme in SCHEMES:
            steps = facts.get(f"{model} {scheme}", {})
            if "decode" in steps:
                yield model, scheme, steps


def rows(facts: Facts, chip: Chip) -> list[Row]:
    """Every step that was measured as a graph, simulated on *chip*."""
    found: list[Row] = []
    for model, scheme, steps in _parts(facts):
        times = StepTimes(packed(engine_family(model), scheme), chip)
        found += _rows(model, scheme, steps, times)
    return found


def _rows(model: str, scheme: str, steps: Facts, times: StepTimes) -> Iterator[Row]:
    for each in steps["decode"]:
        time = times.decode(each["batch"], each["context"]) / _US
        yield Row(model, scheme, "decode", each["batch"], each["context"], 0, 0, each["us"], time)
    for each in steps.get("prefill", []):
        length = each["tokens"]
        time = times.of(mixed(0, 0, 0, length))
        yield Row(model, scheme, "prefill", 0, 0, 0, length, each["graph"]["us"], time / _US)
        if "graph_paged" in each:
            alone = Rows(1, length, length)
            time += times.attention(alone) - times.attention(alone, times.family.fresh)
            yield Row(model, scheme, "prefill, paged", 0, 0, 0, length, each["graph_paged"]["us"], time / _US)
    for each in steps.get("mixed", []):
        shape = each["decodes"], each["context"], each["start"], each["chunk"]
        yield Row(model, scheme, "mixed", *shape, each["graph"]["us"], times.of(mixed(*shape)) / _US)


def mixed(decodes: int, context: int, start: int, chunk: int) -> StepShape:
    """The shape of a step of *decodes* at *context* beside *chunk* positions of a prompt after *start*."""
    rows = Rows(decodes, 1, context) if decodes else None
    return StepShape(decodes + chunk, decodes + 1, rows, Rows(1, chunk, start + chunk))


def mape(found: Sequence[Row]) -> float:
    """Mean absolute error of *found*, relative."""
    return mean(abs(row.error) for row in found)


def of(found: Sequence[Row], model: str, scheme: str, part: str) -> list[Row]:
    """The rows of one model, scheme and part."""
    return [row for row in found if (row.model, row.scheme, row.part) == (model, scheme, part)]
