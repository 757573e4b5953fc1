"""What every part of the tile model returns."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Picoseconds and bytes of one operator, as floats, before they become a Cost; see Cost for their meaning.

    watts       above idle that it would draw if nothing held it back.
    operations  of the vector lanes, one instruction of one lane each; 0 where the FLOP say it all.
    """

    time: float
    launch: float
    compute: float
    memory: float
    traffic: float
    detail: str
    watts: float = 0.0
    operations: float = 0.0


def together(first: float, second: float, sharpness: float) -> float:
    """Time of two things that overlap, but not perfectly where they take equally long.

    >>> together(3.0, 4.0, 2.0)
    5.0
    >>> together(0.0, 4.0, 2.0)
    4.0
    """
    longer = max(first, second)
    if not longer:
        return 0.0
    return float(longer * (1 + (min(first, second) / longer) ** sharpness) ** (1 / sharpness))
