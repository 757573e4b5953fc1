"""A group of ranks on a system: its axes, the ways between its members, and whether one rank can stand for all."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from hw_models.interconnect.closed import Seen, uniform
from hw_models.interconnect.fabric import Axis, Fabric
from hw_models.interconnect.plans import IN_NETWORK, Peer, Plan
from simulator.network import Wire
from simulator.system import Attach, Level, Topology

WAYS_AT_MOST = 2048  # ways from rank to rank that a closed form looks at


@dataclass
class Group:
    """*ranks* (chips, in order) on *fabric*; positions in the group count from 0.

    latency  picoseconds of software before each message.
    """

    fabric: Fabric
    ranks: Sequence[int]
    latency: int = 0
    _routes: dict[tuple[int, int], tuple[Wire, ...]] = field(default_factory=dict, repr=False)
    _folded: dict[int, tuple[Wire, ...]] = field(default_factory=dict, repr=False)

    @cached_property
    def axes(self) -> tuple[Axis, ...] | None:
        """Axes of the group, innermost first; None if it is no regular part of the system."""
        return self.fabric.axes(self.ranks)

    def at(self, efficiency: float, latency: int = 0) -> "Group":
        """The same ranks where a protocol leaves *efficiency* of the bandwidth and adds *latency* a message."""
        other = Group(Fabric(self.fabric.system, efficiency), self.ranks, latency)
        other.__dict__["axes"] = self.axes
        return other

    @property
    def size(self) -> int:
        return len(self.ranks)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of the axes; of an irregular group one axis that holds all."""
        return tuple(axis.length for axis in self.axes) if self.axes else (self.size,)

    def level(self, axis: Axis) -> Level:
        return self.fabric.system.links[axis.level]

    def route(self, source: int, target: int) -> Sequence[Wire]:
        """Links from position *source* to position *target*; through the switch and back if that is IN_NETWORK."""
        if target == IN_NETWORK:
            return self._in_network(source)
        key = (source, target)
        if key not in self._routes:
            self._routes[key] = self.fabric.route(self.ranks[source], self.ranks[target])
        return self._routes[key]

    def _in_network(self, source: int) -> tuple[Wire, ...]:
        assert self.axes
        return self.fabric.through_switch(self.ranks[source], self.axes[0].level)

    def folded_route(self, source: int, target: int) -> Sequence[Wire]:
        """The same where position 0, the *source*, stands for all: one wire for each kind, with all who share it.

        On a fat tree it stands for those whose messages change the leaf switch.
        """
        if target not in self._folded:
            here, there = (source, target) if target == IN_NETWORK else self._worst(target)
            self._folded[target] = tuple(self._stand_in(wire, here, there) for wire in self.route(here, there))
        return self._folded[target]

    def _stand_in(self, wire: Wire, source: int, target: int) -> Wire:
        assert isinstance(wire.name, tuple)
        return replace(wire, name=wire.name[:2], sharers=self._sharers(wire.level, str(wire.name[1]), source, target))

    def _sharers(self, name: str, kind: str, source: int, target: int) -> int:
        """Ranks of the group that send through the same link of level *name* at once.

        Of the members of a leaf as many leave it as the message goes members far.
        """
        sharers, level, stride = 1, self.fabric.system.links[name], 1
        names = [each for each, _ in self.fabric.system.levels]
        for axis in self.axes or ():
            inside = names.index(axis.level) < names.index(name)
            if inside and (level.attach is Attach.MEMBER or kind.startswith("leaf")):
                sharers *= axis.length
            elif axis.level == name and kind.startswith("leaf"):
                assert level.leaf is not None
                far = (target // stride - source // stride) % axis.length
                sharers *= min(far, axis.length - far, level.leaf)
            stride *= axis.length
        return sharers

    def view(self, sends: tuple[Peer, ...]) -> Seen:
        """Which ranks a closed form has to look at for messages to these peers."""
        peers = set(sends)
        if all(peer.everyone and self._turns(peer) for peer in peers):
            return Seen(range(1), self.folded_route, not any(self._leaves(axis) for axis in self.axes or ()))
        along = {peer.axis for peer in peers}
        axis = None if len(along) > 1 or None in along else along.pop()
        if self.axes and len(self.axes) == 1:
            axis = 0
        if axis is None or not self.axes:
            return self._all(peers)
        return self._along(axis, peers)

    def _all(self, peers: set[Peer]) -> Seen:
        """All ranks, or as many as there is time for, or rank 0 for all."""
        enough = min(self.size, WAYS_AT_MOST // len(peers))
        if enough < 2:
            return Seen(range(1), self.folded_route, False)
        whole = enough == self.size
        return Seen(range(enough), self.route, whole and uniform(peers, self.lengths, self.route))

    def _along(self, axis: int, peers: set[Peer]) -> Seen:
        """The ranks of one row along *axis*; all rows are alike."""
        stride = math.prod(self.lengths[:axis])
        row = range(0, stride * self.lengths[axis], stride)
        if len(row) * len(peers) > WAYS_AT_MOST:
            return Seen(range(1), self.folded_route, False)
        return Seen(row, self.route, self.size <= WAYS_AT_MOST and uniform(peers, self.lengths, self.route))

    def _worst(self, target: int) -> tuple[int, int]:
        """(source, target) as far apart as position 0 and *target*, but between leaf switches where there are some."""
        source, there, stride = 0, target, 1
        for axis in self.axes or ():
            at = target // stride % axis.length
            edge = self._edge(axis, at)
            source += edge * stride
            there += ((at + edge) % axis.length - at) * stride
            stride *= axis.length
        return source, there

    def _leaves(self, axis: Axis) -> list[int]:
        """The leaf switch of each position along *axis*; none if all hang on one, or there are no leaves."""
        leaf = self.level(axis).leaf
        return [] if leaf is None or axis.any else [position // leaf for position in axis.positions]

    def _edge(self, axis: Axis, distance: int) -> int:
        """A position from which *distance* along *axis* leads to another leaf switch; 0 where there is none."""
        leaves = self._leaves(axis)
        crossing = (at for at in range(len(leaves)) if leaves[at] != leaves[(at + distance) % axis.length])
        return next(crossing, 0)

    def foldable(self, plan: Plan) -> bool:
        """Whether rank 0 may stand for all: plan and links look the same from every rank, or from none worse."""
        return plan.symmetric and all(self._turns(peer) for peer, _ in plan.all_sends())

    def _turns(self, peer: Peer) -> bool:
        """Whether the links that *peer* leads over look the same from every rank."""
        axes = self.axes
        if not axes or (peer.axis is None and len(axes) > 1):
            return False
        axis = axes[peer.axis or 0]
        level = self.level(axis)
        if axis.any or level.topology is Topology.FAT_TREE:
            return True
        whole = axis.closed and level.topology in (Topology.RING, Topology.TORUS)
        return whole and not peer.exclusive
