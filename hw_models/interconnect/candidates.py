"""Which algorithms can carry out a collective among a group of ranks, and what each would send."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hw_models.interconnect import algorithms, closed, trees
from hw_models.interconnect.fabric import Axis
from hw_models.interconnect.group import Group
from hw_models.interconnect.plans import Lane, Plan
from simulator.errors import nearest
from simulator.system import Topology

ALGORITHMS = (*algorithms.FLAT, "hierarchical", "multi_axis", "chain", "double_tree", "send_recv")
_TRIED_AT_MOST = (
    2048  # ranks; among more an algorithm with a message from each to each stands only where there is no other
)
_CHUNKS = (1, 4, 16, 64)  # pieces in which a pipeline passes on its data

Candidate = tuple[str, Plan | trees.Tree]


def candidates(group: Group, pattern: str, size: int, only: str | None) -> Iterator[Candidate]:
    """(name, plan) of all that can do it, or of the algorithm *only*."""
    allowed = _allowed(group, pattern)
    for name, plan in _all_plans(group, pattern, size):
        if name == only or (only is None and name in allowed):
            yield name, plan


def _allowed(group: Group, pattern: str) -> Sequence[str]:
    """Algorithms of the system's library for *pattern*."""
    software = group.fabric.system.calibration
    return software.algorithms.get(pattern, ALGORITHMS) if software else ALGORITHMS


def _all_plans(group: Group, pattern: str, size: int) -> Iterator[Candidate]:
    n = group.size
    if pattern == "send_recv":
        yield "send_recv", algorithms.send_recv(size)
        return
    if pattern == "broadcast":
        yield "tree", Plan(group.lengths, (algorithms.binomial(pattern, size, None, n),))
        for chunks in _CHUNKS:
            yield "chain", algorithms.chain(size, n, chunks)
        return
    single = group.axes[0] if group.axes and len(group.axes) == 1 else None
    for name in _flat_names(group, single, pattern):
        if name == "direct" and n > _TRIED_AT_MOST and tuple(_allowed(group, pattern)) != ("direct",):
            continue
        yield name, Plan(group.lengths, (algorithms.FLAT[name][0](pattern, size, None, n),))
    if group.axes and len(group.axes) > 1:
        for chunks in _CHUNKS[:3]:
            phases = _phases(group, pattern, algorithms.share(size, chunks))
            stagger = sum(each.repeat for each in phases[0])
            yield "hierarchical", Plan(group.lengths, (algorithms.in_turn(phases),) * chunks, True, stagger)
        if len({axis.level for axis in group.axes}) == 1 and pattern != "all_to_all":
            chooser = _Chooser(group, group.latency)
            yield "multi_axis", Plan(group.lengths, algorithms.multi_axis(pattern, size, group.axes, chooser))
    if pattern == "all_reduce" and 2 < n <= _TRIED_AT_MOST:
        for chunks in _CHUNKS:
            yield "double_tree", trees.Tree(group.lengths, size, chunks)


def _flat_names(group: Group, axis: Axis | None, pattern: str) -> Iterator[str]:
    """Names of the algorithms along one axis: *axis*, or the whole group in its order if None."""
    n = group.size if axis is None else axis.length
    level = group.level(axis) if axis else None
    grid = level is not None and level.topology in (Topology.RING, Topology.TORUS)
    possible = {
        "ring": axis is None or axis.closed or not grid,
        "bidirectional": grid and axis is not None and axis.closed and n > 2,
        "line": grid and axis is not None and not axis.closed,
        "direct": True,
        "halving_doubling": n & (n - 1) == 0,
        "in_network": level is not None and level.reduces and axis is not None and axis.any,
        "tree": False,
    }
    return (name for name, (_, patterns) in algorithms.FLAT.items() if possible[name] and pattern in patterns)


def _phases(group: Group, pattern: str, size: int) -> list[Lane]:
    """Axis after axis, the innermost (the fastest, and what carries most) first."""
    axes = group.axes or ()
    return algorithms.hierarchical(pattern, size, axes, range(len(axes)), _Chooser(group, group.latency))


@dataclass(frozen=True, slots=True)
class _Chooser:
    """Picks the rounds of one axis: the fastest by its closed form."""

    group: Group
    latency: int

    def __call__(self, pattern: str, size: int, axis: int) -> Lane:
        assert self.group.axes
        along = self.group.axes[axis]
        lanes = [algorithms.FLAT[name][0](pattern, size, axis, along.length) for name in self._names(along, pattern)]
        return min(lanes, key=self._time)

    def _names(self, along: Axis, pattern: str) -> list[str]:
        """What the library has for one axis; all that there is, if that is nothing."""
        names = list(_flat_names(self.group, along, pattern))
        return [name for name in names if name in _allowed(self.group, pattern)] or names

    def _time(self, lane: Lane) -> int:
        return closed.estimate(Plan(self.group.lengths, (lane,)), self.group.view, self.latency).time


def none_allowed(group: Group, pattern: str) -> str:
    """What to say where none of the system's algorithms can do *pattern* in *group*."""
    names = _allowed(group, pattern)
    unknown = [f"{name!r} is unknown{nearest(name, ALGORITHMS)}" for name in names if name not in ALGORITHMS]
    reasons = unknown or [f"{name}: {why_not(group, pattern, name)}" for name in names] or ["it names none"]
    where = f"{group.fabric.system.name}: calibration.algorithms.{pattern}"
    return f"{where} has nothing for these ranks: {'; '.join(reasons)}"


def why_not(group: Group, pattern: str, algorithm: str) -> str:
    """Why *algorithm* is not to be had for *pattern* in *group*."""
    if algorithm in algorithms.FLAT and pattern not in algorithms.FLAT[algorithm][1]:
        return f"it is for {', '.join(algorithms.FLAT[algorithm][1])}"
    reasons = {
        "halving_doubling": f"it needs a power of two, and there are {group.size} ranks",
        "bidirectional": "it needs a closed ring of more than two ranks",
        "line": "it needs ranks in a row that does not close",
        "ring": "the ranks lie in a row that does not close",
        "in_network": "it needs one switch that adds (reduces: true)",
        "hierarchical": "it needs ranks on more than one axis or level",
        "multi_axis": "it needs ranks on several axes of one torus",
        "double_tree": "it is for all_reduce among three ranks or more",
    }
    return reasons.get(algorithm, f"it is not for {pattern}")
