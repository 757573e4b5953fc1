"""Tensor parallelism: the graph of one rank, with the collectives between the ranks where layouts ask for them.

Megatron-LM (Shoeybi et al. 2019) and its sequence parallelism (Korthikanti et al. 2022) come out for a transformer:
an all-reduce behind each row-parallel product and, in the backward pass, before each column-parallel one; or a
reduce-scatter and an all-gather, and in the backward pass an all-gather of the activations that were kept divided.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from simulator.dims import AttentionDims, Dims, MatmulDims
from simulator.dtypes import DType
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role, Tensor
from simulator.parallel.builder import Builder
from simulator.parallel.decisions import Decision
from simulator.parallel.layouts import WHOLE, Layout, Split
from simulator.parallel.plan import Plan
from simulator.parallel.roles import Roles, find_roles


@dataclass(frozen=True, slots=True)
class Sharded:
    """One rank's graph, without the optimizer.

    layers    of each operator, -1 before the first layer; *depth* how many there are.
    partial   storages of gradients that are still to be summed over the tensor-parallel ranks.
    repeated  modules of weights that several of these ranks hold, and how many: their gradients are summed over those.
    """

    graph: OperatorGraph
    layers: list[int]
    depth: int
    partial: frozenset[int]
    repeated: tuple[frozenset[str], int]
    notes: tuple[str, ...]


def shard_tensors(graph: OperatorGraph, plan: Plan) -> Sharded:
    """Divide *graph* over ``plan.tp`` ranks; its optimizer is left out, since it belongs to the data-parallel half."""
    writing = _Writing(find_roles(graph, plan), plan)
    for op, decision, layer in zip(graph, writing.roles.decisions, writing.roles.layers, strict=True):
        if op.phase is not Phase.OPTIMIZER:
            writing.write(op, decision, layer)
    return writing.close()


class _Writing:
    """One pass over the traced graph, with what is where by now."""

    def __init__(self, roles: Roles, plan: Plan) -> None:
        self.roles = roles
        self._graph = roles.graph
        self._group = plan.ranks_of("tp")
        self._builder = Builder(roles.graph.workload)
        self._new: dict[int, int] = {}  # storage of the traced graph -> where its value is now
        self._first: dict[int, int] = {}  # -> where it came into being
        self._layout: dict[int, Layout] = {}
        self._whole: dict[int, tuple[Phase, int]] = {}  # gathered copies, for as long as a phase lasts
        self._number: dict[int, int] = {}  # operator of the traced graph -> here
        self._source: dict[int, tuple[str, int]] = {}  # module and layer that wrote a storage

    def write(self, op: Operator, decision: Decision, layer: int) -> None:
        """Append *op* as a rank runs it, after what has to be sent for it."""
        dims = decision.dims
        shapes_in = [_cut(self.roles, op, each, need, place, dims) for place, (each, need) in
                     enumerate(zip(op.inputs, decision.needs, strict=True))]  # fmt: skip
        inputs = [
            self._input(op, tensor, need, shape, layer)
            for tensor, need, shape in zip(op.inputs, decision.needs, shapes_in, strict=True)
        ]
        waits = [self._small(op, count, layer) for count in decision.reduces]
        outputs = []
        for tensor, gives in zip(op.outputs, decision.gives, strict=True):
            shape = _cut(self.roles, op, tensor, gives, -1, dims)
            outputs.append(Tensor(self._output(tensor, gives, shape), shape, tensor.dtype))
            self._source[tensor.storage] = (op.module, layer)
            self._whole.pop(tensor.storage, None)
        deps = [self._number[each] for each in op.deps]
        made = self._local(op, decision, tuple(inputs), tuple(outputs))
        self._number[op.id] = self._builder.add(made, (*deps, *waits), layer).id

    def _input(self, op: Operator, tensor: Tensor, need: Layout, shape: tuple[int, ...], layer: int) -> Tensor:
        old = tensor.storage
        have = self._layout.get(old)
        if have is None:
            have = self._home(tensor, need, shape)
        if have.split is not need.split and have.split is Split.PARTIAL:
            self._sum(op, old, need)
        elif have.split is not need.split and have.divided and need.split is Split.WHOLE:
            return replace(tensor, storage=self._gathered(op, tensor, have, layer))
        return Tensor(self._new[old], shape, tensor.dtype)

    def _home(self, tensor: Tensor, need: Layout, shape: tuple[int, ...]) -> Layout:
        """Enter a storage of *tensor* that is there before the run."""
        home = self.roles.homes.get(tensor.storage, WHOLE)
        self._enter(tensor, home, shape if need.split is home.split else tensor.shape)
        return home

    def _output(self, tensor: Tensor, gives: Layout, shape: tuple[int, ...]) -> int:
        if tensor.storage not in self._new:
            home = self.roles.homes.get(tensor.storage, WHOLE)
            if home.split is not gives.split:  # filled with zeros for something that is divided
                shape = self.roles.sizes.cut(tensor, home)
            self._enter(tensor, home, shape)
        elif self._new[tensor.storage] != self._first[tensor.storage] and gives.split is Split.PARTIAL:
            self._new[tensor.storage] = self._first[tensor.storage]
        self._layout[tensor.storage] = gives if gives.split is not Split.FILLED else self._layout[tensor.storage]
        return self._new[tensor.storage]

    def _enter(self, tensor: Tensor, home: Layout, shape: tuple[int, ...]) -> None:
        storage = self._graph.storages[tensor.storage]
        local = replace(tensor, shape=shape)
        size = -(-storage.nbytes * local.elements // tensor.elements) if tensor.elements else storage.nbytes
        made = self._builder.storage(storage.name, storage.role, size if home.divided else storage.nbytes)
        self._new[tensor.storage] = self._first[tensor.storage] = made.id
        self._layout[tensor.storage] = home

    def _sum(self, op: Operator, old: int, need: Layout) -> None:
        """Sum a partial storage over the ranks, in place, or into the part of the tokens that this rank has."""
        storage = self._builder.graph.storages[self._new[old]]
        dtype = _dtype(self._graph, op, old)
        whole = Tensor(storage.id, (storage.nbytes * 8 // dtype.bits,), dtype)
        module, layer = self._source[old]
        if need.split is Split.TOKENS:
            part = replace(whole, shape=(need.part(whole.elements),))
            made = self._builder.storage(storage.name, storage.role, part.nbytes)
            target = replace(part, storage=made.id)
            self._send("reduce_scatter", op, whole, target, module, layer)
            self._new[old] = made.id
            self._layout[old] = replace(need, origins=frozenset())
        else:
            self._send("all_reduce", op, whole, whole, module, layer)
            self._layout[old] = WHOLE

    def _gathered(self, op: Operator, tensor: Tensor, have: Layout, layer: int) -> int:
        """Return the storage of all parts of *tensor*'s storage together, gathered once a phase."""
        old = tensor.storage
        known = self._whole.get(old)
        if known is not None and known[0] is op.phase:
            return known[1]
        part = self._builder.graph.storages[self._new[old]]
        dtype = tensor.dtype
        size = self._graph.storages[old].nbytes
        made = self._builder.storage(part.name, Role.ACTIVATION, size)
        source = Tensor(part.id, (part.nbytes * 8 // dtype.bits,), dtype)
        self._send("all_gather", op, source, Tensor(made.id, (size * 8 // dtype.bits,), dtype), op.module, layer)
        self._whole[old] = (op.phase, made.id)
        return made.id

    def _send(self, pattern: str, op: Operator, source: Tensor, target: Tensor, module: str, layer: int) -> None:
        self._builder.collective(pattern, self._group, (source,), (target,), module=module, phase=op.phase, layer=layer)

    def _small(self, op: Operator, count: int, layer: int) -> int:
        """An all-reduce of one fp32 number a row, inside *op*."""
        made = self._builder.storage(f"{op.target}.rows", Role.ACTIVATION, 4 * count)
        rows = Tensor(made.id, (count,), DType.FP32)
        deps = [self._number[each] for each in op.deps]
        sent = self._builder.collective(
            "all_reduce", self._group, (rows,), (rows,), module=op.module, phase=op.phase, layer=layer, deps=deps
        )
        return sent.id

    def _local(
        self, op: Operator, decision: Decision, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]
    ) -> Operator:
        """*op* on its part: FLOPs by its sizes or its share, traffic by its tensors."""
        dims = decision.dims or op.dims
        part, parts = decision.work
        flops = -(-op.flops * part // parts)
        if isinstance(op.dims, MatmulDims | AttentionDims) and isinstance(dims, MatmulDims | AttentionDims):
            flops = dims.flops if op.flops == op.dims.flops else op.flops * dims.flops // max(1, op.dims.flops)
        reads = self._traffic(op.reads, op.inputs, inputs)
        if op.target == "aten.embedding":
            ids = op.inputs[1].nbytes
            reads = inputs[1].nbytes + decision.needs[0].part(op.reads - ids)
        return Operator(
            op.id, op.module, op.target, op.kind, op.phase, inputs, outputs, flops, reads,
            self._traffic(op.writes, op.outputs, outputs), (), op.dtype, dims, op.dispatches, op.group,
        )  # fmt: skip

    def _traffic(self, traced: int, before: Sequence[Tensor], after: Sequence[Tensor]) -> int:
        """Bytes of an operator whose operands shrink: of dense ones exactly theirs."""
        old, new = _touched(before, self._graph), _touched(after, self._builder.graph)
        if traced == old or not old:
            return new if traced else 0
        return traced * new // old

    def close(self) -> Sharded:
        """Return the rank's graph."""
        self._finish_outputs()
        graph = self._builder.graph
        graph.outputs = frozenset(self._new[each] for each in self._graph.outputs if each in self._new)
        graph.uncovered = dict(self._graph.uncovered)
        for old, moment in self._graph.released.items():
            if old in self._new and moment in self._number:
                graph.released[self._new[old]] = self._number[moment]
        partial = frozenset(
            new
            for old, new in self._new.items()
            if self._layout[old].split is Split.PARTIAL and self._graph.storages[old].role is Role.GRADIENT
        )
        weights, times = self.roles.repeated
        modules = frozenset(self._graph.storages[each].name.rpartition(".")[0] for each in weights)
        return Sharded(graph, self._builder.layers, self.roles.depth, partial, (modules, times), self.roles.notes)

    def _finish_outputs(self) -> None:
        """What the program returns is whole on every rank; keys and values that it keeps for later stay divided."""
        last = {tensor.storage: (op, tensor) for op in self._graph for tensor in op.outputs}
        used = {tensor.storage for op in self._graph for tensor in op.inputs}
        for old in sorted(self._graph.outputs):
            if old not in self._new or old not in last:
                continue
            op, tensor = last[old]
            layer = self._builder.layers[-1]
            if self._layout[old].split is Split.PARTIAL:
                self._sum(op, old, WHOLE)
            elif self._layout[old].divided and old not in used:
                self._new[old] = self._gathered(op, tensor, self._layout[old], layer)


def _dtype(graph: OperatorGraph, op: Operator, storage: int) -> DType:
    return next(each.dtype for each in (*op.inputs, *op.outputs) if each.storage == storage)


def _cut(roles: Roles, op: Operator, tensor: Tensor, layout: Layout, place: int, dims: Dims | None) -> tuple[int, ...]:
    """The shape that a rank has of an operand: *place* among the inputs, or -1 of an output."""
    old = op.dims
    operand = op.kind is OpKind.MATMUL and tensor.dtype.floating and len(tensor.shape) > 1
    if operand and isinstance(old, MatmulDims) and isinstance(dims, MatmulDims):
        return _cut_matmul(op, tensor.shape, place, old, dims)
    return roles.sizes.cut(tensor, layout)


def _cut_matmul(op: Operator, shape: tuple[int, ...], place: int, old: MatmulDims, new: MatmulDims) -> tuple[int, ...]:
    """Operands of a product are [m, k], [k, n] and [m, n], with a batch or groups before."""
    if place == -1:
        names = ("m", "n")
    else:
        floats = [index for index, each in enumerate(op.inputs) if len(each.shape) > 1 and each.dtype.floating]
        names = ("m", "k") if place == floats[0] else ("k", "n")
    found = list(shape)
    for axis, name in zip((-2, -1), names, strict=True):
        if found[axis] == getattr(old, name):
            found[axis] = getattr(new, name)
    if len(found) > 2 and old.batch > 1 and found[0] == old.batch:
        found[0] = new.batch
    return tuple(found)


def _touched(tensors: Sequence[Tensor], graph: OperatorGraph) -> int:
    """Bytes of *tensors*; of an expanded one no more than there are."""
    return sum(min(each.nbytes, graph.storages[each.storage].nbytes) for each in tensors)
