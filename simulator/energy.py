"""Energy of a run: what work costs above idle, operator by operator, and idle power over all of the time.

    operator   FLOP (of the lanes: operations) x energy of the unit + bytes x cache + off-chip bytes x dram
               but no more than the power cap leaves in the time that the operator takes
    run        sum over operators + idle power x time

The constants are ``power.energy`` of the chip.  What the cap limits costs less for each operation than at the full
clock, because voltage falls with it; the model says so in one place only, the operator's time.
"""

from simulator.costs import Cost, Unit
from simulator.graph import MATRIX_KINDS, Operator
from simulator.hardware import Chip
from simulator.units import AJ_PER_JOULE, PS_PER_SECOND

_AJ_OF_WATT = AJ_PER_JOULE // PS_PER_SECOND  # attojoules of one watt in one picosecond


def operator_energy(operator: Operator, cost: Cost, chip: Chip) -> int | None:
    """Attojoules above idle of one run of *operator* that costs *cost*; None if the chip's energies are not known."""
    power = chip.power
    if power is None or power.energy is None:
        return None
    each = power.energy
    on_matrix = operator.kind in MATRIX_KINDS and cost.unit is Unit.MATRIX
    per_flop = each.matrix_flop(operator.dtype) if on_matrix else each.vector
    work = each.work(per_flop, max(operator.flops, cost.operations), operator.nbytes, cost.traffic)
    return int(min(work, power.headroom * cost.time * _AJ_OF_WATT))


def idle_energy(time: int, chip: Chip) -> int | None:
    """Attojoules that *chip* draws in *time* picoseconds, whatever it does; None if that is not known."""
    if chip.power is None or chip.power.idle is None:
        return None
    return chip.power.idle * time * _AJ_OF_WATT


def full_clock(chip: Chip) -> int:
    """Hertz of the fastest clock of the cores, at which they run as long as the power cap allows it."""
    return max(chip.matrix.clock, chip.vector.clock)


def clock_of(cost: Cost, chip: Chip) -> float:
    """Hertz at which an operator that costs *cost* runs: held down by the cap, it is a part of the matrix clock.

    The matrix clock of a data sheet is the one behind its published peak; what costs are measured against.
    """
    return chip.matrix.clock * cost.clock if cost.clock < 1 else full_clock(chip)
