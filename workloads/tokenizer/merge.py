"""Merges the bytes of one piece: always the pair of lowest rank, and of equal ones the leftmost."""

from heapq import heapify, heappop, heappush

import numpy as np

from workloads.tokenizer.compiled import Ints, Longs, compiled, signed
from workloads.tokenizer.pairs import NONE, merged

SHORT = 96  # tokens up to which looking at all pairs each time beats a heap


@compiled
def merge_piece(ids: Ints, keys: Longs, values: Ints) -> int:
    """Merge *ids* in place; return how many are left."""
    return merge_short(ids, keys, values) if ids.size <= SHORT else merge_long(ids, keys, values)


@compiled
def merge_short(ids: Ints, keys: Longs, values: Ints) -> int:
    """Look for the lowest rank again after every merge: n^2, and for a word the fastest."""
    count = ids.size
    ranks = np.empty(count, dtype=np.int32)
    for i in range(count - 1):
        ranks[i] = merged(keys, values, ids[i], ids[i + 1])
    while count > 1:
        best = 0
        for i in range(1, count - 1):
            if ranks[i] < ranks[best]:
                best = i
        if ranks[best] == NONE:
            break
        ids[best] = ranks[best]
        count -= 1
        for i in range(best + 1, count):
            ids[i] = ids[i + 1]
            ranks[i] = ranks[i + 1]
        if best > 0:
            ranks[best - 1] = merged(keys, values, ids[best - 1], ids[best])
        if best < count - 1:
            ranks[best] = merged(keys, values, ids[best], ids[best + 1])
    return count


@compiled
def merge_long(ids: Ints, keys: Longs, values: Ints) -> int:
    """Keep the pairs in a heap and the tokens in a linked list: n log n for words of any length.

    A heap entry is rank x 2^32 + position.  It is stale, and skipped, if the pair there is another by now.
    """
    count = ids.size
    before, after = np.arange(-1, count - 1), np.arange(1, count + 1)
    heap = [(signed(merged(keys, values, ids[i], ids[i + 1])) << 32) | i for i in range(count - 1)]
    heapify(heap)
    while heap:
        entry = heappop(heap)
        rank, at = entry >> 32, entry & 0xFFFFFFFF
        if rank == NONE:
            break
        right = after[at]
        if ids[at] < 0 or right >= count or merged(keys, values, ids[at], ids[right]) != rank:
            continue
        ids[at], ids[right] = rank, -1
        after[at] = right = after[right]
        if right < count:
            before[right] = at
            heappush(heap, (merged(keys, values, ids[at], ids[right]) << 32) | at)
        if before[at] >= 0:
            left = before[at]
            heappush(heap, (merged(keys, values, ids[left], ids[at]) << 32) | left)
    return pack(ids)


@compiled
def pack(ids: Ints) -> int:
    """Move what is not negative to the front; return how many that are."""
    used = 0
    for i in range(ids.size):
        if ids[i] >= 0:
            ids[used] = ids[i]
            used += 1
    return used
