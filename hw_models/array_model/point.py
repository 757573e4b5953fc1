"""One run of a program on one size of array, scratchpad and memory bandwidth, and what its time goes to."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from hw_models.systolic import Dataflow
from simulator.units import PS_PER_SECOND


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """Rows and columns of cells of each array, the rows first."""

    rows: int
    columns: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"


class Binds(StrEnum):
    """What a piece of a run's time goes to."""

    ARRAY = "array"
    VECTOR = "vector"
    BANDWIDTH = "bandwidth"
    CAPACITY = "capacity"
    LAUNCH = "launch"


@dataclass(frozen=True, slots=True)
class Point:
    """One run of the program.

    time         picoseconds; *shares* of them by what they go to, which add up to it.
    flops        of the products and attentions that run on the arrays; *peak* FLOP a second of all arrays.
    ideal        picoseconds of these FLOP with every cell busy all the time, each at the rate of its type.
    busy         picoseconds in which the arrays compute, whether memory takes longer beside that or not.
    traffic      off-chip bytes; *least* if every operand of every operator crossed once.
    sram         bytes of scratchpad of each core; *bandwidth* in bytes a second.
    largest      how the product with most FLOP runs: its plan in words.
    """

    size: Size
    dataflow: Dataflow
    sram: int
    bandwidth: int
    time: int
    shares: Mapping[Binds, int]
    flops: int
    peak: int
    ideal: int
    busy: int
    traffic: int
    least: int
    largest: str

    @property
    def seconds(self) -> float:
        return self.time / PS_PER_SECOND

    @property
    def utilisation(self) -> float:
        """FLOP done of those that the arrays could do in all the time, from 0 to 1."""
        return self.ideal / self.time if self.time else 0.0

    @property
    def cells_busy(self) -> float:
        """FLOP done of those that the arrays could do while they compute, from 0 to 1."""
        return self.ideal / self.busy if self.busy else 0.0

    @property
    def achieved(self) -> float:
        """Off-chip bytes a second, on average."""
        return self.traffic / self.seconds if self.time else 0.0

    @property
    def again(self) -> float:
        """Off-chip bytes over the least."""
        return self.traffic / self.least if self.least else 1.0

    @property
    def bound(self) -> Binds:
        """What most of the time goes to."""
        return max(self.shares, key=lambda each: self.shares[each])

    def share(self, *binds: Binds) -> float:
        """Part of the time that goes to *binds*, from 0 to 1."""
        return sum(self.shares[each] for each in binds) / self.time if self.time else 0.0
