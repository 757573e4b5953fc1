"""Models as families of steps: the engine's own step of a preset, and its weights packed."""

from functools import cache

from simulator.passes.quantise import quantised
from simulator.serving.family import Family, family
from workloads.gpt.presets import preset


@cache
def engine_family(model: str, dtype: str = "bf16") -> Family:
    """Return the steps of the engine with the preset *model*; traced once."""
    from workloads.inference.traced import step_trace  # noqa: PLC0415  loads torch

    return family(step_trace(preset(model), dtype))


def packed(found: Family, scheme: str) -> Family:
    """Return *found* with the weights of its matrix products packed by *scheme*."""
    first, second = (quantised(graph, scheme) for graph in (found.first, found.second))
    return Family(first, second, found.head, found.attention, found.fresh)
