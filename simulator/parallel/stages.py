"""Pipeline parallelism: which layers each stage has, and its part of a rank's graph, forward and backward apart."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role
from simulator.parallel.builder import placed
from simulator.parallel.rewriting import renamed
from simulator.parallel.tensor import Sharded


@dataclass(frozen=True, slots=True)
class Part:
    """One stage's operators, each pass with storages of its own; weights and gradients keep their names.

    forward_layers, backward_layers  of each operator.
    kept  bytes that wait from the forward to the backward pass; *sent* bytes that the next stage gets.
    """

    layers: tuple[int, ...]
    forward: OperatorGraph
    backward: OperatorGraph
    forward_layers: list[int]
    backward_layers: list[int]
    kept: int
    sent: int


def layers_of_stages(layers: int, stages: int) -> list[tuple[int, ...]]:
    """Divide *layers* evenly; what is left over goes to the middle, since the ends have embedding and head.

    >>> [len(each) for each in layers_of_stages(10, 4)]
    [2, 3, 3, 2]
    """
    base, rest = divmod(layers, stages)
    middle = sorted(range(stages), key=lambda each: (abs(2 * each + 1 - stages), each))[:rest]
    found, start = [], 0
    for stage in range(stages):
        size = base + (stage in middle)
        found.append(tuple(range(start, start + size)))
        start += size
    return found


def split(sharded: Sharded, stages: int) -> list[Part]:
    """Return the parts of the graph: the first has what comes before the layers, the last what comes after."""
    split_layers = layers_of_stages(sharded.depth, stages)
    place = {layer: stage for stage, layers in enumerate(split_layers) for layer in layers}
    at = [place.get(layer, 0 if layer < 0 else stages - 1) for layer in sharded.layers]
    graph, untied = _untied(sharded.graph, at)
    uses = _Uses(graph, at)
    parts = []
    for stage, layers in enumerate(split_layers):
        chosen = [op for op in graph if at[op.id] == stage and op.id not in untied]
        forward = [*uses.copied(stage), *(op for op in chosen if op.phase is Phase.FORWARD)]
        backward = [op for op in chosen if op.phase is not Phase.FORWARD]
        kept = uses.kept(forward, backward)
        crossing = uses.crossing(stage)
        parts.append(
            Part(
                layers,
                _part(graph, forward, kept | crossing),
                _part(graph, backward, frozenset()),
                [sharded.layers[op.id] for op in forward],
                [sharded.layers[op.id] for op in backward],
                sum(graph.storages[each].nbytes for each in kept),
                sum(graph.storages[each].nbytes for each in crossing),
            )
        )
    return parts


def _untied(graph: OperatorGraph, at: list[int]) -> tuple[OperatorGraph, set[int]]:
    """Let stages that share a weight each have a gradient of it, where the traced program adds them up.

    Returns the graph and the additions to leave out; the ranks of the stages sum them after the step's last pass.
    """
    writer: dict[int, int] = {}
    storages, dropped = list(graph.storages), set[int]()
    for op in graph:
        for each in op.outputs:
            target = graph.storages[each.storage]
            sources = {writer[given.storage] for given in op.inputs if given.storage in writer}
            adds = all(given.elements == each.elements for given in op.inputs) and op.kind is OpKind.POINTWISE
            if target.role is Role.GRADIENT and adds and len({at[source] for source in sources}) > 1:
                dropped.add(op.id)
                for given in op.inputs:
                    storages[given.storage] = replace(target, id=given.storage)
            writer[each.storage] = op.id
    return replace(graph, storages=storages), dropped


class _Uses:
    """Where each storage of the forward pass is made and read, by stage."""

    def __init__(self, graph: OperatorGraph, at: list[int]) -> None:
        self._graph, self._at = graph, at
        self._maker: dict[int, Operator] = {}
        self._read: dict[int, set[int]] = {}
        self._cheap: set[int] = set()  # operators that need no weight: any stage may do them itself
        for op in graph:
            if op.phase is not Phase.FORWARD:
                continue
            for each in op.inputs:
                self._read.setdefault(each.storage, set()).add(at[op.id])
            for each in op.outputs:
                self._maker.setdefault(each.storage, op)
            if not op.group and all(self._free(each.storage) for each in op.inputs):
                self._cheap.add(op.id)

    def _free(self, storage: int) -> bool:
        maker = self._maker.get(storage)
        if maker is None:
            return self._graph.storages[storage].role is not Role.WEIGHT
        return maker.id in self._cheap

    def copied(self, stage: int) -> list[Operator]:
        """Operators of earlier stages that this one does again rather than receive: position ids, rotations, masks."""
        wanted = [each for each, stages in self._read.items() if stage in stages and each in self._maker]
        found: dict[int, Operator] = {}
        while wanted:
            maker = self._maker[wanted.pop()]
            if self._at[maker.id] < stage and maker.id in self._cheap and maker.id not in found:
                found[maker.id] = maker
                wanted += [each.storage for each in maker.inputs if each.storage in self._maker]
        return [found[each] for each in sorted(found)]

    def crossing(self, stage: int) -> frozenset[int]:
        """Storages made up to *stage* and read by a later one."""
        return frozenset(
            storage
            for storage, maker in self._maker.items()
            if self._at[maker.id] <= stage
            and maker.id not in self._cheap
            and any(reader > stage for reader in self._read.get(storage, ()))
        )

    def kept(self, forward: Iterable[Operator], backward: Iterable[Operator]) -> frozenset[int]:
        """Activations of a stage's forward pass that its backward pass reads, or that the program holds till then."""
        graph = self._graph
        late = {op.id for op in backward}
        needed = {each.storage for op in backward for each in (*op.inputs, *op.outputs)}
        needed |= {storage for storage, moment in graph.released.items() if moment in late}
        touched = {each.storage for op in forward for each in (*op.inputs, *op.outputs)}
        return frozenset(each for each in touched & needed if graph.storages[each].role is Role.ACTIVATION)


def _part(graph: OperatorGraph, ops: Iterable[Operator], outputs: frozenset[int]) -> OperatorGraph:
    """Return a graph of *ops* alone, with only the storages that they use; what they wait for is known already."""
    made = OperatorGraph(graph.workload)
    number: dict[int, int] = {}
    names: dict[int, int] = {}
    for op in ops:
        for each in (*op.inputs, *op.outputs):
            if each.storage not in names:
                old = graph.storages[each.storage]
                names[each.storage] = made.add_storage(old.name, old.role, old.nbytes).id
        number[op.id] = len(made)
        deps = tuple(number[each] for each in op.deps if each in number)
        made.operators.append(placed(renamed(op, names), number[op.id], deps))
    made.outputs = frozenset(names[each] for each in graph.outputs | outputs if each in names)
    held = graph.released.items()
    made.released = {names[key]: number[op] for key, op in held if key in names and op in number}
    made.uncovered = {target: sum(op.target == target for op in made) for target in graph.uncovered}
    return made
