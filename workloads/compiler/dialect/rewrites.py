"""Canonicalisation: work that changes nothing goes, and what is known is computed once, by the compiler."""

from typing import cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.transforms.canonicalize import CanonicalizePass

from workloads.compiler.dialect.ops import AddOp, MulOp, ReluOp, SubOp, TransposeOp, known, shape_of


class Neutral(RewritePattern):
    """x + 0, x - 0 and x * 1 are x; 0 + x and 1 * x too, where x has the shape of the result.

    -0.0 + 0 is +0.0, so the first changes a sign that no later operation of the dialect but a product can tell.
    """

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        """Replace *op* by the operand that it leaves as it was."""
        if not isinstance(op, AddOp | SubOp | MulOp):
            return
        right, left = known(op.rhs), known(op.lhs)
        if right is not None and bool((right == op.NEUTRAL).all()):
            rewriter.replace(op, [], [op.lhs])
        elif (
            left is not None
            and not isinstance(op, SubOp)
            and shape_of(op.lhs) == shape_of(op.rhs)
            and bool((left == op.NEUTRAL).all())
        ):
            rewriter.replace(op, [], [op.rhs])


class TwiceRelu(RewritePattern):
    """relu(relu(x)) is relu(x)."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        """Replace the outer one by the inner one."""
        relu = cast(ReluOp, op)
        if isinstance(relu.operand.owner, ReluOp):
            rewriter.replace(op, [], [relu.operand])


class TwiceTransposed(RewritePattern):
    """transpose(transpose(x)) is x."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        """Replace both by what the inner one reads."""
        inner = cast(TransposeOp, op).operand.owner
        if isinstance(inner, TransposeOp):
            rewriter.replace(op, [], [inner.operand])


def canonicalise(module: ModuleOp, context: Context) -> None:
    """Fold, rewrite and drop what nobody reads, in place, until nothing changes."""
    CanonicalizePass().apply(context, module)
    module.verify()
