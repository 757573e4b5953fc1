"""Axes of a plot: from values to places in an SVG, with ticks at round numbers."""

from dataclasses import dataclass
from math import ceil, floor, log10


@dataclass(frozen=True, slots=True)
class Linear:
    """Values from *low* to *high* on places from *start* to *end*."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """Return where *value* lies, rounded to a tenth of a unit so that files stay small."""
        span = self.high - self.low
        return round(self.start + (self.end - self.start) * ((value - self.low) / span if span else 0.0), 1)

    def ticks(self, count: int = 5) -> list[float]:
        """About *count* round values on the axis.

        >>> Linear(0, 4.4, 0, 100).ticks()
        [0.0, 1.0, 2.0, 3.0, 4.0]
        """
        span = self.high - self.low
        if span <= 0:
            return [self.low]
        rough = span / count
        power = 10.0 ** floor(log10(rough))
        step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
        first, last = ceil(self.low / step - 1e-9), floor(self.high / step + 1e-9)
        return [round(index * step, 12) if step < 1 else index * step for index in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class Log:
    """The same with logarithmic distances; *low* and *high* are positive."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        part = log10(value / self.low) / log10(self.high / self.low)
        return round(self.start + (self.end - self.start) * part, 1)

    def ticks(self) -> list[float]:
        """Powers of ten on the axis.

        >>> Log(0.5, 200, 0, 100).ticks()
        [1.0, 10.0, 100.0]
        """
        return [10.0**power for power in range(ceil(log10(self.low) - 1e-9), floor(log10(self.high) + 1e-9) + 1)]


def log_range(values: list[float]) -> tuple[float, float]:
    """Return limits a little outside of *values*, all positive.

    >>> log_range([1.0, 100.0])
    (0.5, 200.0)
    """
    return min(values) / 2, max(values) * 2
