"""The same chip with more of one resource: what verdicts and sensitivities are computed from."""

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from simulator.hardware import Chip, MemoryLevel, Power

INFINITE = 10**6  # times more of a resource than a chip has: its share of the time is then below a picosecond


class Resource(StrEnum):
    """What an operator, a layer or a run can be bound by."""

    COMPUTE = "compute"
    BANDWIDTH = "bandwidth"
    LAUNCH = "launch"
    CAPACITY = "capacity"
    INTERCONNECT = "interconnect"


def scaled(chip: Chip, resource: Resource, factor: float) -> Chip:
    """Return *chip* with *factor* times as much of *resource*; launch overheads get shorter by the factor.

    compute       clocks of the matrix and vector units, which draw no more for it: energy for one operation falls.
    bandwidth     of every memory level.
    launch        the fixed times around operators, on the device and on the host.
    capacity      of the on-chip levels: what is refetched because they are too small.
    interconnect  bandwidth of the chip's links.
    """
    return _SCALE[resource](chip, factor)


def _compute(chip: Chip, factor: float) -> Chip:
    matrix = replace(chip.matrix, clock=int(chip.matrix.clock * factor))
    vector = replace(chip.vector, clock=int(chip.vector.clock * factor))
    return replace(chip, matrix=matrix, vector=vector, power=_frugal(chip.power, factor))


def _frugal(power: Power | None, factor: float) -> Power | None:
    """*power* with arithmetic that needs *factor* times less energy; otherwise the cap would take back the speed."""
    if power is None or power.energy is None:
        return power
    old = power.energy
    matrix = {dtype: int(each / factor) for dtype, each in old.matrix.items()}
    return replace(power, energy=replace(old, matrix=matrix, vector=int(old.vector / factor)))


def _levels(chip: Chip, change: Callable[[MemoryLevel], MemoryLevel]) -> Chip:
    return replace(chip, memory={name: change(level) for name, level in chip.memory.items()})


def _bandwidth(chip: Chip, factor: float) -> Chip:
    def more(level: MemoryLevel) -> MemoryLevel:
        return replace(level, bandwidth=int(level.bandwidth * factor)) if level.bandwidth else level

    return _levels(chip, more)


def without_limit(chip: Chip, level: str) -> Chip:
    """Return *chip* with practically infinite bandwidth at one memory level: which level it is that binds."""

    def more(each: MemoryLevel) -> MemoryLevel:
        return replace(each, bandwidth=each.bandwidth * INFINITE) if each.bandwidth else each

    return replace(chip, memory={name: more(each) if name == level else each for name, each in chip.memory.items()})


def _launch(chip: Chip, factor: float) -> Chip:
    old = chip.overheads
    return replace(
        chip,
        overheads=replace(
            old,
            launch=int(old.launch / factor),
            gap=int(old.gap / factor),
            host_dispatch=int(old.host_dispatch / factor),
            host_submit=int(old.host_submit / factor),
            host_launch=None if old.host_launch is None else int(old.host_launch / factor),
        ),
    )


def _capacity(chip: Chip, factor: float) -> Chip:
    def more(level: MemoryLevel) -> MemoryLevel:
        return level if level.scope == "device" else replace(level, capacity=int(level.capacity * factor))

    return _levels(chip, more)


def _interconnect(chip: Chip, factor: float) -> Chip:
    if chip.links is None:
        return chip
    return replace(chip, links=replace(chip.links, bandwidth=int(chip.links.bandwidth * factor)))


_SCALE: dict[Resource, Callable[[Chip, float], Chip]] = {
    Resource.COMPUTE: _compute,
    Resource.BANDWIDTH: _bandwidth,
    Resource.LAUNCH: _launch,
    Resource.CAPACITY: _capacity,
    Resource.INTERCONNECT: _interconnect,
}
