"""A hash table from a pair of token ids to the token that they merge into, for compiled code.

Open addressing in two arrays of a power of two, at most half full; a key is left id x 2^32 + right id.
"""

from collections.abc import Iterable

import numpy as np

from workloads.tokenizer.compiled import Ints, Longs, compiled, signed

EMPTY = -1
NONE = 2**31 - 1  # rank of a pair that does not merge


@compiled
def slot_of(keys: Longs, key: int) -> int:
    """Return where *key* stands, or the empty slot where it belongs."""
    mask = keys.size - 1
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    at = signed((mixed ^ (mixed >> np.uint64(32))) & np.uint64(mask))
    while keys[at] not in (key, EMPTY):
        at = (at + 1) & mask
    return at


@compiled
def merged(keys: Longs, values: Ints, left: int, right: int) -> int:
    """Return the token that *left* and *right* merge into, which is also its rank; NONE if they do not."""
    at = slot_of(keys, (left << 32) | right)
    return signed(values[at]) if keys[at] != EMPTY else NONE


@compiled
def _fill(keys: Longs, values: Ints, pairs: Longs, results: Ints) -> None:
    for i in range(pairs.size):
        at = slot_of(keys, pairs[i])
        keys[at] = pairs[i]
        values[at] = results[i]


def pair_table(merges: Iterable[tuple[int, int, int]]) -> tuple[Longs, Ints]:
    """Return keys and values of a table of (left, right, result)."""
    rows = np.array(list(merges), dtype=np.int64).reshape(-1, 3)
    size = 1 << max(4, int(2 * len(rows)).bit_length())
    keys, values = np.full(size, EMPTY, dtype=np.int64), np.zeros(size, dtype=np.int32)
    _fill(keys, values, (rows[:, 0] << 32) | rows[:, 1], rows[:, 2].astype(np.int32))
    return keys, values
