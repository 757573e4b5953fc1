"""Encodes bytes: cuts pieces, looks each up among those met before, and merges those that are new."""

from dataclasses import dataclass

import numpy as np

from workloads.tokenizer.compiled import Bytes, Ints, Longs, compiled, signed
from workloads.tokenizer.merge import merge_piece
from workloads.tokenizer.pairs import pair_table
from workloads.tokenizer.patterns import SPACE, Split, classes
from workloads.tokenizer.scan import piece_end, run_of

SLOTS = 2**15  # pieces remembered; a newer one takes the place of an older with the same hash
KEY = 32  # bytes of the longest piece that is remembered
IDS = 15  # most tokens of one
AHEAD = 16  # bytes that must follow a piece and its white space before its end is certain


@compiled
def hash_of(data: Bytes, start: int, stop: int) -> int:
    """Return a hash of 63 bits (FNV-1a, with the high bits folded in)."""
    value = np.uint64(0xCBF29CE484222325)
    for i in range(start, stop):
        value = (value ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    return signed((value ^ (value >> np.uint64(29))) & np.uint64(0x7FFFFFFFFFFFFFFF))


@compiled
def _known(data: Bytes, start: int, size: int, cache_keys: Bytes, slot: int) -> bool:
    if cache_keys[slot, KEY] != size:
        return False
    for i in range(size):  # noqa: SIM110  compiled: a loop is what it becomes anyway
        if cache_keys[slot, i] != data[start + i]:
            return False
    return True


@compiled
def _merge(data: Bytes, start: int, size: int, byte_ids: Ints, keys: Longs, values: Ints, out: Ints, used: int) -> int:
    for i in range(size):
        out[used + i] = byte_ids[data[start + i]]
    return merge_piece(out[used : used + size], keys, values)


@compiled
def encode_piece(
    data: Bytes, start: int, size: int, byte_ids: Ints, keys: Longs, values: Ints,
    cache_keys: Bytes, cache_ids: Ints, out: Ints, used: int,
) -> int:  # fmt: skip
    """Write the tokens of one piece to *out* from *used* on; return how many.

    Rows are indexed, not sliced: a slice costs more than a look-up.
    """
    if size > KEY:
        return _merge(data, start, size, byte_ids, keys, values, out, used)
    slot = hash_of(data, start, start + size) & (SLOTS - 1)
    if _known(data, start, size, cache_keys, slot):
        count = int(cache_ids[slot, IDS])
        for i in range(count):
            out[used + i] = cache_ids[slot, i]
        return count
    count = _merge(data, start, size, byte_ids, keys, values, out, used)
    if count <= IDS:
        cache_keys[slot, KEY] = size
        cache_ids[slot, IDS] = count
        for i in range(size):
            cache_keys[slot, i] = data[start + i]
        for i in range(count):
            cache_ids[slot, i] = out[used + i]
    return count


@compiled
def encode_pieces(
    data: Bytes, start: int, certain: int, end: int, split: int, classes: Bytes, byte_ids: Ints, keys: Longs,
    values: Ints, cache_keys: Bytes, cache_ids: Ints, out: Ints, used: int,
) -> tuple[int, int]:  # fmt: skip
    """Encode from *start* into *out*, of which *used* are taken; return how far it came and how many are taken now.

    Stops before the first piece that, white space behind it included, ends after *certain*: text that is still to
    come could change it.  With *certain* = *end* the text is complete.
    """
    at = start
    while at < end:
        stop = piece_end(data, at, end, classes, split)
        if certain < end and run_of(SPACE, data, stop, end, classes) > certain:
            break
        used += encode_piece(data, at, stop - at, byte_ids, keys, values, cache_keys, cache_ids, out, used)
        at = stop
    return at, used


@dataclass(slots=True)
class Encoder:
    """The tables that compiled code encodes with: about 4 MB, of a size that no text changes."""

    split: Split
    byte_ids: Ints
    keys: Longs
    values: Ints
    cache_keys: Bytes
    cache_ids: Ints

    def run(self, data: Bytes, start: int, certain: int, end: int, out: Ints, used: int) -> tuple[int, int]:
        """See `encode_pieces`; *out* must have room for a token a byte."""
        return encode_pieces(
            data, start, certain, end, self.split.number, classes(), self.byte_ids, self.keys, self.values,
            self.cache_keys, self.cache_ids, out, used,
        )  # fmt: skip


def encoder(split: Split, byte_ids: list[int], merges: list[tuple[int, int, int]]) -> Encoder:
    """Return an encoder for *merges*, each (left, right, result), where a lower result merges first."""
    keys, values = pair_table(merges)
    remembered = np.zeros((SLOTS, KEY + 1), dtype=np.uint8)
    ids = np.zeros((SLOTS, IDS + 1), dtype=np.int32)
    return Encoder(split, np.array(byte_ids, dtype=np.int32), keys, values, remembered, ids)
