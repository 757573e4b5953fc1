"""Requests made up from distributions: when they come, how long their prompts and outputs are."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, exp, log
from random import Random

from simulator.errors import UsageError, nearest
from simulator.serving.sequence import Request
from simulator.units import PS_PER_SECOND

Draw = Callable[[Random], int]
_FORMS = "a number, constant:N, uniform:LOW:HIGH, lognormal:MEDIAN[:SIGMA] or exponential:MEAN"
_SIGMA = 1.0  # of the natural logarithm, where lognormal says only its median
_ARRIVALS = ("poisson", "uniform", "gamma")


def length(text: str, option: str) -> Draw:
    """A distribution of lengths in tokens, at least 1; UsageError names the *option*.

    >>> length("lognormal:512", "--prompt")(Random(1)) >= 1, length("7", "--prompt")(Random(1))
    (True, 7)
    """
    name, *rest = text.split(":") if ":" in text or text.isalpha() else ("constant", text)
    makers: dict[str, tuple[int, int, Callable[..., Draw]]] = {
        "constant": (1, 1, _constant),
        "uniform": (2, 2, _uniform),
        "lognormal": (1, 2, _lognormal),
        "exponential": (1, 1, _exponential),
    }
    if name not in makers:
        raise UsageError(f"{option} {text}: unknown distribution{nearest(name, makers)} (wanted {_FORMS})")
    least, most, make = makers[name]
    try:
        values = [float(each) for each in rest]
    except ValueError:
        values = []
    if not least <= len(values) <= most or min(values) <= 0 or max(values) > 1e9:
        raise UsageError(f"{option} {text}: wanted {_FORMS}, with numbers above 0")
    if name == "uniform" and values[0] > values[1]:
        raise UsageError(f"{option} {text}: LOW is above HIGH")
    return make(*values)


def _constant(value: float) -> Draw:
    return lambda _: max(1, round(value))


def _uniform(low: float, high: float) -> Draw:
    return lambda random: random.randint(max(1, round(low)), max(1, round(high)))


def _lognormal(median: float, sigma: float = _SIGMA) -> Draw:
    return lambda random: max(1, round(exp(random.gauss(log(median), sigma))))


def _exponential(mean: float) -> Draw:
    return lambda random: max(1, ceil(random.expovariate(1 / mean)))


def rate(text: str) -> float:
    """Requests per second of ``4/s``, ``30/min`` or ``4``.

    >>> rate("4/s"), rate("30/min")
    (4.0, 0.5)
    """
    number, _, unit = text.partition("/")
    per = {"": 1, "s": 1, "min": 60, "h": 3600}
    try:
        value = float(number) / per[unit]
    except (KeyError, ValueError):
        value = 0.0
    if not 0 < value < 1e9:
        raise UsageError(f"--rate {text}: wanted requests a second above 0, such as 4/s or 30/min")
    return value


@dataclass(frozen=True, slots=True)
class Pattern:
    """How requests are made up.

    process     poisson; uniform: equal distances; gamma: bursts, with a coefficient of variation of *variation*.
    per_second  rate of arrivals; infinite: all at the start.
    shared      tokens of a beginning that all prompts have in common.
    """

    per_second: float
    prompt: Draw
    output: Draw
    process: str = "poisson"
    variation: float = 2.0
    shared: int = 0


def make(pattern: Pattern, count: int, seed: int) -> list[Request]:
    """*count* requests in order of arrival; equal seeds give equal requests."""
    if pattern.process not in _ARRIVALS:
        hint = nearest(pattern.process, _ARRIVALS)
        raise UsageError(f"--arrivals {pattern.process}: unknown{hint} (known: {', '.join(_ARRIVALS)})")
    random = Random(seed)
    found, clock = [], 0.0
    prefix = ("shared", pattern.shared) if pattern.shared else None
    for id in range(count):
        clock += _wait(pattern, random)
        prompt = pattern.shared + pattern.prompt(random)
        found.append(Request(id, round(clock * PS_PER_SECOND), prompt, pattern.output(random), prefix=prefix))
    return found


def _wait(pattern: Pattern, random: Random) -> float:
    """Seconds to the next arrival, 1 / rate in the mean."""
    mean = 1 / pattern.per_second
    if pattern.process == "uniform":
        return mean
    if pattern.process == "gamma":
        shape = 1 / pattern.variation**2
        return random.gammavariate(shape, mean / shape)
    return random.expovariate(pattern.per_second)
