"""From PyTorch to the dialect: the traced operator graph gives the structure, the module its numbers.

The graph knows shapes, not arguments and strides, so a result is never trusted: the imported program is run on the
module's own arguments and has to give what the module gives.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from xdsl.dialects import func
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue

from frontends import trace
from simulator.errors import TraceError
from simulator.graph import Operator, OperatorGraph, Role, Tensor
from workloads.compiler.dialect import ops
from workloads.compiler.dialect.execute import run

_CLOSE = 1e-4
_TWO: dict[str, Callable[[SSAValue, SSAValue], Operation]] = {
    "aten.add": ops.AddOp, "aten.sub": ops.SubOp, "aten.mul": ops.MulOp, "aten.mm": ops.MatmulOp,
}  # fmt: skip
_KNOWN = ("aten.addmm", "aten.relu", *_TWO)


def from_torch(module: nn.Module, *args: torch.Tensor) -> ModuleOp:
    """Return function ``main`` that does what ``module(*args)`` does, its weights as constants.

    Raises TraceError for operators that the dialect has no word for, and where the result is not the module's.
    """
    # on the meta device, so that arguments that share memory here are still two arguments
    graph = trace(module, [torch.empty_like(each, device="meta") for each in args], dtype="fp32")
    found = _Import(graph, module, args).build()
    with torch.no_grad():
        wanted = module(*args).float().numpy()
    got = run(found, *(each.float().numpy() for each in args), printed=lambda _: None)[0]
    if got.shape != wanted.shape or not np.allclose(got, wanted, rtol=_CLOSE, atol=_CLOSE):
        raise TraceError(
            "the imported program does not give what the module gives: the graph holds no arguments and no strides, "
            "so factors of add, views and transposed activations get lost"
        )
    return found


@dataclass(slots=True)
class _Import:
    graph: OperatorGraph
    module: nn.Module
    args: Sequence[torch.Tensor]
    block: Block = field(default_factory=Block)
    at: dict[int, SSAValue] = field(default_factory=dict)

    def build(self) -> ModuleOp:
        """Lay out arguments, then operators in order, then the results."""
        inputs = [each for each in self.graph.storages if each.role is Role.INPUT]
        if len(inputs) != len(self.args):
            raise TraceError(f"{len(self.args)} arguments, of which the program reads {len(inputs)}")
        kinds = [ops.tensor_type(each.shape) for each in self.args]
        self.block = Block(arg_types=kinds)
        self.at = {each.id: value for each, value in zip(inputs, self.block.args, strict=True)}
        for op in self.graph:
            self._enter(op)
        results = [self.at[each] for each in sorted(self.graph.outputs)]
        self.block.add_op(ops.ReturnOp(*results))
        kind = FunctionType.from_lists(kinds, [each.type for each in results])
        found = ModuleOp([func.FuncOp("main", kind, Region(self.block))])
        found.verify()
        return found

    def _enter(self, op: Operator) -> None:
        if op.target not in _KNOWN:
            raise TraceError(f"{op.name}: the dialect has no operation for it (known: {', '.join(_KNOWN)})")
        operands = [self._operand(op, each) for each in op.inputs]
        made: Operation
        if op.target == "aten.addmm":
            bias, left, right = operands
            product = self._add(ops.MatmulOp(left, right))
            made = ops.AddOp(product, bias)
        elif op.target == "aten.relu":
            made = ops.ReluOp(operands[0])
        elif len(operands) == 2:
            made = _TWO[op.target](*operands)
        else:
            raise TraceError(f"{op.name}: its other operand is a number, which the graph does not hold")
        self.at[op.outputs[0].storage] = self._add(made)

    def _add(self, op: Operation) -> SSAValue:
        self.block.add_op(op)
        return op.results[0]

    def _operand(self, op: Operator, tensor: Tensor) -> SSAValue:
        """The value of *tensor*, transposed where that is how the operator reads it."""
        storage = self.graph.storages[tensor.storage]
        if tensor.storage not in self.at:
            self.at[tensor.storage] = self._weight(storage.name)
        value = self.at[tensor.storage]
        shape = ops.shape_of(value)
        linear = isinstance(self.module.get_submodule(op.module), nn.Linear) and storage.name.endswith("weight")
        if len(shape) == 2 and tensor.shape == shape[::-1] and (linear or tensor.shape != shape):
            return self._add(ops.TransposeOp(value))
        if tensor.shape != shape:
            raise TraceError(f"{op.name} reads {storage.name} of {list(shape)} as {list(tensor.shape)}")
        return value

    def _weight(self, name: str) -> SSAValue:
        found = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}.get(name)
        if found is None:
            raise TraceError(f"{name} is no parameter or buffer of the module")
        return self._add(ops.ConstantOp(ops.dense(found.detach().float().numpy())))
