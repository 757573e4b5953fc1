"""The way down: tensors become buffers and operations loops, in two steps.

`to_linalg` gives every result a buffer and says of each operation which elements meet; `to_loops` turns that into
nested loops of loads, arithmetic and stores.  Both return a new module.
"""

from collections.abc import Callable, Sequence
from typing import cast

from xdsl.dialects import arith, func, linalg, memref
from xdsl.dialects.builtin import (
    AffineMapAttr,
    FloatAttr,
    FunctionType,
    MemRefType,
    ModuleOp,
    ShapedType,
    StringAttr,
    UnitAttr,
    UnrankedMemRefType,
    f32,
)
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.transforms.convert_linalg_to_loops import ConvertLinalgToLoopsPass

from simulator.errors import SpecError
from workloads.compiler.dialect import ops
from workloads.compiler.dialect.text import context

PRINTER = "printMemrefF32"  # the name that MLIR's own runner library gives to a function that prints a buffer
_Body = Callable[[Sequence[SSAValue]], tuple[list[Operation], SSAValue]]
_ARITHMETIC: dict[type[Operation], type[arith.AddfOp | arith.SubfOp | arith.MulfOp]] = {
    ops.AddOp: arith.AddfOp,
    ops.SubOp: arith.SubfOp,
    ops.MulOp: arith.MulfOp,
}


def to_linalg(module: ModuleOp) -> ModuleOp:
    """Return *module*, functions of the dialect only, as linalg operations on memrefs."""
    found = ModuleOp([])
    for op in module.body.block.ops:
        if not isinstance(op, func.FuncOp):
            raise SpecError(f"{op.name} cannot be lowered; wanted functions of the lab dialect")
        found.body.block.add_op(_Function(found.body.block, op).lowered())
    _declare_printer(found)
    found.verify()
    return found


def to_loops(module: ModuleOp) -> ModuleOp:
    """Return what `to_linalg` made as scf loops over memrefs with arith in them."""
    found = module.clone()
    ConvertLinalgToLoopsPass().apply(context(), found)
    found.verify()
    return found


def _buffer_type(shape: Sequence[int]) -> MemRefType:
    return MemRefType(f32, list(shape))


def _declare_printer(module: ModuleOp) -> None:
    calls = [op for op in module.walk() if isinstance(op, func.CallOp)]
    if calls:
        module.body.block.add_op(func.FuncOp.external(PRINTER, [UnrankedMemRefType.from_type(f32)], []))


class _Function:
    """One function on its way down; its constants become globals in *top*."""

    def __init__(self, top: Block, function: func.FuncOp) -> None:
        self._top = top
        self._old = function
        self._block = Block(arg_types=[_buffer_type(ops.shape_of(each)) for each in function.body.block.args])
        self._at: dict[SSAValue, SSAValue] = dict(zip(function.body.block.args, self._block.args, strict=True))

    def lowered(self) -> func.FuncOp:
        """Return the function on memrefs."""
        for op in self._old.body.block.ops:
            self._lower(op)
        kind = FunctionType.from_lists(
            list(self._block.arg_types),
            [_buffer_type(cast(ShapedType, each).get_shape()) for each in self._old.function_type.outputs],
        )
        return func.FuncOp(self._old.sym_name.data, kind, Region(self._block))

    def _add(self, *made: Operation) -> None:
        self._block.add_ops(made)

    def _lower(self, op: Operation) -> None:
        operands = [self._at[each] for each in op.operands]
        if isinstance(op, ops.ReturnOp):
            self._add(func.ReturnOp(*operands))
        elif isinstance(op, ops.PrintOp):
            cast_op = memref.CastOp.get(operands[0], UnrankedMemRefType.from_type(f32))
            self._add(cast_op, func.CallOp(PRINTER, [cast_op.dest], []))
        elif isinstance(op, ops.ConstantOp):
            self._at[op.result] = self._constant(op)
        elif isinstance(op, ops.MatmulOp):
            self._at[op.result] = self._product(op, operands)
        elif isinstance(op, ops.TransposeOp):
            turned = AffineMap.from_callable(lambda i, j: (j, i))
            self._at[op.result] = self._each(op, operands, [turned], lambda values: ([], values[0]))
        elif isinstance(op, ops.ReluOp):
            self._at[op.result] = self._each(op, operands, [AffineMap.identity(_rank(op))], _cut)
        else:
            self._at[op.results[0]] = self._pointwise(op, operands)

    def _pointwise(self, op: Operation, operands: Sequence[SSAValue]) -> SSAValue:
        made = _ARITHMETIC.get(type(op))
        if made is None:
            raise SpecError(f"{op.name} cannot be lowered; wanted operations of the lab dialect")
        rank = _rank(op)
        last = [AffineMap(rank, 0, (AffineExpr.dimension(rank - 1),)), AffineMap.identity(rank)]
        right = last[len(ops.shape_of(op.operands[1])) == rank]

        def body(values: Sequence[SSAValue]) -> tuple[list[Operation], SSAValue]:
            inner = made(values[0], values[1])
            return [inner], inner.result

        return self._each(op, operands, [AffineMap.identity(rank), right], body)

    def _buffer(self, op: Operation) -> SSAValue:
        buffer = memref.AllocOp.get(f32, shape=list(ops.shape_of(op.results[0])))
        self._add(buffer)
        return buffer.memref

    def _constant(self, op: ops.ConstantOp) -> SSAValue:
        name = f"{self._old.sym_name.data}_constant_{sum(isinstance(each, memref.GlobalOp) for each in self._top.ops)}"
        kind = _buffer_type(ops.shape_of(op.result))
        self._top.add_op(memref.GlobalOp.get(StringAttr(name), kind, op.value, constant=UnitAttr()))
        read = memref.GetGlobalOp(name, kind)
        self._add(read)
        return read.memref

    def _product(self, op: ops.MatmulOp, operands: Sequence[SSAValue]) -> SSAValue:
        buffer = self._buffer(op)
        zero = arith.ConstantOp(FloatAttr(0.0, f32))
        self._add(zero, linalg.ops.FillOp([zero.result], [buffer], []), linalg.ops.MatmulOp(operands, [buffer], []))
        return buffer

    def _each(self, op: Operation, operands: Sequence[SSAValue], maps: Sequence[AffineMap], body: _Body) -> SSAValue:
        """Loop over the result: *maps* say which element of each operand meets which of the result."""
        buffer = self._buffer(op)
        rank = _rank(op)
        block = Block(arg_types=[f32] * (len(operands) + 1))
        inner, value = body(block.args)
        block.add_ops([*inner, linalg.ops.YieldOp(value)])
        self._add(
            linalg.ops.GenericOp(
                operands,
                [buffer],
                Region(block),
                [AffineMapAttr(each) for each in (*maps, AffineMap.identity(rank))],
                [linalg.attrs.IteratorTypeAttr.parallel()] * rank,
            )
        )
        return buffer


def _rank(op: Operation) -> int:
    return len(ops.shape_of(op.results[0]))


def _cut(values: Sequence[SSAValue]) -> tuple[list[Operation], SSAValue]:
    zero = arith.ConstantOp(FloatAttr(0.0, f32))
    larger = arith.MaximumfOp(values[0], zero.result)
    return [zero, larger], larger.result
