"""Counts the words (pieces) of a text, on several cores."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np

from simulator.errors import UsageError, nearest
from workloads.tokenizer.compiled import Bytes, Ints, Longs, as_bytes, compiled
from workloads.tokenizer.encode import hash_of
from workloads.tokenizer.patterns import Split, classes
from workloads.tokenizer.scan import piece_end

POOLS = ("threads", "processes")
_LETTERS = bytes(range(65, 91)) + bytes(range(97, 123))
_PART = 2**20  # bytes below which a share of the text is not worth a worker


@compiled
def count_pieces(data: Bytes, at: int, split: int, classes: Bytes) -> tuple[Longs, Ints, Longs]:
    """Return start, length and count of each different piece of *data* from *at* on, in order of appearance."""
    room = 1 << 12
    slots = np.full(2 * room, -1, dtype=np.int32)
    hashes, starts = np.zeros(room, dtype=np.int64), np.zeros(room, dtype=np.int64)
    sizes, counts = np.zeros(room, dtype=np.int32), np.zeros(room, dtype=np.int64)
    used = 0
    while at < data.size:
        stop = piece_end(data, at, data.size, classes, split)
        mixed = hash_of(data, at, stop)
        slot = mixed & (slots.size - 1)
        while slots[slot] >= 0:
            word = slots[slot]
            if hashes[word] == mixed and same(data, starts[word], sizes[word], at, stop - at):
                break
            slot = (slot + 1) & (slots.size - 1)
        if slots[slot] < 0:
            slots[slot] = used
            hashes[used], starts[used], sizes[used] = mixed, at, stop - at
            used += 1
        counts[slots[slot]] += 1
        at = stop
        if used == room:
            hashes, starts = np.append(hashes, np.zeros_like(hashes)), np.append(starts, np.zeros_like(starts))
            sizes, counts = np.append(sizes, np.zeros_like(sizes)), np.append(counts, np.zeros_like(counts))
            room *= 2
            slots = rehashed(hashes[:used], 2 * room)
    return starts[:used], sizes[:used], counts[:used]


@compiled
def same(data: Bytes, a: int, a_size: int, b: int, b_size: int) -> bool:
    """Tell whether two stretches of *data* hold the same bytes."""
    if a_size != b_size:
        return False
    for i in range(a_size):  # noqa: SIM110  compiled: a loop is what it becomes anyway
        if data[a + i] != data[b + i]:
            return False
    return True


@compiled
def rehashed(hashes: Longs, size: int) -> Ints:
    """Return a table of *size* slots in which word i stands at its hash."""
    slots = np.full(size, -1, dtype=np.int32)
    for i in range(hashes.size):
        slot = hashes[i] & (size - 1)
        while slots[slot] >= 0:
            slot = (slot + 1) & (size - 1)
        slots[slot] = i
    return slots


def count_words(data: bytes, split: Split) -> Counter[bytes]:
    """Return how often each piece of *data* occurs."""
    starts, sizes, counts = count_pieces(as_bytes(data), 0, split.number, classes())
    rows = zip(starts.tolist(), sizes.tolist(), counts.tolist(), strict=True)
    return Counter({data[start : start + size]: count for start, size, count in rows})


def parts(data: bytes, count: int) -> Iterator[bytes]:
    """Cut *data* into about *count* parts, each cut between an ASCII letter and a blank: every pattern cuts there.

    >>> list(parts(b"one two three four", 2))
    [b'one two three', b' four']
    """
    start = 0
    for i in range(1, count):
        at = data.find(b" ", max(start + 1, len(data) * i // count))
        while at > 0 and data[at - 1] not in _LETTERS:
            at = data.find(b" ", at + 1)
        if at > 0:
            yield data[start:at]
            start = at
    yield data[start:]


def count_all(documents: Iterable[bytes], split: Split, workers: int = 1, pool: str = "threads") -> Counter[bytes]:
    """Return how often each piece occurs in all *documents*, counted by *workers* at once.

    Threads share the text and start at once (compiled code does not hold the interpreter's lock); processes each
    start an interpreter and get their share through a pipe.  The counts are the same.
    """
    if workers < 1:
        raise UsageError(f"{workers} workers: needs at least 1")
    if pool not in POOLS:
        raise UsageError(f"unknown pool {pool!r}{nearest(pool, POOLS)} (known: {', '.join(POOLS)})")
    shares: list[bytes] = []
    for document in documents:
        whole = split is Split.NONE or workers == 1
        shares += [document] if whole else parts(document, max(1, min(4 * workers, len(document) // _PART)))
    total: Counter[bytes] = Counter()
    if workers == 1:
        for share in shares:
            total += count_words(share, split)
        return total
    with _executor(pool, workers) as executor:
        for found in executor.map(count_words, shares, [split] * len(shares), chunksize=_chunk(shares, workers)):
            total.update(found)
    return total


def _executor(pool: str, workers: int) -> Executor:
    if pool == "threads":
        return ThreadPoolExecutor(workers)
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"))


def _chunk(shares: Sequence[bytes], workers: int) -> int:
    return max(1, len(shares) // (4 * workers))
