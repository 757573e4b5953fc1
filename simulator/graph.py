"""The operator graph: what a program asks of any hardware, with no word about the hardware.

Operators refer to tensors, tensors to storages.  A storage is a piece of memory with an identity, so that
lifetimes, and with them peak memory, follow from the graph; a tensor is one way of looking at a storage, so that
views cost nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod
from typing import TYPE_CHECKING

from simulator.dims import Dims
from simulator.dtypes import DType
from simulator.errors import GraphError

if TYPE_CHECKING:
    import networkx as nx


class OpKind(StrEnum):
    """What decides how an operator is timed, and nothing finer."""

    MATMUL = "matmul"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    MOVE = "move"
    COLLECTIVE = "collective"
    OTHER = "other"  # no rule: costed by its bytes, and reported


class Phase(StrEnum):
    """Which part of a step an operator belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    RECOMPUTE = "recompute"  # forward work done again in the backward pass (activation checkpointing)
    OPTIMIZER = "optimizer"


class Role(StrEnum):
    """What a storage is for."""

    WEIGHT = "weight"
    BUFFER = "buffer"
    INPUT = "input"
    CACHE = "cache"
    ACTIVATION = "activation"
    GRADIENT = "gradient"
    OPTIMIZER = "optimizer"
    WORKSPACE = "workspace"  # of a library: no storage of the program's

    @property
    def resident(self) -> bool:
        """Whether it is there before the first operator and after the last."""
        return self not in (Role.ACTIVATION, Role.GRADIENT)


@dataclass(frozen=True, slots=True)
class Storage:
    """A piece of device memory: *nbytes* for one *role*, under the *name* the user's program gives it."""

    id: int
    name: str
    role: Role
    nbytes: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """One way of looking at a storage: *shape* elements of *dtype*; the values are never kept."""

    storage: int
    shape: tuple[int, ...]
    dtype: DType

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, rounded up to a whole byte (int4)."""
        return (prod(self.shape) * self.dtype.bits + 7) // 8


@dataclass(frozen=True, slots=True)
class Operator:
    """One unit of work: what eager PyTorch launches as one kernel.

    module      path of the module that asked for it in the user's program, such as ``blocks.3.mlp.up``.
    target      the operator's own name, such as ``aten.mm`` or ``adamw``.
    inputs      tensors read, *outputs* tensors written (in place: in both).
    flops       multiply and add count as two; causal attention counts the pairs that the mask leaves.
    reads       bytes that must come from memory if nothing is cached; *writes* bytes that go there.
    deps        ids of the operators that must finish first; all smaller than *id*.
    dtype       the type whose peak rate bounds the arithmetic.
    dims        sizes that the compute models need, by kind.
    dispatches  calls into the framework that the host makes for it (views before it included).
    group       ranks of a collective, in ring order; empty for every other kind.
    """

    id: int
    module: str
    target: str
    kind: OpKind
    phase: Phase
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    flops: int
    reads: int
    writes: int
    deps: tuple[int, ...]
    dtype: DType
    dims: Dims | None = None
    dispatches: int = 1
    group: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Module path, operator and phase, as reports print it."""
        label = f"{self.module}/{self.target}" if self.module else self.target
        return label if self.phase is Phase.FORWARD else f"{label} ({self.phase})"

    @property
    def nbytes(self) -> int:
        """Bytes read and written."""
        return self.reads + self.writes

    @property
    def intensity(self) -> float:
        """Arithmetic intensity in FLOP per byte; 0 for an operator that moves nothing."""
        return self.flops / self.nbytes if self.nbytes else 0.0


@dataclass(frozen=True, slots=True)
class Workload:
    """What one run of the graph does, for rates and captions.

    phase    prefill, decode, train, or forward for a program of which no more is known.
    batch    sequences; *tokens* processed in the run over all of them (decode: one each).
    context  positions that attention looks back on, the new ones included; 0 if not known.
    dtype    of the weights, which names the peak that utilisation refers to.
    """

    name: str
    phase: str = "forward"
    batch: int = 1
    tokens: int = 0
    context: int = 0
    dtype: DType = DType.BF16


@dataclass(slots=True)
class OperatorGraph:
    """Operators in an order in which they could run: each one's deps stand before it.

    Append-only, so the order of ids is a topological order and no pass has to sort.

    outputs    storages that must outlive the run: what the program returns.
    released   storage -> operator at whose end the program let go of it, where that is later than its last use.
    uncovered  targets that no rule knew, and how often; their operators are costed by bytes.
    """

    workload: Workload
    storages: list[Storage] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    outputs: frozenset[int] = frozenset()
    released: dict[int, int] = field(default_factory=dict)
    uncovered: dict[str, int] = field(default_factory=dict)

    def add_storage(self, name: str, role: Role, nbytes: int) -> Storage:
        """Append a storage and return it; its id is its place."""
        if nbytes < 0:
            raise GraphError(f"storage {name}: {nbytes} bytes")
        storage = Storage(len(self.storages), name, role, nbytes)
        self.storages.append(storage)
        return storage

    def add(self, operator: Operator) -> Operator:
        """Append *operator* after checking it against what stands before it; GraphError says what is wrong."""
        check(operator, len(self.operators), len(self.storages))
        self.operators.append(operator)
        return operator

    def __iter__(self) -> Iterator[Operator]:
        return iter(self.operators)

    def __len__(self) -> int:
        return len(self.operators)

    @property
    def flops(self) -> int:
        return sum(op.flops for op in self.operators)

    @property
    def model_flops(self) -> int:
        """FLOPs of matrix products and attention, recomputation left out: the numerator of MFU."""
        return sum(op.flops for op in self.operators if op.kind in MATRIX_KINDS and op.phase is not Phase.RECOMPUTE)

    def bytes_of(self, role: Role) -> int:
        """Bytes of all storages with that role."""
        return sum(storage.nbytes for storage in self.storages if storage.role is role)

    def to_networkx(self) -> "nx.DiGraph[int]":
        """Return ids as nodes, each with its operator, and dependencies as edges."""
        import networkx as nx  # noqa: PLC0415  a tenth of a second that only drawing and tests need

        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from((op.id, {"operator": op}) for op in self.operators)
        graph.add_edges_from((dep, op.id) for op in self.operators for dep in op.deps)
        return graph


MATRIX_KINDS = frozenset({OpKind.MATMUL, OpKind.ATTENTION, OpKind.CONVOLUTION})


def check(operator: Operator, next_id: int, storages: int) -> None:
    """Raise GraphError unless *operator* may stand at *next_id* in a graph with that many storages."""
    fault = _fault(operator, next_id, storages)
    if fault:
        raise GraphError(f"operator {operator.id} ({operator.name}): {fault}")


def _fault(op: Operator, next_id: int, storages: int) -> str | None:
    if op.id != next_id:
        return f"the next free id is {next_id}"
    for dep in op.deps:
        if not 0 <= dep < op.id:
            return f"depends on operator {dep}, which does not stand before it"
    for tensors in (op.inputs, op.outputs):
        for tensor in tensors:
            if not 0 <= tensor.storage < storages:
                return f"uses storage {tensor.storage}; the graph has {storages}"
            if tensor.shape and min(tensor.shape) < 0:
                return f"has a tensor of shape {tensor.shape}"
    if op.flops < 0 or op.reads < 0 or op.writes < 0 or op.dispatches < 0:
        return (
            f"flops {op.flops}, reads {op.reads}, writes {op.writes}, dispatches {op.dispatches}: none may be negative"
        )
    if (op.kind is OpKind.COLLECTIVE) != bool(op.group):
        return "a collective, and only a collective, names its group"
    return None
