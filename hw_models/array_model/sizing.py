"""What binds one GEMM on systolic arrays, and how large arrays, scratchpads and bandwidth would have to be.

Everything is found by running the GEMM again on other hardware.  *Compute* is what infinitely fast cells would save,
*capacity* what scratchpads of any size would save, and *bandwidth* what is left of the waits for DRAM after that: words
that move again because a scratchpad is small are not blamed on the memory.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

from hw_models.systolic import Array, Scratchpads, Split, map_gemm, split_gemm
from hw_models.systolic.traffic import minimum_scratchpads
from simulator.errors import UsageError
from simulator.variants import INFINITE, Resource

Shape = tuple[int, int, int]
"""M, N, K."""
SLACK = 1.05
"""The least of a resource is what takes at most this many times as long as an unlimited amount of it."""
_PRECISION = 1.005
"""A bandwidth is searched to half a percent."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Equal arrays and the memory behind them.

    cores       arrays; each has its own scratchpads, and an equal share of the bandwidth
    clock       hertz; a step of the cells each cycle
    word_bytes  bytes of one element of any operand, results included
    pads        scratchpads of one array, in words; None: operands are at hand and no memory is modelled
    bandwidth   DRAM bytes a second of all cores together
    """

    array: Array
    cores: int = 1
    clock: int = 10**9
    word_bytes: int = 1
    pads: Scratchpads | None = None
    bandwidth: float = math.inf

    def run(self, shape: Shape) -> Split:
        """Run a GEMM, cut over the cores; UsageError if a scratchpad cannot hold one fold."""
        words_a_cycle = self.bandwidth / self.clock / self.word_bytes
        return split_gemm(self.array, *shape, self.cores, self.pads, words_a_cycle)

    def seconds(self, shape: Shape) -> float:
        """Time of a GEMM."""
        return self.run(shape).cycles / self.clock


@dataclass(frozen=True, slots=True)
class Sizing:
    """Where the time of one GEMM goes; *saved* and *ten_percent* are shares of *seconds*.

    saved            by an unlimited amount of each resource; see the module for how they are told apart
    ten_percent      by 10 % more of each, a positive share
    bound            the resource that saves most
    least_bandwidth  bytes a second that take at most 5 % longer than infinitely many; None without scratchpads
    least_pads       scratchpads, in words, that take at most 5 % longer than endless ones; None without scratchpads
    larger           seconds on an array of twice the rows, and on one of twice the columns, if its folds fit
    """

    seconds: float
    saved: dict[Resource, float]
    ten_percent: dict[Resource, float]
    least_bandwidth: float | None
    least_pads: Scratchpads | None
    larger: dict[Array, float]

    @property
    def bound(self) -> Resource:
        return max(self.saved, key=lambda resource: self.saved[resource])


def size_up(machine: Machine, shape: Shape) -> Sizing:
    """Run a GEMM on *machine* and on its variants."""
    now = machine.seconds(shape)
    gain = {resource: 1 - scaled(machine, resource, INFINITE).seconds(shape) / now for resource in _RESOURCES}
    memory = machine.pads is not None
    return Sizing(
        seconds=now,
        saved=gain | {Resource.BANDWIDTH: gain[Resource.BANDWIDTH] - gain[Resource.CAPACITY]},
        ten_percent={each: 1 - scaled(machine, each, 1.1).seconds(shape) / now for each in _RESOURCES},
        least_bandwidth=least_bandwidth(machine, shape) if memory else None,
        least_pads=least_pads(machine, shape) if memory else None,
        larger=_larger(machine, shape),
    )


_RESOURCES = (Resource.COMPUTE, Resource.BANDWIDTH, Resource.CAPACITY)


def scaled(machine: Machine, resource: Resource, factor: float) -> Machine:
    """Return *machine* with *factor* times as fast a clock, as much bandwidth, or as large scratchpads."""
    match resource:
        case Resource.COMPUTE:
            return replace(machine, clock=round(machine.clock * factor))
        case Resource.BANDWIDTH:
            return replace(machine, bandwidth=math.inf if factor == INFINITE else machine.bandwidth * factor)
        case _:
            if machine.pads is None:
                return machine
            sizes = (int(getattr(machine.pads, field.name) * factor) for field in fields(Scratchpads))
            return replace(machine, pads=Scratchpads(*sizes))


def least_bandwidth(machine: Machine, shape: Shape) -> float:
    """Return the bytes a second with which *shape* takes at most 5 % longer than with infinitely many."""
    limit = SLACK * replace(machine, bandwidth=math.inf).seconds(shape)

    def enough(bandwidth: float) -> bool:
        return replace(machine, bandwidth=bandwidth).seconds(shape) <= limit

    high = float(machine.clock * machine.word_bytes)
    while not enough(high):
        high *= 2
    low = high / 2
    while enough(low):
        low, high = low / 2, low
    while high > _PRECISION * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def least_pads(machine: Machine, shape: Shape) -> Scratchpads:
    """Return scratchpads with which *shape* takes at most 5 % longer than with endless ones.

    Made as small as they can be one after another, the ifmap's first; so together they are a choice that works, and
    none of them can be smaller while the others stay.
    """
    m, n, k = shape
    pads = Scratchpads(*(2 * (words + machine.array.cells) for words in (m * k, k * n, m * n)))  # hold everything
    limit = SLACK * replace(machine, pads=pads).seconds(shape)
    least = minimum_scratchpads(machine.array, map_gemm(machine.array, *shape))
    for field in fields(Scratchpads):

        def enough(words: int, name: str = field.name, others: Scratchpads = pads) -> bool:
            changed = replace(others, **{name: words})
            return replace(machine, pads=changed).seconds(shape) <= limit

        words = _first(enough, getattr(least, field.name), getattr(pads, field.name))
        pads = replace(pads, **{field.name: words})
    return pads


def _first(enough: Callable[[int], bool], low: int, high: int) -> int:
    """Return the first of *low* to *high* that is enough; *high* is, and more is never worse."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def _larger(machine: Machine, shape: Shape) -> dict[Array, float]:
    array = machine.array
    found = {}
    for larger in (replace(array, rows=2 * array.rows), replace(array, columns=2 * array.columns)):
        try:
            found[larger] = replace(machine, array=larger).seconds(shape)
        except UsageError:  # the scratchpads hold no fold of it
            continue
    return found
