"""A fused chain: which values it reads, what it does to them, in order."""

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.graph import Operator, OperatorGraph, Tensor
from workloads.compiler.fusion.operations import OPERATIONS


@dataclass(frozen=True, slots=True)
class Step:
    """One operator: its *target* applied to *operands*, numbers of values (those read first, then one a step)."""

    target: str
    operands: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """Pointwise operators whose only result that anything else sees is the last one's.

    inputs  tensors read from memory, each once; *output* the tensor written.
    rows    of the loop, and *columns* in each; an input with one row's elements is the same for every row.
    """

    inputs: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    output: Tensor

    @property
    def columns(self) -> int:
        """Length of the innermost loop."""
        rows = [tensor.elements for tensor in self.inputs if self.is_row(tensor)]
        return rows[0] if rows else self.output.elements

    @property
    def rows(self) -> int:
        """How often the innermost loop runs."""
        return self.output.elements // self.columns if self.columns else 0

    def is_row(self, tensor: Tensor) -> bool:
        """Whether *tensor* is read again for each row."""
        return tensor.shape != self.output.shape

    @property
    def text(self) -> str:
        """The steps as one expression's names, such as ``silu, mul, add``."""
        return ", ".join(step.target.removeprefix("aten.") for step in self.steps)


def writable(graph: OperatorGraph, op: Operator) -> bool:
    """Whether the generator can write *op*: an operator it knows, on whole tensors that need no addresses worked out.

    A piece of a storage would do too, but two pieces of the same shape look the same in the graph.
    """
    known = OPERATIONS.get(op.target)
    if known is None or len(op.inputs) != known.arity or len(op.outputs) != 1:
        return False
    result = op.outputs[0]
    return all(
        tensor.dtype is result.dtype
        and tensor.storage != result.storage
        and tensor.nbytes == graph.storages[tensor.storage].nbytes
        and (tensor.shape == result.shape or (len(tensor.shape) == 1 and tensor.shape == result.shape[-1:]))
        for tensor in op.inputs
    )


def chain_of(members: Sequence[Operator]) -> Chain:
    """Return what *members*, in program order, do together."""
    made = {op.outputs[0].storage for op in members}
    inputs = tuple(dict.fromkeys(t for op in members for t in op.inputs if t.storage not in made))
    number = {tensor.storage: index for index, tensor in enumerate(inputs)}
    steps = []
    for op in members:
        steps.append(Step(op.target, tuple(number[tensor.storage] for tensor in op.inputs)))
        number[op.outputs[0].storage] = len(inputs) + len(steps) - 1
    return Chain(inputs, tuple(steps), members[-1].outputs[0])
