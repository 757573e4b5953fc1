"""Pointwise operators: every element of the output on its own.

FLOPs an element are what the formula needs, with exp, log, division, root and erf as one each; comparisons, copies,
selections and bit operations are none.  They bound nothing on today's chips, bytes do, so that precision ends here.
"""

import torch

from frontends.rules import Call, Work, fallback, rule
from simulator.graph import OpKind

_FLOPS = {
    "gelu": 9, "gelu_backward": 16, "silu": 4, "silu_backward": 8, "sigmoid": 3, "sigmoid_backward": 3, "tanh": 5,
    "tanh_backward": 3, "mish": 8, "mish_backward": 16, "softplus": 3, "softplus_backward": 4, "elu": 3,
    "elu_backward": 3, "leaky_relu": 1, "leaky_relu_backward": 1, "hardswish": 4, "hardswish_backward": 4,
    "hardsigmoid": 3, "logit": 3, "log_sigmoid_forward": 4, "log_sigmoid_backward": 5, "glu": 4, "glu_backward": 8,
    "addcmul": 3, "addcdiv": 3, "lerp": 3, "pow": 2, "rsqrt": 2, "hypot": 3, "native_dropout": 2,
    "native_dropout_backward": 2, "mse_loss": 2, "erfinv": 4, "gelu_": 9, "polar": 4, "logaddexp": 5,
}  # fmt: skip
_NO_FLOPS = frozenset((
    "eq", "ne", "lt", "le", "gt", "ge", "where", "masked_fill", "clone", "copy", "_to_copy", "fill", "isnan",
    "isinf", "isfinite", "isneginf", "isposinf", "sign", "signbit", "logical_and", "logical_or", "logical_not",
    "logical_xor", "bitwise_and", "bitwise_or", "bitwise_not", "bitwise_xor", "bitwise_left_shift",
    "bitwise_right_shift", "__and__", "__or__", "__xor__", "__lshift__", "__rshift__", "nan_to_num", "threshold",
    "relu", "threshold_backward", "abs", "ceil", "floor", "round", "trunc", "zero", "masked_scatter", "real",
    "imag", "conj_physical", "view_as_real_copy",
))  # fmt: skip
_ALSO = (
    "native_dropout", "native_dropout_backward", "gelu_backward", "silu_backward", "sigmoid_backward", "tanh_backward",
    "threshold_backward", "glu", "glu_backward", "mish_backward", "softplus_backward", "elu_backward", "hardtanh",
    "hardtanh_backward", "leaky_relu_backward", "hardswish_backward", "hardsigmoid_backward", "log_sigmoid_forward",
    "log_sigmoid_backward", "logit_backward", "mse_loss_backward", "binary_cross_entropy_backward", "polar", "complex",
    "prelu", "_prelu_kernel", "_prelu_kernel_backward", "rrelu_with_noise", "smooth_l1_loss_backward",
    "huber_loss_backward", "clamp_min", "clamp_max", "fmod", "remainder", "_conj_physical", "float_power", "frac",
    "nextafter", "masked_scatter", "__and__", "__or__", "__xor__", "lerp", "addcmul", "addcdiv", "_fused_dropout",
    "_masked_scale", "bucketize", "searchsorted", "floor_divide", "hardswish", "upsample_nearest1d_backward",
    "upsample_nearest2d_backward", "upsample_bilinear2d_backward",
)  # fmt: skip


def flops_per_element(name: str) -> int:
    """FLOPs that one element of the output of aten operator *name* takes.

    >>> flops_per_element("add"), flops_per_element("silu"), flops_per_element("where")
    (1, 4, 0)
    """
    name = name.removesuffix("_") if not name.endswith("__") else name
    return 0 if name in _NO_FLOPS else _FLOPS.get(name, 1)


def _pointwise(call: Call) -> Work:
    each = flops_per_element(call.target.split(".", 1)[1])
    arithmetic = any(out.dtype.is_floating_point or out.dtype.is_complex for out in call.outputs)
    return Work(OpKind.POINTWISE, each * call.elements if arithmetic else 0)


rule(*(f"aten.{name}" for name in _ALSO))(_pointwise)


@fallback
def pointwise_by_tag(call: Call) -> Work | None:
    """Whatever torch itself marks as pointwise."""
    return _pointwise(call) if torch.Tag.pointwise in call.func.tags else None


@rule("aten.masked_fill", "aten.where", "aten.tril", "aten.triu")
def selection(call: Call) -> Work:
    """Chooses elements and computes nothing."""
    return Work(OpKind.POINTWISE)


@rule(
    "aten._foreach_add", "aten._foreach_mul", "aten._foreach_div", "aten._foreach_sub", "aten._foreach_lerp",
    "aten._foreach_addcmul", "aten._foreach_addcdiv", "aten._foreach_sqrt", "aten._foreach_norm", "aten._foreach_neg",
    "aten._foreach_copy", "aten._foreach_zero", "aten._foreach_maximum", "aten._foreach_pow",
)  # fmt: skip
def over_lists(call: Call) -> Work:
    """The same operator over a list of tensors, in a launch or a few."""
    each = flops_per_element(call.target.removeprefix("aten._foreach_"))
    return Work(OpKind.POINTWISE, each * sum(tensor.numel() for tensor in call.outputs or call.inputs))
