"""System classes: chips and the links between them, as plain frozen data.  ``hw_models`` reads them from YAML files.

A system is one chip many times, joined level by level: eight chips on the NVLink switch of a node, sixteen nodes on
InfiniBand.  Chips are numbered from the innermost level outward: chip 11 of nodes of eight is the fourth of node 1.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from simulator.hardware import BytesPerSecond, Count, Efficiency, Picoseconds, Source

_CLOSED = ConfigDict(extra="forbid")


class Topology(StrEnum):
    """How the members of one level are joined.

    RING      each to its two neighbours.
    SWITCH    each by one link up and one link down to a switch that never blocks.
    MESH      each to each other by a link of its own (full mesh).
    TORUS     a grid of two or three axes, each wrapped or not.
    FAT_TREE  leaf switches of *leaf* members, joined by a spine; *oversubscription* is ports down to ports up.
    LINKS     whatever *edges* says, each edge one link in either direction.
    """

    RING = "ring"
    SWITCH = "switch"
    MESH = "mesh"
    TORUS = "torus"
    FAT_TREE = "fat_tree"
    LINKS = "links"


class Attach(StrEnum):
    """Who owns a port of a level: each chip one of its own, or each member (a node of chips) one for all its chips."""

    CHIP = "chip"
    MEMBER = "member"


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level of the network: *size* members, each a chip or all that the levels inside it join.

    bandwidth         of one link in one direction.  A switch or a fat tree has one link for each port, a ring or torus
                      one for each direction of each axis, a mesh one for each pair.
    latency           of one link; a message through a switch crosses two.
    overhead          time that a message holds the sender's port beyond its bytes.
    shape, wrap       axes of a torus, innermost first, and which of them close (all, if left out).
    leaf              members of one leaf switch of a fat tree.
    oversubscription  of a fat tree: bandwidth of a leaf's ports down over that of its ports up.
    attach            whether each chip has a port of its own (NICs on rails) or shares that of its member.
    reduces           whether the switch can add: all-reduce in the network, at *reduce_efficiency* of the bandwidth.
    edges             pairs of members, for ``links`` only.
    """

    __pydantic_config__ = _CLOSED
    topology: Topology
    bandwidth: BytesPerSecond
    source: Source
    size: Count | None = None
    shape: Annotated[tuple[Count, ...], Field(min_length=1, max_length=3)] | None = None
    wrap: tuple[bool, ...] | None = None
    latency: Picoseconds = 0
    overhead: Picoseconds = 0
    leaf: Count | None = None
    oversubscription: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    attach: Attach = Attach.CHIP
    reduces: bool = False
    reduce_efficiency: Efficiency = 1.0
    edges: tuple[tuple[int, int], ...] = ()

    @property
    def members(self) -> int:
        """How many members the level joins."""
        return math.prod(self.shape) if self.shape is not None else self.size or 1

    @property
    def axes(self) -> tuple[int, ...]:
        """Lengths of the axes: of a torus its shape, of all else one axis."""
        return self.shape if self.shape is not None else (self.members,)

    @property
    def wraps(self) -> tuple[bool, ...]:
        """Which axes close to a ring; a ring of two has one link each way and nothing to close."""
        return self.wrap if self.wrap is not None else (True,) * len(self.axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """One way in which a library moves data: *latency* of each step, *efficiency* of the link's bandwidth.

    start  what it takes to get going, beyond the launch: handshakes, and filling its buffers.

    Low-latency protocols send a flag with every few bytes instead of a signal after them, and so use less of the link.
    """

    __pydantic_config__ = _CLOSED
    latency: Picoseconds
    efficiency: Efficiency
    start: Picoseconds = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """What the collective library adds to the links, from measurements.

    launch      from the call to the first byte, and the tail of the kernel.
    protocols   by name; the fastest at each size is taken.
    local       bandwidth at which a chip copies what it keeps of the data, after the last step.
    algorithms  that the library has, by collective; all, where a collective is not named.
    cores       of a chip that its kernels hold while data moves: what runs beside them has so many fewer.
    """

    __pydantic_config__ = _CLOSED
    launch: Picoseconds
    protocols: Annotated[Mapping[str, Protocol], Field(min_length=1)]
    source: Source
    local: BytesPerSecond | None = None
    algorithms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cores: Annotated[int, Field(ge=0, strict=True)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Many of one *chip* (a name or a file), joined by *links*: levels by name, innermost first."""

    __pydantic_config__ = _CLOSED
    name: str
    description: str
    source: Source
    chip: str
    links: Annotated[Mapping[str, Level], Field(min_length=1)]
    calibration: Software | None = None

    def __post_init__(self) -> None:
        """Refuse a network that cannot be built; the loader turns ValueError into SpecError with the path."""
        for name, level in self.links.items():
            if (fault := _fault(level)) is not None:
                raise ValueError(f"links.{name}: {fault}")

    @property
    def levels(self) -> tuple[tuple[str, Level], ...]:
        """(name, level), innermost first."""
        return tuple(self.links.items())

    @property
    def chips(self) -> int:
        """How many chips there are."""
        return math.prod(level.members for level in self.links.values())


def _fault(level: Level) -> str | None:
    """What is wrong with *level*, or None."""
    torus = level.topology is Topology.TORUS
    if torus and level.shape is None:
        return "a torus needs its shape, such as [16, 16]"
    if torus and level.size not in (None, math.prod(level.shape or ())):
        return f"size is {level.size}, but the shape {list(level.shape or ())} has {level.members} members"
    if not torus and level.size is None:
        return f"a {level.topology} needs its size"
    if not torus and level.shape is not None:
        return f"shape is for a torus; a {level.topology} has a size"
    if level.wrap is not None and len(level.wrap) != len(level.axes):
        return f"wrap has {len(level.wrap)} values for {len(level.axes)} axes"
    if level.topology is Topology.FAT_TREE:
        return _fat_tree_fault(level)
    if level.topology is Topology.LINKS:
        return _edges_fault(level)
    return "edges are for topology: links" if level.edges else None


def _fat_tree_fault(level: Level) -> str | None:
    return "a fat tree needs leaf, the members of one leaf switch" if level.leaf is None else None


def _edges_fault(level: Level) -> str | None:
    outside = [edge for edge in level.edges if not all(0 <= end < level.members for end in edge)]
    if outside:
        return f"edge {list(outside[0])} names no member; they are 0 to {level.members - 1}"
    reached, edge_of = {0}, [0]
    while edge_of:
        here = edge_of.pop()
        near = {b if a == here else a for a, b in level.edges if here in (a, b)} - reached
        reached |= near
        edge_of += near
    if len(reached) < level.members:
        lost = min(set(range(level.members)) - reached)
        return f"disconnected: member 0 reaches {len(reached)} of {level.members} members, and not member {lost}"
    return None
