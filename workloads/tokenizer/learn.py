"""Learns merges from counted words, as compiled code that touches only what a merge changes.

The words lie one behind the other in one array of symbols, linked to left and right inside a word.  Every pair has its
count, and a list of the places where it was ever put; a place is stale, and skipped, if another pair stands there by
now.  A heap gives the pair to merge: the most frequent, and of equal ones that with the smallest left id, then right
id.  Its entries may be stale too: counts of old pairs only fall, so an entry that says too much is put back.
"""

from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from workloads.tokenizer.compiled import Ints, Longs, compiled
from workloads.tokenizer.pairs import EMPTY, slot_of


class Text(NamedTuple):
    """Symbols with links to their neighbours in the word (-1: none) and the times that their word occurs."""

    symbols: Ints
    left: Ints
    right: Ints
    weight: Longs


class Pairs(NamedTuple):
    """The pairs met so far, numbered as they came, and the places of each as a list that starts at *head*.

    table  hash table from a pair to its number: *table_keys* and *table_values*.
    used   how many pairs and how many places there are.
    """

    table_keys: Longs
    table_values: Ints
    keys: Longs
    counts: Longs
    head: Ints
    place: Ints
    following: Ints
    used: Ints


def pairs_for(symbols: int) -> Pairs:
    """Return room for every pair that a text of that many symbols can ever have: each merge makes two, and takes one
    symbol away."""
    most = 3 * symbols + 1
    size = 1 << (2 * most).bit_length()
    return Pairs(
        np.full(size, EMPTY, dtype=np.int64), np.zeros(size, dtype=np.int32), np.zeros(most, dtype=np.int64),
        np.zeros(most, dtype=np.int64), np.full(most, -1, dtype=np.int32), np.zeros(most, dtype=np.int32),
        np.zeros(most, dtype=np.int32), np.zeros(2, dtype=np.int32),
    )  # fmt: skip


@compiled
def number_of(pairs: Pairs, left: int, right: int) -> int:
    """Return the number of a pair, a new one if it was never met."""
    key = (left << 32) | right
    slot = slot_of(pairs.table_keys, key)
    if pairs.table_keys[slot] == EMPTY:
        pairs.table_keys[slot] = key
        pairs.table_values[slot] = pairs.used[0]
        pairs.keys[pairs.used[0]] = key
        pairs.used[0] += 1
    return int(pairs.table_values[slot])


@compiled
def put(pairs: Pairs, text: Text, at: int) -> None:
    """Count the pair that starts at *at*, and note the place."""
    number = number_of(pairs, text.symbols[at], text.symbols[text.right[at]])
    pairs.counts[number] += text.weight[at]
    node = pairs.used[1]
    pairs.place[node] = at
    pairs.following[node] = pairs.head[number]
    pairs.head[number] = node
    pairs.used[1] += 1


@compiled
def take(pairs: Pairs, text: Text, at: int) -> None:
    """Take the pair that starts at *at* out of its count."""
    pairs.counts[number_of(pairs, text.symbols[at], text.symbols[text.right[at]])] -= text.weight[at]


@compiled
def places(pairs: Pairs, text: Text, number: int) -> Ints:
    """Return where the pair stands now, from left to right."""
    left, right = pairs.keys[number] >> 32, pairs.keys[number] & 0xFFFFFFFF
    found = []
    node = pairs.head[number]
    while node >= 0:
        at = pairs.place[node]
        if text.symbols[at] == left and text.right[at] >= 0 and text.symbols[text.right[at]] == right:
            found.append(at)
        node = pairs.following[node]
    return np.sort(np.array(found, dtype=np.int32))


@compiled
def join(pairs: Pairs, text: Text, at: int, token: int) -> None:
    """Make the pair at *at* into *token*, and its neighbours into new pairs."""
    right, left = text.right[at], text.left[at]
    after = text.right[right]
    take(pairs, text, at)
    if left >= 0:
        take(pairs, text, left)
    if after >= 0:
        take(pairs, text, right)
        text.left[after] = at
    text.symbols[at], text.symbols[right] = token, -1
    text.right[at] = after
    if left >= 0:
        put(pairs, text, left)
    if after >= 0:
        put(pairs, text, at)


@compiled
def learn(text: Text, pairs: Pairs, first: int, most: int, least: int) -> Longs:
    """Return up to *most* merges as keys, left x 2^32 + right, the first of which makes the token *first*.

    Stops when no pair occurs *least* times.
    """
    for at in range(text.symbols.size):
        if text.right[at] >= 0:
            put(pairs, text, at)
    heap = [(-pairs.counts[i], pairs.keys[i], int(i)) for i in range(pairs.used[0])]
    heapify(heap)
    merges = np.zeros(most, dtype=np.int64)
    done = 0
    while heap and done < most:
        count, key, number = heappop(heap)
        now = pairs.counts[number]
        if now < least:
            continue
        if now != -count:
            heappush(heap, (-now, key, number))
            continue
        known, left, right = pairs.used[0], key >> 32, key & 0xFFFFFFFF
        for at in places(pairs, text, number):
            if text.symbols[at] == left and text.right[at] >= 0 and text.symbols[text.right[at]] == right:
                join(pairs, text, at, first + done)
        for new in range(known, pairs.used[0]):
            heappush(heap, (-pairs.counts[new], pairs.keys[new], int(new)))
        merges[done] = key
        done += 1
    return merges[:done]
