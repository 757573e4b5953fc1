"""The links of a whole system: ways from chip to chip through all of its levels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from hw_models.interconnect.topologies import Hop, path, shape_of
from simulator.errors import UsageError
from simulator.network import Wire
from simulator.system import Attach, Level, System, Topology

_ANY_TO_ANY = (Topology.SWITCH, Topology.FAT_TREE)


@dataclass(frozen=True, slots=True)
class Axis:
    """A direction in which a group of ranks extends: *positions* along one axis of one level.

    closed  the last is a neighbour of the first, as on a whole ring.
    any     every position reaches every other without passing a third.
    """

    level: str
    axis: int
    positions: tuple[int, ...]
    closed: bool
    any: bool

    @property
    def length(self) -> int:
        return len(self.positions)


@dataclass
class Fabric:
    """The links of *system*, found as they are asked for, so that size costs nothing.

    efficiency  of every link's bandwidth, as a library's protocol leaves it.
    """

    system: System
    efficiency: float = 1.0
    _known: dict[tuple[int, str, tuple[int, ...]], Wire] = field(default_factory=dict, repr=False)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Chips in one member of each level, innermost first."""
        sizes = [level.members for _, level in self.system.levels]
        return tuple(math.prod(sizes[:depth]) for depth in range(len(sizes)))

    def place(self, chip: int) -> tuple[int, ...]:
        """Member of each level that *chip* belongs to, innermost first."""
        return tuple(
            chip // stride % level.members for stride, (_, level) in zip(self.strides, self.system.levels, strict=True)
        )

    def route(self, source: int, target: int) -> tuple[Wire, ...]:
        """Links from chip *source* to chip *target*, the outermost level first.

        A switch takes a message from any port to any port.  On rails that are rings or grids it arrives at the chip
        with the sender's place inside the target's node, and goes on from there.
        """
        here, there = list(self.place(source)), self.place(target)
        wires: list[Wire] = []
        for depth in reversed(range(len(here))):
            level = self.system.levels[depth][1]
            if here[depth] == there[depth]:
                continue
            wires.extend(self._wire(depth, hop, here, there) for hop in path(level, here[depth], there[depth]))
            here[depth] = there[depth]
            if level.topology in _ANY_TO_ANY or level.attach is Attach.MEMBER:
                here[:depth] = there[:depth]
        return tuple(wires)

    def through_switch(self, chip: int, name: str) -> tuple[Wire, ...]:
        """The port of *chip* on level *name*, up and down, at the rate at which its switch adds."""
        depth = [level for level, _ in self.system.levels].index(name)
        place = self.place(chip)
        rate = self.system.levels[depth][1].reduce_efficiency
        wires = [self._wire(depth, Hop(kind, (place[depth],), -1), place, place) for kind in ("up", "down")]
        return tuple(replace(wire, bandwidth=max(1, round(wire.bandwidth * rate))) for wire in wires)

    def _wire(self, depth: int, hop: Hop, here: Sequence[int], there: Sequence[int]) -> Wire:
        """The wire that *hop* is: one for each chip of the member, or one for the member."""
        name, level = self.system.levels[depth]
        inside = there if hop.kind == "down" else here
        outside = self._outside(depth, here)
        own = () if level.attach is Attach.MEMBER or hop.kind.startswith("leaf") else tuple(inside[:depth])
        key = (depth, hop.kind, (*hop.owner, *own, *outside))
        if key not in self._known:
            self._known[key] = Wire(
                (name, hop.kind, *key[2]), name, self._bandwidth(depth, level, hop.kind), level.latency, level.overhead
            )
        return self._known[key]

    def _outside(self, depth: int, here: Sequence[int]) -> tuple[int, ...]:
        return tuple(here[depth + 1 :])

    def _bandwidth(self, depth: int, level: Level, kind: str) -> int:
        """Of a port, or of all ports of a leaf switch up to the spine together."""
        bandwidth = level.bandwidth * self.efficiency
        if kind.startswith("leaf"):
            assert level.leaf is not None
            ports = level.leaf * (self.strides[depth] if level.attach is Attach.CHIP else 1)
            bandwidth *= ports / level.oversubscription
        return max(1, round(bandwidth))

    def axes(self, group: Sequence[int]) -> tuple[Axis, ...] | None:
        """The axes along which *group* extends, innermost first; None unless it is a grid in that order."""
        check_group(self.system, group)
        if group == range(self.system.chips):
            every = [_axis(*each, tuple(range(each[2].axes[each[1]]))) for each in self._all_axes()]
            return tuple(axis for axis in every if axis.length > 1)
        places = [self._coordinates(chip) for chip in group]
        axes = []
        for number, (name, axis, level) in enumerate(self._all_axes()):
            positions = tuple(dict.fromkeys(place[number] for place in places))
            if len(positions) > 1:
                axes.append(_axis(name, axis, level, positions))
        if math.prod(axis.length for axis in axes) != len(group):
            return None
        return tuple(axes) if self._in_order(places, axes) else None

    def _all_axes(self) -> list[tuple[str, int, Level]]:
        return [(name, axis, level) for name, level in self.system.levels for axis in range(len(level.axes))]

    def _coordinates(self, chip: int) -> tuple[int, ...]:
        place = self.place(chip)
        levels = [level for _, level in self.system.levels]
        return tuple(at for level, member in zip(levels, place, strict=True) for at in shape_of(level, member))

    def _in_order(self, places: Sequence[tuple[int, ...]], axes: Sequence[Axis]) -> bool:
        """Whether the group counts through its axes, the innermost running fastest."""
        numbers = {(name, axis): number for number, (name, axis, _) in enumerate(self._all_axes())}
        for index, place in enumerate(places):
            rest = index
            for axis in axes:
                rest, at = divmod(rest, axis.length)
                if place[numbers[axis.level, axis.axis]] != axis.positions[at]:
                    return False
        return True


def _axis(name: str, axis: int, level: Level, positions: tuple[int, ...]) -> Axis:
    length = level.axes[axis]
    grid = level.topology in (Topology.RING, Topology.TORUS)
    whole = positions == tuple(range(length))
    closed = (grid and whole and (level.wraps[axis] or length == 2)) or not grid
    one_leaf = level.leaf is not None and len({at // level.leaf for at in positions}) == 1
    direct = level.topology in (Topology.SWITCH, Topology.MESH) or one_leaf
    return Axis(name, axis, positions, closed and level.topology is not Topology.LINKS, direct)


def check_group(system: System, group: Sequence[int]) -> None:
    """Raise UsageError unless *group* names chips of *system*, each once."""
    if group == range(system.chips):
        return
    outside = [chip for chip in group if not 0 <= chip < system.chips]
    if outside:
        raise UsageError(f"{system.name} has chips 0 to {system.chips - 1}, and no chip {outside[0]}")
    if len(set(group)) < len(group):
        twice = next(chip for number, chip in enumerate(group) if chip in group[:number])
        raise UsageError(f"the group names chip {twice} twice")
    if not group:
        raise UsageError("the group names no chip")
