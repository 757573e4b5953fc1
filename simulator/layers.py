"""Which modules of a program are one layer repeated, and what such a group is called in a report."""

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

from simulator.dims import AttentionDims, MatmulDims
from simulator.graph import Operator, Phase
from simulator.result import OperatorResult, Result

TOP_LEVEL = "(top level)"
_INDEX = re.compile(r"(?<![^.])\d+(?![^.])")


def every_layer(name: str) -> str:
    """*name* with a star for each index of a layer.

    >>> every_layer("blocks.3.mlp.up.weight")
    'blocks.*.mlp.up.weight'
    """
    return _INDEX.sub("*", name)


Layer = Mapping[str, Sequence[OperatorResult]]  # module path -> its operators


def layers(result: Result) -> dict[Hashable, dict[str, list[OperatorResult]]]:
    """Modules that are one layer repeated, together, in order of first appearance."""
    modules: defaultdict[str, list[OperatorResult]] = defaultdict(list)
    for each in result.operators:
        modules[each.operator.module].append(each)
    found: defaultdict[Hashable, dict[str, list[OperatorResult]]] = defaultdict(dict)
    for module, members in modules.items():
        heaviest = max(size_of(each.operator) for each in members)
        found[(_INDEX.sub("*", module), heaviest)][module] = members
    return found


def size_of(op: Operator) -> tuple[int, int, int]:
    """What two operators have in common that do the same amount of work."""
    return op.flops, op.reads, op.writes


def labels(groups: Iterable[Layer]) -> list[str]:
    """One name a group: an index over which all layers of that path vary is ``*``, over some ``{0,2,…}``."""
    paths = [[tuple(module.split(".")) for module in group] for group in groups]
    indices: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    patterns = [_INDEX.sub("*", ".".join(members[0])) for members in paths]
    for pattern, members in zip(patterns, paths, strict=True):
        for place in range(len(members[0])):
            indices[pattern, place].update(path[place] for path in members)
    return [
        ".".join(_part([path[place] for path in members], indices[pattern, place]) for place in range(len(members[0])))
        or TOP_LEVEL
        for pattern, members in zip(patterns, paths, strict=True)
    ]


def _part(values: Sequence[str], all_values: set[str]) -> str:
    distinct = list(dict.fromkeys(values))
    if len(distinct) == 1:
        return distinct[0]
    if len(distinct) == len(all_values):
        return "*"
    return "{" + ",".join(distinct[:2]) + (",…}" if len(distinct) > 2 else "}")


def operator_name(label: str, op: Operator) -> str:
    """The name of an operator of the layer called *label*, without the namespace of its target."""
    target = op.target.removeprefix("aten.").removeprefix("xpusim.")
    name = target if label == TOP_LEVEL else f"{label}/{target}"
    return name if op.phase is Phase.FORWARD else f"{name} ({op.phase})"


def shape_of(op: Operator) -> str:
    """The sizes that decide an operator's time, as short text: ``4096x14336x4096`` is M x N x K."""
    dims = op.dims
    if isinstance(dims, MatmulDims):
        repeated = f"{dims.batch}x " if dims.batch > 1 else ""
        return f"{repeated}{dims.m}x{dims.n}x{dims.k}"
    if isinstance(dims, AttentionDims):
        return f"{dims.batch}x{dims.heads}h q{dims.q_len} kv{dims.kv_len} d{dims.head_dim}"
    tensors = op.outputs + op.inputs
    return "x".join(map(str, tensors[0].shape)) if tensors else ""
