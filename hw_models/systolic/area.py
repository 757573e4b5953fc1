"""Flip-flops and logic gates of the arrays in rtl/.

Flip-flops are counted from the registers of the source and are exact.  Gates are two-input gates as Yosys maps them
(``synth``, no cell library); their three coefficients were fitted to syntheses of the integer cells at 8 and 16 bits,
and hold within 5 % from 4 to 16 bits (tests/rtl/test_rtl_synthesis.py).
"""

from dataclasses import dataclass

from hw_models.systolic.array import Array, Dataflow


@dataclass(frozen=True, slots=True)
class Area:
    """Flip-flops and two-input gates."""

    flip_flops: int
    gates: int


GATES_PER_PRODUCT_BIT = 7.57
"""For each of data_bits squared: an AND and most of a full adder of the multiplier."""
GATES_SAVED_PER_DATA_BIT = 9.7
"""The multiplier's edges need less than a full adder for each bit."""
GATES_PER_SUM_BIT = {Dataflow.WEIGHT: 5.5, Dataflow.INPUT: 5.5, Dataflow.OUTPUT: 7.2}
"""The adder into the sum; for os also the choices to start anew and to drain."""


def cell_area(dataflow: Dataflow, data_bits: int, sum_bits: int) -> Area:
    """Return the area of one integer cell.

    ws, is: activation, two weights, partial sum, two marks.  os: activation, weight, sum, drain register, four marks.

    >>> cell_area(Dataflow.WEIGHT, data_bits=8, sum_bits=32)
    Area(flip_flops=58, gates=583)
    """
    gates = GATES_PER_PRODUCT_BIT * data_bits**2 - GATES_SAVED_PER_DATA_BIT * data_bits
    gates += GATES_PER_SUM_BIT[dataflow] * sum_bits
    registers = 4 + 2 * data_bits + 2 * sum_bits if dataflow is Dataflow.OUTPUT else 2 + 3 * data_bits + sum_bits
    return Area(registers, round(gates))


def array_area(array: Array, data_bits: int, sum_bits: int) -> Area:
    """Return the area of all cells and of the skews around them, without sequencer, buffers and counters.

    A skew of L lanes delays them by 0 to L - 1 steps: L (L - 1) / 2 registers a bit.  Activations carry one mark
    (ws, is) or three (os); weights and results carry none.
    """
    cell = cell_area(array.dataflow, data_bits, sum_bits)
    marks = 3 if array.dataflow is Dataflow.OUTPUT else 1
    skews = _triangle(array.rows) * (data_bits + marks) + _triangle(array.columns) * (data_bits + sum_bits)
    return Area(array.cells * cell.flip_flops + skews, array.cells * cell.gates)


def _triangle(lanes: int) -> int:
    return lanes * (lanes - 1) // 2
