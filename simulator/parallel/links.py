"""How fast links have to be: the same system with other bandwidths, and the least that keeps a loss under a limit."""

from collections.abc import Callable
from dataclasses import replace

from simulator.system import System

_SPAN = 2.0**20  # at most so many times slower or faster than the level is
_NEAR = 1.01  # the answer is within one per cent
STEP = 1.1  # ten per cent more, for elasticities


def wider(system: System, level: str, factor: float) -> System:
    """Return *system* with *factor* times the bandwidth at *level*, of every link of it."""
    links = dict(system.links)
    links[level] = replace(links[level], bandwidth=max(1, round(links[level].bandwidth * factor)))
    return replace(system, links=links)


def least_factor(loss: Callable[[float], float], limit: float) -> float:
    """Return the least factor of the bandwidth at which *loss* (falling with it) is at most *limit*, within 1 %.

    >>> round(least_factor(lambda factor: 0.2 / factor, 0.05), 1)
    4.0
    """
    low = high = 1.0
    while loss(high) > limit and high < _SPAN:
        low, high = high, 2 * high
    while low > 1 / _SPAN and loss(low) <= limit:
        low, high = low / 2, low
    while high / low > _NEAR:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if loss(middle) <= limit else (middle, high)
    return high


def elasticity(time: int, more: int) -> float:
    """Relative change of *time* for a relative change of the bandwidth, if ten per cent more of it gives *more*.

    >>> round(elasticity(1000, 990), 2)
    -0.1
    """
    return (more / time - 1) / (STEP - 1) if time else 0.0
