"""The protocol between the engine and the compute models, and the table of models by name.

A compute model says what one chip does with each operator of a graph.  ``hw_models`` registers its models here
when it is imported; a user's own model is registered the same way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from simulator.errors import UsageError, nearest
from simulator.graph import OperatorGraph
from simulator.hardware import Chip


class Unit(StrEnum):
    """Who does the work; one track each in a timeline."""

    MATRIX = "matrix"
    VECTOR = "vector"
    DMA = "dma"
    HOST = "host"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one operator takes on one chip when it has the chip to itself; all times in picoseconds.

    unit      the unit that it occupies.
    time      from start to end, launch included.
    launch    the part of *time* that is fixed: no work is done in it.
    compute   time of the arithmetic alone.
    memory    time of the off-chip traffic alone.
    traffic   bytes moved to and from the off-chip memory, re-fetches included.
    detail    how the model arrived at it, for a person: tile, waves, folds.
    clock     part of the full clock that the power cap leaves to it.
    operations  of the vector lanes, where a model knows better than the operator's FLOP how many it takes.
    """

    unit: Unit
    time: int
    launch: int
    compute: int
    memory: int
    traffic: int
    detail: str = ""
    clock: float = 1.0
    operations: int = 0


class ComputeModel(Protocol):
    """A model of one chip.

    costs  one Cost per operator, in order; equal input, equal output.
    ideal  whether the model describes a floor: then nothing around operators (gaps, host) takes time either.
    """

    ideal: bool

    def costs(self, graph: OperatorGraph) -> Sequence[Cost]: ...


ModelFactory = Callable[[Chip], ComputeModel]
_MODELS: dict[str, ModelFactory] = {}


def register_model(fidelity: str) -> Callable[[ModelFactory], ModelFactory]:
    """Class decorator: make the model available as ``--fidelity`` *fidelity*."""

    def enter(factory: ModelFactory) -> ModelFactory:
        _MODELS[fidelity] = factory
        return factory

    return enter


def compute_model(fidelity: str, chip: Chip) -> ComputeModel:
    """Return the model called *fidelity* for *chip*; UsageError if there is none."""
    if fidelity not in _MODELS:
        raise UsageError(f"unknown fidelity {fidelity!r}{nearest(fidelity, _MODELS)} (known: {', '.join(_MODELS)})")
    return _MODELS[fidelity](chip)
