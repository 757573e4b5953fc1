"""The operators that the generator has words for: one line of source each, for numba and for Triton.

Only operators that their operands determine: the graph holds no arguments (which kind of gelu, which epsilon).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operation:
    """*arity* tensors to one; *numba* and *triton* are expressions of them, ``{0}`` and ``{1}``, in fp32."""

    arity: int
    numba: str
    triton: str


def _same(arity: int, text: str) -> Operation:
    return Operation(arity, text, text)


OPERATIONS = {
    "aten.add": _same(2, "{0} + {1}"),
    "aten.sub": _same(2, "{0} - {1}"),
    "aten.mul": _same(2, "{0} * {1}"),
    "aten.div": _same(2, "{0} / {1}"),
    "aten.neg": _same(1, "-{0}"),
    "aten.relu": Operation(1, "max({0}, ZERO)", "tl.maximum({0}, 0.0)"),
    "aten.exp": Operation(1, "exponential({0})", "tl.exp({0})"),
    "aten.sigmoid": Operation(1, "ONE / (ONE + exponential(-{0}))", "tl.sigmoid({0})"),
    "aten.silu": Operation(1, "{0} / (ONE + exponential(-{0}))", "{0} * tl.sigmoid({0})"),
    "aten.tanh": Operation(1, "ONE - TWO / (exponential(TWO * {0}) + ONE)", "2 * tl.sigmoid(2 * {0}) - 1"),
    "aten.sqrt": Operation(1, "np.sqrt({0})", "tl.sqrt({0})"),
    "aten.rsqrt": Operation(1, "ONE / np.sqrt({0})", "tl.rsqrt({0})"),
}
