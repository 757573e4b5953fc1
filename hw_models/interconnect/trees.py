"""Double binary tree: two trees that each carry half of the data, a rank being an inner node of at most one of them.

Sanders, Speck and Traff, 'Two-tree algorithms for full bandwidth broadcast, reduction and scan' (2009).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from hw_models.interconnect.closed import Estimate
from simulator.network import Key, Load, Send, Wire

Route = Callable[[int, int], Sequence[Wire]]


def parent_of(rank: int, n: int) -> int | None:
    """The parent of *rank* in the first tree: odd ranks are leaves, even ones inner nodes, 0 stands above them all.

    >>> [parent_of(rank, 8) for rank in range(8)]
    [None, 2, 4, 2, 0, 6, 4, 6]
    """
    if rank == 0:
        return None
    bit = rank & -rank
    up = (rank ^ bit) | (bit << 1)
    return up if up < n else rank ^ bit


@dataclass(frozen=True)
class Tree:
    """An all-reduce of *size* bytes: up both trees and down again, in *chunks* pieces each."""

    lengths: tuple[int, ...]
    size: int
    chunks: int

    @cached_property
    def ranks(self) -> int:
        n = 1
        for length in self.lengths:
            n *= length
        return n

    @property
    def messages(self) -> int:
        """Messages of all ranks."""
        return 4 * (self.ranks - 1) * self.chunks

    @property
    def least_sent(self) -> int:
        """Bytes that the busiest rank sends at least: an even share of all that is sent."""
        return self.messages * self.piece // self.ranks

    @property
    def depth(self) -> int:
        """Links from the lowest leaf to the top."""
        return (self.ranks - 1).bit_length()

    @property
    def piece(self) -> int:
        """Bytes of one chunk of one tree."""
        return -(-self.size // (2 * self.chunks))

    def programs(self, latency: int = 0) -> dict[int, list[Send]]:
        """What each rank sends; *latency* is software before each message."""
        sends: dict[int, list[Send]] = {rank: [] for rank in range(self.ranks)}
        up: dict[tuple[int, int, int], Key] = {}
        down: dict[tuple[int, int, int], Key] = {}
        order = sorted(range(self.ranks), key=lambda rank: (rank & -rank) or self.ranks)
        for chunk in range(self.chunks):
            for tree in range(2):
                for rank in order:
                    self._send_up(sends, up, (tree, chunk, rank), latency)
                for rank in reversed(order):
                    self._send_down(sends, up, down, (tree, chunk, rank), latency)
        return sends

    def _send_up(
        self, sends: dict[int, list[Send]], up: dict[tuple[int, int, int], Key], at: tuple[int, int, int], latency: int
    ) -> None:
        tree, chunk, rank = at
        parent = self.parent(tree, rank)
        if parent is None:
            return
        after = tuple(up[tree, chunk, child] for child in self.children(tree, rank))
        me = self._name(tree, rank)
        up[at] = (me, len(sends[me]))
        sends[me].append(Send(self._name(tree, parent), self.piece, after, latency))

    def _send_down(
        self,
        sends: dict[int, list[Send]],
        up: dict[tuple[int, int, int], Key],
        down: dict[tuple[int, int, int], Key],
        at: tuple[int, int, int],
        latency: int,
    ) -> None:
        tree, chunk, rank = at
        top = self.parent(tree, rank) is None
        after = tuple(up[tree, chunk, child] for child in self.children(tree, rank)) if top else (down[at],)
        me = self._name(tree, rank)
        for child in self.children(tree, rank):
            down[tree, chunk, child] = (me, len(sends[me]))
            sends[me].append(Send(self._name(tree, child), self.piece, after, latency))

    def parent(self, tree: int, rank: int) -> int | None:
        """Parent of *rank* by its name in the first tree; both trees have one form."""
        del tree
        return parent_of(rank, self.ranks)

    @cached_property
    def _children(self) -> dict[int, list[int]]:
        children: dict[int, list[int]] = {rank: [] for rank in range(self.ranks)}
        for rank in range(self.ranks):
            above = parent_of(rank, self.ranks)
            if above is not None:
                children[above].append(rank)
        return children

    def children(self, tree: int, rank: int) -> list[int]:
        """Children of *rank*, by their names in the first tree."""
        del tree
        return self._children[rank]

    def _name(self, tree: int, rank: int) -> int:
        """The rank that plays *rank* of the first tree in *tree*: the second is the first moved by one."""
        return (rank + tree) % self.ranks

    def estimate(self, route: Route, latency: int) -> Estimate:
        """Depth twice for the first chunk, then the fullest port for the rest: what an inner node passes on."""
        near, far = route(0, 1), route(0, self.ranks - 1)
        hop = latency + max(sum(wire.latency for wire in wires) for wires in (near, far))
        slow = min((wire for wires in (near, far) for wire in wires), key=lambda wire: wire.bandwidth)
        piece = slow.transit(self.piece).busy
        load = Load(slow, 4 * self.chunks * self.piece, 4 * self.chunks * piece)
        time = 2 * self.depth * (hop + piece) + 4 * (self.chunks - 1) * piece
        return Estimate(time, 2 * self.depth * hop, {slow.name: load}, exact=False)
