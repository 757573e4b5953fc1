"""Ways from one member of a level to another, hop by hop."""

from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from simulator.system import Level, Topology


class Hop(NamedTuple):
    """One link on a way: the *kind* that it is of, and the member (or pair, or leaf) that *owner* names.

    kind    equal for links that do the same for different members: all ports up of one switch.
    at      member that the hop leads to; -1 inside a switch.
    """

    kind: str
    owner: tuple[int, ...]
    at: int


def path(level: Level, source: int, target: int) -> tuple[Hop, ...]:
    """Links that a message crosses from member *source* to member *target*, in order."""
    return tuple(_PATHS[level.topology](level, source, target))


def shape_of(level: Level, member: int) -> tuple[int, ...]:
    """Coordinates of *member* on the axes of *level*, the first axis running fastest.

    >>> from simulator.system import Topology
    >>> shape_of(Level(topology=Topology.TORUS, shape=(4, 2), bandwidth=1, source="doctest only"), 6)
    (2, 1)
    """
    place = []
    for length in level.axes:
        member, at = divmod(member, length)
        place.append(at)
    return tuple(place)


def member_at(level: Level, place: tuple[int, ...]) -> int:
    """The inverse of shape_of."""
    member = 0
    for at, length in zip(reversed(place), reversed(level.axes), strict=True):
        member = member * length + at
    return member


def _switch(level: Level, source: int, target: int) -> Iterator[Hop]:
    yield Hop("up", (source,), -1)
    yield Hop("down", (target,), target)


def _fat_tree(level: Level, source: int, target: int) -> Iterator[Hop]:
    assert level.leaf is not None  # System has seen to it
    here, there = source // level.leaf, target // level.leaf
    yield Hop("up", (source,), -1)
    if here != there:
        yield Hop("leaf up", (here,), -1)
        yield Hop("leaf down", (there,), -1)
    yield Hop("down", (target,), target)


def _mesh(level: Level, source: int, target: int) -> Iterator[Hop]:
    yield Hop(f"to +{(target - source) % level.members}", (source, target), target)


def _grid(level: Level, source: int, target: int) -> Iterator[Hop]:
    """Axis by axis, the shorter way round; the upward way where both are equal."""
    here, there = list(shape_of(level, source)), shape_of(level, target)
    for axis, (length, wraps) in enumerate(zip(level.axes, level.wraps, strict=True)):
        ahead = (there[axis] - here[axis]) % length
        up = ahead <= length - ahead if wraps else there[axis] > here[axis]
        while here[axis] != there[axis]:
            owner = member_at(level, tuple(here))
            here[axis] = (here[axis] + (1 if up else -1)) % length
            at = member_at(level, tuple(here))
            yield Hop(f"axis {axis} {'+' if up else '-'}", (owner, at), at)


def _edges(level: Level, source: int, target: int) -> Iterator[Hop]:
    before = _breadth_first(level.edges, level.members, source)
    way = [target]
    while way[-1] != source:
        way.append(before[way[-1]])
    for here, there in zip(way[::-1], way[-2::-1], strict=False):
        yield Hop("link", (here, there), there)


@lru_cache(maxsize=4096)
def _breadth_first(edges: tuple[tuple[int, int], ...], members: int, source: int) -> tuple[int, ...]:
    """For each member, the one before it on a shortest way from *source*; the lowest number where several are."""
    near: list[set[int]] = [set() for _ in range(members)]
    for a, b in edges:
        near[a].add(b)
        near[b].add(a)
    before, queue = {source: source}, deque([source])
    while queue:
        here = queue.popleft()
        for there in sorted(near[here]):
            if there not in before:
                before[there] = here
                queue.append(there)
    return tuple(before[member] for member in range(members))


_PATHS: dict[Topology, Callable[[Level, int, int], Iterator[Hop]]] = {
    Topology.RING: _grid,
    Topology.SWITCH: _switch,
    Topology.MESH: _mesh,
    Topology.TORUS: _grid,
    Topology.FAT_TREE: _fat_tree,
    Topology.LINKS: _edges,
}
