"""The format of packed weights, for the engine that multiplies with them and for the pass that counts their bytes.

A matrix [rows, k] is cut along k into groups of 128.  A group has its integers, a scale and a zero, both fp16: 4.25 and
8.25 bits a weight.
"""

from simulator.errors import UsageError, nearest

GROUP = 128  # weights along k that share a scale and a zero
PARAMETERS = 2  # of a group, fp16 each: scale and zero
BITS = {"none": 0, "w8": 8, "w4": 4}  # of a weight, by scheme; 0: as the model has it


def bits_of(scheme: str) -> int:
    """Return the bits of *scheme*; UsageError with the nearest name if there is none.

    >>> bits_of("w4")
    4
    """
    if scheme not in BITS:
        raise UsageError(f"unknown quantisation {scheme!r}{nearest(scheme, BITS)} (known: {', '.join(BITS)})")
    return BITS[scheme]


def groups_of(k: int) -> int:
    """Return the groups that *k* weights fill, the last perhaps in part."""
    return -(-k // GROUP)


def packed_bytes(rows: int, k: int, bits: int) -> int:
    """Return the bytes of *rows* rows of *k* weights in whole groups.

    >>> packed_bytes(151_936, 2_560, 4)  # a vocabulary head: 151,936 x 20 groups x (64 + 4) bytes
    206632960
    """
    return rows * groups_of(k) * (GROUP * bits // 8 + 2 * PARAMETERS)
