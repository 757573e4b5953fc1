"""A model of many equal layers by its first three: the others cost as much as the third.

What one layer leaves in the caches for the next is the same from the second layer on, so the costs of operators repeat
from the third.  That holds for costs of single operators, not for units that overlap.
"""

from dataclasses import dataclass, replace

from simulator.graph import Operator, Tensor
from simulator.serving.family import Family

_KEPT = 3  # layers


@dataclass(frozen=True, slots=True)
class Folded:
    """A *family* with fewer layers, and for each of its operators how many of the model it stands for."""

    family: Family
    times: tuple[int, ...]


def fold(family: Family) -> Folded:
    """Return *family* with its repeated layers left out; as it is, if they do not repeat."""
    start, period, repeats = _layers(family)
    if repeats <= _KEPT:
        return Folded(family, (1,) * len(family.first))
    skipped = (repeats - _KEPT) * period
    cut = start + _KEPT * period
    kept = [*range(cut), *range(cut + skipped, len(family.first))]
    new = {old: index for index, old in enumerate(kept)}
    storages = _renamed(family, cut, skipped, period)
    first, second = (
        replace(graph, operators=[_moved(graph.operators[old], new, storages, cut, period) for old in kept])
        for graph in (family.first, family.second)
    )
    times = tuple(repeats - _KEPT + 1 if cut - period <= old < cut else 1 for old in kept)
    found = Family(
        first,
        second,
        frozenset(new[old] for old in family.head if old in new),
        frozenset(new[old] for old in family.attention if old in new),
        family.fresh,
    )
    return Folded(found, times)


def _layers(family: Family) -> tuple[int, int, int]:
    """First operator, length and number of the equal layers."""
    attention = sorted(family.attention)
    if len(attention) < 2:
        return 0, 1, 0
    period = attention[1] - attention[0]
    signs = [_sign(one, two) for one, two in zip(family.first, family.second, strict=True)]
    first = last = attention[0]
    while first > 0 and signs[first - 1] == signs[first - 1 + period]:
        first -= 1
    while last + period < len(signs) and signs[last] == signs[last + period]:
        last += 1
    return first, period, (last - first) // period + 1


def _sign(first: Operator, second: Operator) -> tuple[object, ...]:
    """What an operator costs depends on: equal for the same operator of two equal layers."""
    return tuple((op.target, op.kind, op.dtype, op.dims, op.flops, op.reads, op.writes) for op in (first, second))


def _twin(id: int, cut: int, period: int) -> int:
    """The operator of the last kept layer that stands where *id* stands in one of those left out."""
    return cut - period + (id - cut) % period


def _renamed(family: Family, cut: int, skipped: int, period: int) -> dict[int, int]:
    """Storages that the last layer left out writes -> those that the last kept one writes in the same place."""
    operators = family.first.operators
    names: dict[int, int] = {}
    for id in range(cut + skipped - period, cut + skipped):
        twin = operators[_twin(id, cut, period)]
        names |= {made.storage: kept.storage for made, kept in zip(operators[id].outputs, twin.outputs, strict=True)}
    return names


def _moved(op: Operator, new: dict[int, int], storages: dict[int, int], cut: int, period: int) -> Operator:
    """*op* with its new number, what it read of the last layer left out now read of the last kept one."""

    def moved(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(replace(each, storage=storages.get(each.storage, each.storage)) for each in tensors)

    deps = {new[dep] if dep in new else new[_twin(dep, cut, period)] for dep in op.deps}
    return replace(op, id=new[op.id], inputs=moved(op.inputs), outputs=moved(op.outputs), deps=tuple(sorted(deps)))
