"""The end of a step on one rank: gradients that other ranks share, and the optimizer over what this one updates."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simulator.dtypes import DType
from simulator.errors import GraphError
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role, Tensor
from simulator.parallel.builder import Builder
from simulator.parallel.plan import Plan

_PER_LAUNCH = 36  # tensors that one kernel of torch's fused optimizers takes


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight as one rank holds it before data parallelism: *name*, *elements* of *dtype*; of *experts* or of all."""

    name: str
    elements: int
    dtype: DType
    expert: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """What the traced optimizer does: *flops* an element, and names of the *states* it keeps of each.

    gradients  names of gradients by those of the weights that they belong to.
    """

    target: str
    flops: int
    states: tuple[str, ...]
    gradients: dict[str, str]
    dtype: DType


def update_of(graph: OperatorGraph) -> Update | None:
    """Return what the optimizer of a traced step does, or None; GraphError if it is no single fused operator."""
    ops = [op for op in graph if op.phase is Phase.OPTIMIZER]
    if not ops:
        return None
    if len(ops) > 1 or not ops[0].inputs or _role(graph, ops[0].inputs[0]) is not Role.WEIGHT:
        raise GraphError(f"a parallel plan needs one fused optimizer operator, got {len(ops)} (first: {ops[0].name})")
    op = ops[0]
    groups: list[list[Tensor]] = []
    for each in op.inputs:
        if _role(graph, each) is Role.WEIGHT:
            groups.append([])
        groups[-1].append(each)
    name = {each.id: each.name for each in graph.storages}
    weight = name[groups[0][0].storage]
    return Update(
        op.target,
        op.flops // sum(group[0].elements for group in groups),
        tuple(name[each.storage].removeprefix(f"{weight}.") for each in groups[0][2:]),
        {name[group[0].storage]: name[group[1].storage] for group in groups},
        op.dtype,
    )


def _role(graph: OperatorGraph, tensor: Tensor) -> Role:
    return graph.storages[tensor.storage].role


@dataclass(frozen=True, slots=True)
class Shared:
    """Gradients that *ranks* have parts of: norms under sequence parallelism, an embedding that is the head too."""

    ranks: tuple[int, ...]
    gradients: frozenset[str]


def optimizer(
    update: Update, weights: Sequence[Weight], plan: Plan, rank: int, shared: Iterable[Shared], source: OperatorGraph
) -> OperatorGraph:
    """Return the end of a step: all-reduces of *shared* gradients, the update, zero=1|2: the gather of weights."""
    made = _Closing(update, plan, rank, Builder(source.workload))
    for weight in weights:
        made.enter(weight)
    for each in shared:
        made.share(each)
    made.update()
    if plan.zero in (1, 2):
        made.gather()
    return made.builder.graph


class _Closing:
    def __init__(self, update: Update, plan: Plan, rank: int, builder: Builder) -> None:
        self.builder = builder
        self._update, self._mixed, self._zero = update, plan.precision == "mixed", plan.zero
        self._groups = {False: plan.ranks_of("dp", rank), True: plan.expert_data_ranks(rank)}
        self._weights: dict[bool, list[tuple[Tensor, Tensor]]] = {False: [], True: []}  # own part, and all of it
        self._gradients: dict[str, Tensor] = {}
        self._read: list[Tensor] = []
        self._written: list[Tensor] = []
        self._elements = 0

    def enter(self, weight: Weight) -> None:
        """Enter the storages of *weight*, in the parts that this replica has."""
        ways = len(self._groups[weight.expert])
        own = -(-weight.elements // ways) if self._zero else weight.elements
        held = Tensor(0, (own if self._zero == 3 else weight.elements,), weight.dtype)
        part = self._tensor(weight.name, Role.WEIGHT, held, own)
        whole = Tensor(part.storage, held.shape, weight.dtype)
        self._weights[weight.expert].append((part, whole))
        kind = DType.FP32 if self._mixed else weight.dtype
        name = self._update.gradients[weight.name]
        kept = Tensor(0, (own if self._zero > 1 else weight.elements,), kind)
        self._gradients[name] = Tensor(self._tensor(name, Role.GRADIENT, kept, own).storage, kept.shape, kind)
        gradient = Tensor(self._gradients[name].storage, (own,), kind)
        names = (*self._update.states, "master") if self._mixed else self._update.states
        states = [self._tensor(f"{weight.name}.{each}", Role.OPTIMIZER, Tensor(0, (own,), kind), own) for each in names]
        self._read += [gradient, *states] if self._mixed else [part, gradient, *states]
        self._written += [part, *states]
        self._elements += own

    def _tensor(self, name: str, role: Role, held: Tensor, own: int) -> Tensor:
        storage = self.builder.storage(name, role, held.nbytes)
        return Tensor(storage.id, (own,), held.dtype)

    def share(self, shared: Shared) -> None:
        tensors = [tensor for name, tensor in self._gradients.items() if name in shared.gradients]
        if tensors and len(shared.ranks) > 1:
            self.builder.collective("all_reduce", shared.ranks, tensors, tensors, module="", phase=Phase.OPTIMIZER)

    def update(self) -> None:
        """One kernel over all that this replica updates."""
        if not self._elements:
            return
        read, written = tuple(self._read), tuple(self._written)
        self.builder.add(
            Operator(
                id=0, module="", target=self._update.target, kind=OpKind.POINTWISE, phase=Phase.OPTIMIZER, inputs=read,
                outputs=written, flops=self._update.flops * self._elements, reads=sum(each.nbytes for each in read),
                writes=sum(each.nbytes for each in written), deps=(), dtype=self._update.dtype,
                dispatches=-(-sum(map(len, self._weights.values())) // _PER_LAUNCH),
            )
        )  # fmt: skip

    def gather(self) -> None:
        """Every replica gets the weights that the others have updated."""
        for expert, pairs in self._weights.items():
            group = self._groups[expert]
            if pairs and len(group) > 1:
                parts, wholes = zip(*pairs, strict=True)
                self.builder.collective("all_gather", group, parts, wholes, module="", phase=Phase.OPTIMIZER)
