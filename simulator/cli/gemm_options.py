"""Options that ``xpusim array`` and ``xpusim rtl`` share, and how their text is read."""

import argparse
import re
from typing import TYPE_CHECKING

from simulator.errors import UsageError, nearest
from simulator.units import quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

Shape = tuple[int, int, int]
MOST_EXTENT = 2**31 - 1
"""As in hw_models.systolic, which takes long to import."""
_MOST_DIGITS = 20
_MOST_AMOUNT = 10**18


def accept_negative_values(parser: argparse.ArgumentParser) -> None:
    """Let ``--gemm -1,2,3`` be a value, so that it is refused for what it is and not taken for an unknown option."""
    parser._negative_number_matcher = re.compile(r"-\d")


def gemm_shape(text: str) -> Shape:
    """Read ``M,N,K``; UsageError for anything but three whole numbers from 1 to MOST_EXTENT."""
    parts = text.split(",")
    if len(parts) != 3:
        raise UsageError(f"--gemm {text}: {len(parts)} sizes, wanted three: M,N,K, as in --gemm 1024,2304,768")
    for name, part in zip("MNK", parts, strict=True):
        if not re.fullmatch(r"-?[0-9]+", part.strip()):
            raise UsageError(f"--gemm {text}: {name} is {part!r}, wanted a whole number")
        if len(part.strip()) > _MOST_DIGITS or int(part) > MOST_EXTENT:
            raise UsageError(f"--gemm {text}: {name} is {part.strip()}, wanted at most {MOST_EXTENT:,}")
        if int(part) < 1:
            raise UsageError(f"--gemm {text}: {name} is {int(part)}, wanted at least 1")
    m, n, k = map(int, parts)
    return m, n, k


def size(option: str, value: int, most: int = MOST_EXTENT) -> int:
    """Return *value*; UsageError if it is below 1 or above *most*."""
    if value < 1:
        raise UsageError(f"{option} is {value}, wanted at least 1")
    if value > most:
        raise UsageError(f"{option} is {value}, wanted at most {most:,}")
    return value


def one_of(option: str, name: str, known: "Sequence[str]") -> str:
    """Return *name* if it is known; UsageError with the nearest one otherwise."""
    if name not in known:
        raise UsageError(f"{option} {name}: unknown{nearest(name, known)} (known: {', '.join(known)})")
    return name


def amount(option: str, text: str, unit: str, example: str) -> int:
    """Read a quantity in *unit* that is more than zero; UsageError shows how to write it."""
    try:
        value = quantity(text, unit)
    except ValueError:
        raise UsageError(
            f"{option}: {text!r} is not a whole number of {unit} with its unit (write it as in {option} {example})"
        ) from None
    if not value:
        raise UsageError(f"{option} is {text}, wanted more than 0")
    if value > _MOST_AMOUNT:
        raise UsageError(f"{option} is {text}, wanted at most {_MOST_AMOUNT:.0e} {unit}")
    return value
