"""Element types of torch as element types of the graph, and back for the types that a trace can cast to.

fp8 has one name for its four layouts; unsigned integers take the name of the signed type of their width; a complex
element is two real ones, so that a complex tensor gets a last axis of 2.
"""

import torch

from simulator.dtypes import DType
from simulator.errors import UsageError, nearest

_OF_TORCH = {
    torch.float64: DType.FP64, torch.float32: DType.FP32, torch.float16: DType.FP16, torch.bfloat16: DType.BF16,
    torch.float8_e4m3fn: DType.FP8, torch.float8_e4m3fnuz: DType.FP8, torch.float8_e5m2: DType.FP8,
    torch.float8_e5m2fnuz: DType.FP8, torch.float8_e8m0fnu: DType.FP8,
    torch.int64: DType.INT64, torch.int32: DType.INT32, torch.int16: DType.INT16, torch.int8: DType.INT8,
    torch.uint64: DType.INT64, torch.uint32: DType.INT32, torch.uint16: DType.INT16, torch.uint8: DType.INT8,
    torch.bool: DType.BOOL,
    torch.complex128: DType.FP64, torch.complex64: DType.FP32, torch.complex32: DType.FP16,
    torch.qint8: DType.INT8, torch.quint8: DType.INT8, torch.qint32: DType.INT32,
}  # fmt: skip
_CASTS = {
    DType.FP64: torch.float64,
    DType.FP32: torch.float32,
    DType.TF32: torch.float32,
    DType.FP16: torch.float16,
    DType.BF16: torch.bfloat16,
}


def dtype_of(dtype: torch.dtype) -> DType:
    """Return the graph's name for *dtype*.

    >>> dtype_of(torch.bfloat16), dtype_of(torch.float8_e5m2), dtype_of(torch.uint8)
    (<DType.BF16: 'bf16'>, <DType.FP8: 'fp8'>, <DType.INT8: 'int8'>)
    """
    found = _OF_TORCH.get(dtype)
    return DType.INT8 if found is None else found


def cast_type(wanted: str | DType | None) -> torch.dtype | None:
    """Return the torch type that the floating-point tensors of a program are cast to before tracing.

    Raises UsageError for an unknown name and for a type that a cast cannot reach: a quantised program has other
    operators, which only the module itself can bring.

    >>> cast_type("bf16"), cast_type(None)
    (torch.bfloat16, None)
    """
    if wanted is None:
        return None
    names = [dtype.value for dtype in DType]
    if wanted not in names:
        raise UsageError(f"unknown dtype {wanted!r}{nearest(str(wanted), names)} (known: {', '.join(names)})")
    if DType(wanted) not in _CASTS:
        able = ", ".join(dtype.value for dtype in _CASTS)
        raise UsageError(
            f"dtype {DType(wanted).value}: a trace casts weights and inputs to {able} only; for another type "
            "the module itself must hold quantised weights and call quantised operators"
        )
    return _CASTS[DType(wanted)]
