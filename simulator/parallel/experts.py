"""Expert parallelism: each rank has some of the experts, and tokens travel to them and back.

Every rank sends each token's rows to the ranks of its experts (dispatch) and gets the results back (combine): two
all-to-alls of all rows forward and two backward (Lepikhin et al., GShard, 2020).  Experts are taken as equally busy, so
that a rank works on as many rows as before, for fewer experts.
"""

from dataclasses import replace

from simulator.dims import MatmulDims
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role, Tensor
from simulator.parallel.plan import Plan
from simulator.parallel.rewriting import Rewriting
from simulator.parallel.tensor import Sharded

_ALONG = frozenset({"aten._to_copy", "aten.cat", "aten.clone"})


def shard_experts(sharded: Sharded, plan: Plan) -> Sharded:
    """Return *sharded* with the experts of grouped products divided over ``plan.ep`` ranks."""
    if plan.ep == 1:
        return sharded
    inside = _region(sharded.graph)
    owned = expert_storages(sharded.graph)
    storages = [
        replace(each, nbytes=-(-each.nbytes // plan.ep)) if each.id in owned else each
        for each in sharded.graph.storages
    ]
    travel = _Travel(Rewriting(sharded.graph, storages), plan)
    for op, layer in zip(sharded.graph, sharded.layers, strict=True):
        if op.id in inside:
            travel.inside(_fewer(op, plan.ep, owned), layer)
        else:
            travel.outside(op, layer)
    return replace(sharded, graph=travel.made.close(), layers=travel.made.layers)


def expert_storages(graph: OperatorGraph) -> frozenset[int]:
    """Weights of grouped products, and their gradients."""
    roles = (Role.WEIGHT, Role.GRADIENT)
    return frozenset(
        each.storage
        for op in graph
        if _grouped(op)
        for each in (*op.inputs, *op.outputs)
        if graph.storages[each.storage].role in roles
    )


def _grouped(op: Operator) -> bool:
    return isinstance(op.dims, MatmulDims) and op.dims.groups > 1


def _region(graph: OperatorGraph) -> set[int]:
    """Operators that work on rows where the experts are: grouped products, and what is fed by them alone."""
    made: set[int] = set()
    found: set[int] = set()
    for op in graph:
        along = op.kind is OpKind.POINTWISE or op.target in _ALONG
        if _grouped(op) or (along and op.inputs and all(each.storage in made for each in op.inputs)):
            found.add(op.id)
            made |= {each.storage for each in op.outputs}
        else:
            made -= {each.storage for each in op.outputs}
    return found


def _fewer(op: Operator, ways: int, owned: frozenset[int]) -> Operator:
    """*op* with its part of the experts: as many rows, fewer matrices."""
    if not _grouped(op):
        return op
    assert isinstance(op.dims, MatmulDims)  # grouped
    saved = [sum(each.nbytes - each.nbytes // ways for each in side if each.storage in owned) for side in
             (op.inputs, op.outputs)]  # fmt: skip

    def cut(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(
            replace(each, shape=(each.shape[0] // ways, *each.shape[1:])) if each.storage in owned else each
            for each in tensors
        )

    return replace(
        op, inputs=cut(op.inputs), outputs=cut(op.outputs), reads=max(0, op.reads - saved[0]),
        writes=max(0, op.writes - saved[1]), dims=replace(op.dims, groups=op.dims.groups // ways),
    )  # fmt: skip


class _Travel:
    """Rows on their way: a storage made on one side has a copy on the other once it is needed there."""

    def __init__(self, made: Rewriting, plan: Plan) -> None:
        self.made = made
        self._group = plan.ranks_of("ep")
        self._there: dict[int, int] = {}  # storage -> its copy where the experts are
        self._back: dict[int, int] = {}  # made by experts -> its copy where the tokens are
        self._experts: set[int] = set()

    def inside(self, op: Operator, layer: int) -> None:
        """An operator of the experts: rows from outside are dispatched first."""
        for each in op.inputs:
            storage = self.made.graph.storages[each.storage]
            far = each.storage in self._experts or each.storage in self._there
            if storage.role is Role.ACTIVATION and each.dtype.floating and not far:
                self._there[each.storage] = self._send(each, op, layer)
        self._experts |= {each.storage for each in op.outputs}
        self.made.keep(op, layer, self._there)

    def outside(self, op: Operator, layer: int) -> None:
        """Any other operator: results of experts come back first."""
        for each in op.inputs:
            if each.storage in self._experts and each.storage not in self._back and op.phase is not Phase.OPTIMIZER:
                role = self.made.graph.storages[each.storage].role
                if role is Role.ACTIVATION:
                    self._back[each.storage] = self._send(each, op, layer)
        self.made.keep(op, layer, self._back)

    def _send(self, tensor: Tensor, op: Operator, layer: int) -> int:
        storage = self.made.graph.storages[tensor.storage]
        copy = self.made.storage(storage.name, storage.role, storage.nbytes)
        whole = Tensor(storage.id, (storage.nbytes * 8 // tensor.dtype.bits,), tensor.dtype)
        self.made.collective(
            "all_to_all", self._group, (whole,), (replace(whole, storage=copy.id),),
            module=op.module, phase=op.phase, layer=layer,
        )  # fmt: skip
        return copy.id
