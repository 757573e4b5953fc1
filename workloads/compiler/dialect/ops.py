"""The operations of the dialect, what makes each of them valid, and what it folds to.

Tensors are fp32 with known sizes.  ``add``, ``sub`` and ``mul`` take operands of one shape, or a right operand of one
axis that is as long as the last of the left one, such as a bias.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
from xdsl.dialect_interfaces.constant_materialization import ConstantMaterializationInterface
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, Float32Type, TensorType, f32
from xdsl.dialects.func import FuncOp
from xdsl.interfaces import HasCanonicalizationPatternsInterface, HasFolderInterface
from xdsl.ir import Attribute, Dialect, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    VarConstraint,
    base,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.pattern_rewriter import RewritePattern
from xdsl.printer import Printer
from xdsl.traits import ConstantLike, HasParent, IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

Array = npt.NDArray[np.float32]
Dense = DenseIntOrFPElementsAttr
_TENSOR = base(TensorType)


def tensor_type(shape: Sequence[int]) -> TensorType[Float32Type]:
    """Return the type of a tensor of *shape*."""
    return TensorType(f32, list(shape))


def shape_of(value: SSAValue | Operation) -> tuple[int, ...]:
    """Return the sizes of a tensor or memref."""
    found = SSAValue.get(value).type
    return tuple(cast(Any, found).get_shape())


def dense(values: Array) -> Dense:
    """Return *values* as an attribute."""
    return cast(Dense, Dense.from_list(tensor_type(values.shape), [float(each) for each in values.ravel()]))


def known(value: SSAValue) -> Array | None:
    """Return the numbers of a constant; None for any other value."""
    found = ConstantLike.get_constant_value(value)
    return array_of(found) if isinstance(found, DenseIntOrFPElementsAttr) else None


def array_of(value: Dense) -> Array:
    """Return the numbers of an attribute; one that is all the same number is spread over the shape."""
    found = np.array(value.get_values(), np.float32)
    return np.broadcast_to(found, value.get_shape()) if found.size == 1 else found.reshape(value.get_shape())


def _require(holds: bool, fault: str) -> None:
    if not holds:
        raise VerifyException(fault)


def _check_tensors(op: Operation) -> None:
    """Every operand and result has a known shape of fp32."""
    for value in (*op.operands, *op.results):
        found = value.type
        _require(
            isinstance(found, TensorType) and found.element_type == f32 and min(found.get_shape(), default=1) > 0,
            f"{op.name}: {found} is no tensor of f32 with positive sizes",
        )


class _Foldable(IRDLOperation, HasFolderInterface):
    """An operation that is done at compile time if all its operands are constants."""

    def evaluate(self, *operands: Array) -> Array:
        """Do the operation on numbers."""
        raise NotImplementedError

    def fold(self) -> Sequence[SSAValue | Attribute] | None:
        """Return the constant that takes its place, if the operands are known."""
        values = [known(each) for each in self.operands]
        if any(each is None for each in values):
            return None
        return (dense(self.evaluate(*cast(list[Array], values)).astype(np.float32)),)


@irdl_op_definition
class ConstantOp(IRDLOperation, HasFolderInterface):
    """Numbers that are known when the program is compiled: ``lab.constant dense<...> : tensor<2x3xf32>``."""

    name = "lab.constant"
    value = prop_def(DenseIntOrFPElementsAttr)
    result = result_def(_TENSOR)
    traits = traits_def(Pure(), ConstantLike())

    def __init__(self, value: Dense) -> None:
        super().__init__(result_types=[value.type], properties={"value": value})

    def fold(self) -> Sequence[SSAValue | Attribute]:
        """Return its value."""
        return (self.value,)

    def verify_(self) -> None:
        """Check that the numbers are of the type of the result."""
        _check_tensors(self)
        _require(self.value.type == self.result.type, f"{self.name}: {self.value.type} as {self.result.type}")

    @classmethod
    def parse(cls, parser: Parser) -> "ConstantOp":
        """Read the attribute; the type of the result is its own."""
        start = parser.pos
        value = parser.parse_attribute()
        if not isinstance(value, DenseIntOrFPElementsAttr):
            parser.raise_error("lab.constant takes dense<...> : tensor<...xf32>", start, parser.pos)
        return cls(value)

    def print(self, printer: Printer) -> None:
        """Write the attribute, which holds the type."""
        printer.print_string(" ")
        printer.print_attribute(self.value)


class _Pointwise(_Foldable, HasCanonicalizationPatternsInterface):
    """Two operands, element by element; the right one may be a row for each of the left one's rows."""

    _T: ClassVar = VarConstraint("T", _TENSOR)
    lhs = operand_def(_T)
    rhs = operand_def(_TENSOR)
    result = result_def(_T)
    traits = traits_def(Pure())
    assembly_format = "$lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs)"

    def __init__(self, lhs: SSAValue | Operation, rhs: SSAValue | Operation) -> None:
        super().__init__(operands=[lhs, rhs], result_types=[SSAValue.get(lhs).type])

    def verify_(self) -> None:
        """Check that the shapes fit."""
        _check_tensors(self)
        left, right = shape_of(self.lhs), shape_of(self.rhs)
        fits = left == right or (len(right) == 1 and left[-1:] == right)
        _require(
            fits, f"{self.name}: {_x(left)} and {_x(right)}; wanted equal shapes, or a row as long as the last axis"
        )

    @classmethod
    def get_canonicalization_patterns(cls) -> tuple[RewritePattern, ...]:
        """Return the rewrites that drop neutral operands."""
        from workloads.compiler.dialect.rewrites import Neutral  # noqa: PLC0415  it rewrites what is defined here

        return (Neutral(),)


@irdl_op_definition
class AddOp(_Pointwise):
    """Sum."""

    name = "lab.add"
    NEUTRAL: ClassVar[float] = 0.0

    def evaluate(self, *operands: Array) -> Array:
        """Add."""
        return cast(Array, operands[0] + operands[1])


@irdl_op_definition
class SubOp(_Pointwise):
    """Difference."""

    name = "lab.sub"
    NEUTRAL: ClassVar[float] = 0.0

    def evaluate(self, *operands: Array) -> Array:
        """Subtract."""
        return cast(Array, operands[0] - operands[1])


@irdl_op_definition
class MulOp(_Pointwise):
    """Product, element by element."""

    name = "lab.mul"
    NEUTRAL: ClassVar[float] = 1.0

    def evaluate(self, *operands: Array) -> Array:
        """Multiply."""
        return cast(Array, operands[0] * operands[1])


@irdl_op_definition
class MatmulOp(_Foldable):
    """Product of matrices, [m, k] by [k, n]."""

    name = "lab.matmul"
    lhs = operand_def(_TENSOR)
    rhs = operand_def(_TENSOR)
    result = result_def(_TENSOR)
    traits = traits_def(Pure())
    assembly_format = "$lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)"

    def __init__(self, lhs: SSAValue | Operation, rhs: SSAValue | Operation) -> None:
        shape = (shape_of(lhs)[0], shape_of(rhs)[-1])
        super().__init__(operands=[lhs, rhs], result_types=[tensor_type(shape)])

    def evaluate(self, *operands: Array) -> Array:
        """Multiply the matrices."""
        return cast(Array, operands[0] @ operands[1])

    def verify_(self) -> None:
        """Check that the matrices fit each other and the result."""
        _check_tensors(self)
        left, right, result = shape_of(self.lhs), shape_of(self.rhs), shape_of(self.result)
        _require(
            len(left) == len(right) == 2 and left[1] == right[0],
            f"{self.name}: {_x(left)} by {_x(right)}; wanted [m, k] by [k, n]",
        )
        wanted = (left[0], right[1])
        _require(result == wanted, f"{self.name}: gives {_x(wanted)}, not {_x(result)}")


@irdl_op_definition
class ReluOp(_Foldable, HasCanonicalizationPatternsInterface):
    """The larger of each element and 0."""

    name = "lab.relu"
    _T: ClassVar = VarConstraint("T", _TENSOR)
    operand = operand_def(_T)
    result = result_def(_T)
    traits = traits_def(Pure())
    assembly_format = "$operand attr-dict `:` type($operand)"

    def __init__(self, operand: SSAValue | Operation) -> None:
        super().__init__(operands=[operand], result_types=[SSAValue.get(operand).type])

    def evaluate(self, *operands: Array) -> Array:
        """Cut off what is negative."""
        return np.maximum(operands[0], np.float32(0))

    def verify_(self) -> None:
        """Check the type."""
        _check_tensors(self)

    @classmethod
    def get_canonicalization_patterns(cls) -> tuple[RewritePattern, ...]:
        """Return the rewrite that drops the second of two."""
        from workloads.compiler.dialect.rewrites import TwiceRelu  # noqa: PLC0415  it rewrites what is defined here

        return (TwiceRelu(),)


@irdl_op_definition
class TransposeOp(_Foldable, HasCanonicalizationPatternsInterface):
    """Rows become columns."""

    name = "lab.transpose"
    operand = operand_def(_TENSOR)
    result = result_def(_TENSOR)
    traits = traits_def(Pure())
    assembly_format = "$operand attr-dict `:` type($operand) `->` type($result)"

    def __init__(self, operand: SSAValue | Operation) -> None:
        super().__init__(operands=[operand], result_types=[tensor_type(shape_of(operand)[::-1])])

    def evaluate(self, *operands: Array) -> Array:
        """Transpose."""
        return operands[0].T

    def verify_(self) -> None:
        """Check that it is a matrix, and the shape of the result."""
        _check_tensors(self)
        shape, result = shape_of(self.operand), shape_of(self.result)
        _require(
            len(shape) == 2 and result == shape[::-1],
            f"{self.name}: {_x(shape)} -> {_x(result)}; wanted [m, n] -> [n, m]",
        )

    @classmethod
    def get_canonicalization_patterns(cls) -> tuple[RewritePattern, ...]:
        """Return the rewrite that undoes two of them."""
        from workloads.compiler.dialect.rewrites import TwiceTransposed  # noqa: PLC0415  as above

        return (TwiceTransposed(),)


@irdl_op_definition
class PrintOp(IRDLOperation):
    """Prints a tensor when the program runs; not pure, so that no pass drops it."""

    name = "lab.print"
    operand = operand_def(_TENSOR)
    assembly_format = "$operand attr-dict `:` type($operand)"

    def __init__(self, operand: SSAValue | Operation) -> None:
        super().__init__(operands=[operand])

    def verify_(self) -> None:
        """Check the type."""
        _check_tensors(self)


@irdl_op_definition
class ReturnOp(IRDLOperation):
    """Ends a function and hands its results back."""

    name = "lab.return"
    values = var_operand_def(_TENSOR)
    traits = traits_def(HasParent(FuncOp), IsTerminator())
    assembly_format = "attr-dict ($values^ `:` type($values))?"

    def __init__(self, *values: SSAValue | Operation) -> None:
        super().__init__(operands=[values])

    def verify_(self) -> None:
        """Check the results against what the function promises."""
        _check_tensors(self)
        function = self.parent_op()
        if isinstance(function, FuncOp):
            wanted, got = (", ".join(map(str, each)) for each in (function.function_type.outputs, self.values.types))
            _require(wanted == got, f"{self.name}: ({got}), but {function.sym_name.data} returns ({wanted})")


def _x(shape: Sequence[int]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


class _Constants(ConstantMaterializationInterface):
    """How a folded value enters the program again."""

    def materialize_constant(self, value: Attribute, type: Attribute) -> Operation | None:
        """Return the constant of *value*."""
        return ConstantOp(value) if isinstance(value, DenseIntOrFPElementsAttr) else None


LAB = Dialect(
    "lab",
    [ConstantOp, AddOp, SubOp, MulOp, MatmulOp, ReluOp, TransposeOp, PrintOp, ReturnOp],
    [],
    [_Constants()],
)
