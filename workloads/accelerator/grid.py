"""Which sizes are worth trying around a chip, and the chip to size where there is no array."""

from hw_models import load_chip
from hw_models.array_model import Axes, Size
from hw_models.array_model.resized import check_chip
from hw_models.systolic import Dataflow
from simulator.dtypes import DType
from simulator.hardware import Chip

OURS = ("cores=1", "matrix.rate.bf16=1", "memory.lpddr.capacity=32GB")
"""What makes one core of edge-npu the core with bf16 cells of rtl/, and gives it the memory for an 8B model."""
QUADRUPLINGS, DOUBLINGS = (0.25, 1, 4, 16), (0.25, 0.5, 1, 2, 4, 8, 16)
_SIDES, _BANDWIDTHS = (0.25, 0.5, 1, 2, 4), (0.5, 1, 2, 4, 8)
_TYPES = (DType.BF16, DType.FP16)


def base_chip(chip: Chip) -> Chip:
    """Return *chip*, if it has arrays that multiply bf16 or fp16; else one core of ours."""
    if chip.matrix.array is not None and any(dtype in chip.matrix.rate for dtype in _TYPES):
        return chip
    return load_chip("edge-npu", OURS)


def float_type(chip: Chip) -> DType:
    """The type in which the arrays of a base chip multiply."""
    return next(dtype for dtype in _TYPES if dtype in chip.matrix.rate)


def axes_around(chip: Chip, dtype: DType, srams: tuple[float, ...] = QUADRUPLINGS) -> Axes:
    """Return sizes from a quarter to four times, bandwidths from half to eight times, scratchpads *srams* times.

    UsageError for a chip without an array or on-chip memory, or whose array does not multiply *dtype*.
    """
    level, array = check_chip(chip, dtype), chip.matrix.array
    assert array is not None  # check_chip has seen to it
    capacity = level.capacity if level.scope == "core" else level.capacity // chip.cores
    sides = {Size(max(1, int(array.rows * times)), max(1, int(array.columns * times))) for times in _SIDES}
    return Axes(
        sizes=tuple(sides),
        srams=tuple(int(capacity * times) for times in srams),
        bandwidths=tuple(int(chip.dram_bandwidth * times) for times in _BANDWIDTHS),
        dataflows=(Dataflow(array.dataflow),),
    )
