"""Element types, their names and their sizes."""

from enum import StrEnum


class DType(StrEnum):
    """Type of one element; the value is the name that files and the command line use."""

    FP64 = "fp64"
    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    INT4 = "int4"
    BOOL = "bool"

    @property
    def bits(self) -> int:
        """Bits of storage for one element.

        >>> DType.BF16.bits, DType.INT4.bits, DType.BOOL.bits
        (16, 4, 8)
        """
        return _BITS[self]

    @property
    def floating(self) -> bool:
        """Whether it holds real numbers.

        >>> DType.FP8.floating, DType.INT8.floating
        (True, False)
        """
        return self in _FLOATING


_BITS = {
    DType.FP64: 64, DType.FP32: 32, DType.TF32: 32, DType.FP16: 16, DType.BF16: 16, DType.FP8: 8,
    DType.INT64: 64, DType.INT32: 32, DType.INT16: 16, DType.INT8: 8, DType.INT4: 4, DType.BOOL: 8,
}  # fmt: skip
_FLOATING = frozenset({DType.FP64, DType.FP32, DType.TF32, DType.FP16, DType.BF16, DType.FP8})
