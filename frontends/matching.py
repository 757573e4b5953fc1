"""Do the collectives of several ranks fit together?  If not, who waits for whom, and where."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from simulator.dims import CollectiveDims
from simulator.errors import TraceError
from simulator.graph import Operator, OperatorGraph, OpKind

_PAIRS = {"send", "recv"}
_Node = tuple[object, ...]  # (rank, operator) or what several ranks do together: (group, turn)


@dataclass(frozen=True, slots=True)
class _Part:
    """One rank's part in a collective: the *turn*-th over these ranks."""

    rank: int
    operator: Operator
    turn: int

    @property
    def dims(self) -> CollectiveDims:
        assert isinstance(self.operator.dims, CollectiveDims)  # of every collective
        return self.operator.dims

    @property
    def text(self) -> str:
        return f"{self.dims.pattern} of {self.dims.nbytes} bytes at {self.operator.name}"


def check_ranks(graphs: Mapping[int, OperatorGraph]) -> None:
    """Raise TraceError unless the ranks' collectives match in group, order, kind and size, and nobody waits forever.

    graphs  the same program, traced for several ranks; ranks that are not among them are taken to do their part.
    """
    parts = {rank: list(_parts(rank, graph)) for rank, graph in graphs.items()}
    for (group, _), turns in _by_group(parts).items():
        _check_group(group, turns, graphs)
    _check_order(graphs, parts)


def _parts(rank: int, graph: OperatorGraph) -> Iterator[_Part]:
    turns: Counter[tuple[int, ...]] = Counter()
    for op in graph:
        if op.kind is OpKind.COLLECTIVE:
            yield _Part(rank, op, turns[op.group])
            turns[op.group] += 1


def _by_group(parts: Mapping[int, list[_Part]]) -> dict[tuple[tuple[int, ...], int], dict[int, _Part]]:
    """The parts of each group, turn by turn, by rank."""
    found: dict[tuple[tuple[int, ...], int], dict[int, _Part]] = defaultdict(dict)
    for rank, own in parts.items():
        for part in own:
            found[part.operator.group, part.turn][rank] = part
    return dict(sorted(found.items(), key=lambda item: item[0][1]))


def _check_group(group: tuple[int, ...], turns: dict[int, _Part], graphs: Mapping[int, OperatorGraph]) -> None:
    first = turns[min(turns)]
    for rank in group:
        if rank in graphs and rank not in turns:
            raise TraceError(_missing(first, rank, graphs[rank]))
    for part in turns.values():
        if not _fit(first, part):
            raise TraceError(
                f"ranks disagree about collective {first.turn + 1} over {_ranks(group)}: rank {first.rank} calls "
                f"{first.text}, rank {part.rank} calls {part.text}"
            )


def _fit(one: _Part, other: _Part) -> bool:
    if one.rank == other.rank:
        return True
    patterns = {one.dims.pattern, other.dims.pattern}
    if _PAIRS & patterns:
        return patterns == _PAIRS and one.dims.nbytes == other.dims.nbytes
    return len(patterns) == 1 and (one.dims.nbytes == other.dims.nbytes or patterns == {"all_to_all"})


def _missing(part: _Part, rank: int, graph: OperatorGraph) -> str:
    others = [op for op in graph if op.kind is OpKind.COLLECTIVE]
    own = sum(op.group == part.operator.group for op in others)
    what = f"makes {own} call{'' if own == 1 else 's'} over {_ranks(part.operator.group)}"
    last = f"; its last collective is {others[-1].name} over {_ranks(others[-1].group)}" if others else ""
    return (
        f"rank {part.rank} waits at {part.operator.name} (call {part.turn + 1} over {_ranks(part.operator.group)}) for "
        f"rank {rank}, which {what}{last}"
    )


def _ranks(group: tuple[int, ...]) -> str:
    return f"rank{'s' if len(group) > 1 else ''} {', '.join(map(str, group))}"


def _check_order(graphs: Mapping[int, OperatorGraph], parts: Mapping[int, list[_Part]]) -> None:
    """Play all ranks at once: an operator is done when what it depends on is, a collective when all ranks reach it."""
    places: dict[tuple[int, int], _Node] = {
        (part.rank, part.operator.id): (part.operator.group, part.turn) for own in parts.values() for part in own
    }
    waits: Counter[_Node] = Counter()
    after: dict[_Node, list[_Node]] = defaultdict(list)
    for rank, graph in graphs.items():
        for op in graph:
            node = places.get((rank, op.id), (rank, op.id))
            waits[node] += len(op.deps)
            for dep in op.deps:
                after[places.get((rank, dep), (rank, dep))].append(node)
    ready = deque(node for node, count in waits.items() if not count)
    while ready:
        for node in after[ready.popleft()]:
            waits[node] -= 1
            if not waits[node]:
                ready.append(node)
    stuck = {node for node, count in waits.items() if count}
    if stuck:
        raise TraceError(_circle(parts, stuck))


def _circle(parts: Mapping[int, list[_Part]], stuck: set[_Node]) -> str:
    """The first collective at which each rank stops."""
    heads = [
        next(part for part in own if (part.operator.group, part.turn) in stuck)
        for own in parts.values()
        if any((part.operator.group, part.turn) in stuck for part in own)
    ]
    said = "; ".join(
        f"rank {part.rank} waits at {part.operator.name} for {_ranks(_others(part.operator.group, part.rank))}"
        for part in heads
    )
    return f"the ranks wait for each other: {said}"


def _others(group: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return tuple(each for each in group if each != rank)
