"""Quantities with units, read once at the border and plain integers inside.

A description file writes ``80 GB`` or ``3.35 TB/s``.  Inside the simulator there are only integers in
base units: bytes, bytes per second, FLOP per second, hertz, picoseconds for time, attojoules for energy.
Decimal prefixes (k, M, G, T, P) are powers of 1000, binary ones (Ki, Mi, Gi, Ti) powers of 1024, and case
counts, so that ``Gb`` cannot pass for ``GB``.
"""

import re
from fractions import Fraction

_PREFIX = {
    "": 1,
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip
_TIME = {"s": 10**12, "ms": 10**9, "us": 10**6, "ns": 10**3, "ps": 1}
_ENERGY = {"J": 10**18, "mJ": 10**15, "uJ": 10**12, "nJ": 10**9, "pJ": 10**6, "fJ": 10**3, "aJ": 1}

PS_PER_SECOND = 10**12
AJ_PER_JOULE = 10**18


def quantity(text: object, unit: str) -> int:
    """Return *text*, such as ``"3.35 TB/s"``, as a whole number of *unit*, such as ``"B/s"``.

    The space may be left out, as on a command line.  Raises ValueError with what was wanted.

    >>> quantity("80 GB", "B"), quantity("80GiB", "B")
    (80000000000, 85899345920)
    >>> quantity("3.35 TB/s", "B/s")
    3350000000000
    """
    if not isinstance(text, str):
        raise ValueError(f"needs a unit: write '{text} {unit}' or, say, '{text} G{unit}', not a bare {text!r}")
    match = re.fullmatch(rf"(\d+(?:\.\d+)?) ?([KMGT]i|[kMGTP])?{re.escape(unit)}", text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity in {unit} (expected the form '3.35 T{unit}')")
    return _whole(Fraction(match[1]) * _PREFIX[match[2] or ""], text, unit)


def duration(text: object) -> int:
    """Return *text*, such as ``"3.1 us"``, in picoseconds.

    >>> duration("3.1 us"), duration("850 ns")
    (3100000, 850000)
    """
    return _read(text, _TIME, "a time", ("us", "ns"), "3.1 us")


def energy(text: object) -> int:
    """Return *text*, such as ``"1.08 pJ"``, in attojoules.

    >>> energy("1.08 pJ"), energy("625 fJ")
    (1080000, 625000)
    """
    return _read(text, _ENERGY, "an energy", ("pJ", "fJ"), "1.08 pJ")


def _read(text: object, units: dict[str, int], what: str, usual: tuple[str, str], example: str) -> int:
    """*text* in the last of *units*; the messages speak of *what*, *usual* units and an *example*."""
    if not isinstance(text, str):
        raise ValueError(f"needs a unit: write '{text} {usual[0]}' or '{text} {usual[1]}', not a bare {text!r}")
    match = re.fullmatch(rf"(\d+(?:\.\d+)?) ?({'|'.join(units)})", text)
    if match is None:
        raise ValueError(f"{text!r} is not {what} (expected the form '{example}'; units are {', '.join(units)})")
    return _whole(Fraction(match[1]) * units[match[2]], text, list(units)[-1])


def _whole(value: Fraction, text: str, unit: str) -> int:
    if value.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of {unit}")
    return int(value)


def transfer_ps(size: int, bandwidth: int) -> int:
    """Return the picoseconds that *size* bytes take at *bandwidth* bytes per second, rounded up.

    The same for FLOP and FLOP per second.

    >>> transfer_ps(size=1_000, bandwidth=1_000_000_000)  # 1 kB at 1 GB/s is 1 us
    1000000
    """
    return -(-size * PS_PER_SECOND // bandwidth)


def decimal(value: float, unit: str, digits: int = 3) -> str:
    """Write *value* with the decimal prefix that reads best.

    >>> decimal(3_350_000_000_000, "B/s"), decimal(0, "FLOP"), decimal(989.4e12, "FLOP/s")
    ('3.35 TB/s', '0 FLOP', '989 TFLOP/s')
    """
    return _scaled(value, unit, 1000.0, ("", "k", "M", "G", "T", "P", "E"), digits)


def binary(value: float, unit: str = "B", digits: int = 3) -> str:
    """Write *value* with the binary prefix that reads best.

    >>> binary(40 * 2**20), binary(1023)
    ('40 MiB', '1023 B')
    """
    return _scaled(value, unit, 1024.0, ("", "Ki", "Mi", "Gi", "Ti", "Pi"), digits)


def _scaled(value: float, unit: str, base: float, prefixes: tuple[str, ...], digits: int) -> str:
    for prefix in prefixes[:-1]:
        if abs(value) < base * (1 - 0.5 * 10**-digits):
            return f"{_short(value, digits)} {prefix}{unit}"
        value /= base
    return f"{_short(value, digits)} {prefixes[-1]}{unit}"


def seconds(picoseconds: float, digits: int = 4) -> str:
    """Write a time, given in picoseconds, with the unit that reads best.

    >>> seconds(3_100_000), seconds(0), seconds(2_638_750_000), seconds(1.5e12)
    ('3.1 us', '0 s', '2.639 ms', '1.5 s')
    """
    return _named(picoseconds, _TIME, digits)


def joules(attojoules: float, digits: int = 3) -> str:
    """Write an energy, given in attojoules, with the unit that reads best.

    >>> joules(1_080_000), joules(0), joules(2.7029e18)
    ('1.08 pJ', '0 J', '2.7 J')
    """
    return _named(attojoules, _ENERGY, digits)


def _named(value: float, units: dict[str, int], digits: int) -> str:
    """*value*, given in the last of *units*, in the first of them that it fills."""
    if value == 0:
        return f"0 {next(iter(units))}"
    for unit, scale in units.items():
        if abs(value) >= scale * (1 - 0.5 * 10**-digits):
            return f"{_short(value / scale, digits)} {unit}"
    return f"{_short(value, digits)} {next(reversed(units))}"


def _short(value: float, digits: int) -> str:
    """Write *value* with that many significant digits, but never in exponent form or with a cut integer part."""
    whole = len(str(int(abs(value))))
    text = f"{value:.{max(0, digits - whole)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
