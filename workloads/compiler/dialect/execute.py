"""Runs a module in xDSL's interpreter, at whichever level it stands: tensors of the dialect, linalg, or loops.

On tensors an operation is one call of numpy.  Below, xDSL interprets every element, at about a microsecond for each
load, store or addition and some more: meant for checking a lowering, on small sizes.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from xdsl.dialects import func, memref
from xdsl.dialects.builtin import ModuleOp, f32
from xdsl.interpreter import (
    Interpreter,
    InterpreterFunctions,
    PythonValues,
    ReturnedValues,
    TerminatorValue,
    impl,
    impl_external,
    impl_terminator,
    register_impls,
)
from xdsl.interpreters import arith as arith_impl
from xdsl.interpreters import func as func_impl
from xdsl.interpreters import linalg as linalg_impl
from xdsl.interpreters import memref as memref_impl
from xdsl.interpreters import scf as scf_impl
from xdsl.interpreters.shaped_array import ShapedArray
from xdsl.interpreters.utils.ptr import TypedPtr
from xdsl.ir import Operation

from simulator.errors import UsageError
from workloads.compiler.dialect import ops
from workloads.compiler.dialect.lower import PRINTER
from workloads.compiler.dialect.ops import Array

Printed = Callable[[Array], object]


def written(values: Array) -> None:
    """Write *values* to the standard output."""
    sys.stdout.write(f"{values}\n")


def run(module: ModuleOp, *args: Array, function: str = "main", printed: Printed = written) -> list[Array]:
    """Return what *function* returns for *args*; *printed* takes what the program prints.

    Raises UsageError for a function that is not there and for arguments of other shapes than it takes.
    """
    found = function_named(module, function)
    check_shapes(found, args)
    high = isinstance(found.body.block.last_op, ops.ReturnOp)  # not lowered yet
    interpreter = Interpreter(module)
    for each in (
        func_impl.FuncFunctions(), _LabFunctions(printed), linalg_impl.LinalgFunctions(), scf_impl.ScfFunctions(),
        memref_impl.MemRefFunctions(), arith_impl.ArithFunctions(), _PrinterFunctions(printed),
    ):  # fmt: skip
        interpreter.register_implementations(each)
    values = [np.ascontiguousarray(each, np.float32) for each in args]
    results = interpreter.call_op(function, tuple(values if high else map(_buffer, values)))
    return [np.array(each) if isinstance(each, np.ndarray) else _array(each) for each in results]


def check_shapes(function: func.FuncOp, args: Sequence[Array]) -> None:
    """Raise UsageError unless *function* takes tensors of the shapes of *args*."""
    wanted = [ops.shape_of(each) for each in function.body.block.args]
    got = [each.shape for each in args]
    if wanted != got:
        raise UsageError(f"{function.sym_name.data} takes tensors of {_list(wanted)}; got {_list(got)}")


def function_named(module: ModuleOp, name: str) -> func.FuncOp:
    """The function of *module* called *name*; UsageError if there is none with a body."""
    functions = {op.sym_name.data: op for op in module.walk() if isinstance(op, func.FuncOp) and op.body.blocks}
    if name not in functions:
        raise UsageError(f"there is no function {name!r} (known: {', '.join(functions) or 'none'})")
    return functions[name]


def _list(shapes: Sequence[Sequence[int]]) -> str:
    return ", ".join("x".join(map(str, shape)) or "no axes" for shape in shapes) or "nothing"


def _buffer(values: Array) -> ShapedArray[float]:
    return ShapedArray(TypedPtr.new(values.ravel().tolist(), xtype=f32), list(values.shape))


def _array(buffer: ShapedArray[float]) -> Array:
    return np.array(buffer.data, np.float32).reshape(buffer.shape)


@register_impls
class _LabFunctions(InterpreterFunctions):
    """Operations of the dialect on numpy arrays."""

    def __init__(self, printed: Printed) -> None:
        self._printed = printed

    @impl(ops.ConstantOp)
    def constant(self, _: Interpreter, op: ops.ConstantOp, args: PythonValues) -> PythonValues:
        """Its numbers."""
        return (ops.array_of(op.value),)

    @impl(ops.AddOp)
    def add(self, _: Interpreter, op: ops.AddOp, args: PythonValues) -> PythonValues:
        """As folded."""
        return (op.evaluate(*args),)

    @impl(ops.SubOp)
    def sub(self, _: Interpreter, op: ops.SubOp, args: PythonValues) -> PythonValues:
        """As folded."""
        return (op.evaluate(*args),)

    @impl(ops.MulOp)
    def mul(self, _: Interpreter, op: ops.MulOp, args: PythonValues) -> PythonValues:
        """As folded."""
        return (op.evaluate(*args),)

    @impl(ops.MatmulOp)
    def matmul(self, _: Interpreter, op: ops.MatmulOp, args: PythonValues) -> PythonValues:
        """As folded."""
        return (op.evaluate(*args),)

    @impl(ops.ReluOp)
    def relu(self, _: Interpreter, op: ops.ReluOp, args: PythonValues) -> PythonValues:
        """As folded."""
        return (op.evaluate(*args),)

    @impl(ops.TransposeOp)
    def transpose(self, _: Interpreter, op: ops.TransposeOp, args: PythonValues) -> PythonValues:
        """As folded."""
        return (op.evaluate(*args),)

    @impl(ops.PrintOp)
    def print(self, _: Interpreter, op: ops.PrintOp, args: PythonValues) -> PythonValues:
        """Hand the numbers to whoever takes them."""
        self._printed(cast(Array, args[0]))
        return ()

    @impl_terminator(ops.ReturnOp)
    def leave(self, _: Interpreter, op: ops.ReturnOp, args: PythonValues) -> tuple[TerminatorValue, PythonValues]:
        """Return."""
        return ReturnedValues(args), ()


@register_impls
class _PrinterFunctions(InterpreterFunctions):
    """The runtime library of the lowered program: one function that prints a buffer."""

    def __init__(self, printed: Printed) -> None:
        self._printed = printed

    @impl(memref.CastOp)
    def cast(self, _: Interpreter, op: memref.CastOp, args: PythonValues) -> PythonValues:
        """The buffer, whatever its type is called."""
        return args

    @impl_external(PRINTER)
    def call(self, _: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        """Hand the numbers to whoever takes them."""
        self._printed(_array(cast(ShapedArray[Any], args[0])))
        return ()
