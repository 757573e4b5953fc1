"""Paged KV memory: blocks of equal size with reference counts, and a cache of what full blocks hold.

A block is *blank* (holds nothing of use), *held* (in the block table of at least one sequence) or *idle* (held by
nobody, but its keys and values are still there and its name is known).  Idle blocks are taken again least recently used
first, and only when no blank one is left.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from hashlib import blake2b

from simulator.errors import UsageError

Name = Hashable


def chained_name(parent: bytes, tokens: Sequence[int]) -> bytes:
    """Name of a full block: a digest of the *parent* block's name and of its own token ids, so of the whole prefix.

    128 bits of BLAKE2b: two prefixes of one name are out of the question (a Python hash would not be).
    """
    return blake2b(parent + b",".join(b"%d" % token for token in tokens), digest_size=16).digest()


class BlockPool:
    """*blocks* blocks of *block_size* positions; *prefix_cache* keeps what released blocks hold while it can."""

    def __init__(self, blocks: int, block_size: int, prefix_cache: bool = True) -> None:
        if blocks < 1:
            raise UsageError(f"KV cache: {blocks} blocks; at least 1 is needed")
        if block_size < 1:
            raise UsageError(f"KV cache: {block_size} positions a block; at least 1 is needed")
        self.blocks = blocks
        self.block_size = block_size
        self.prefix_cache = prefix_cache
        self._references = [0] * blocks
        self._blank = list(range(blocks - 1, -1, -1))  # the end is taken first: block 0, 1, ...
        self._idle: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._name: dict[int, Name] = {}
        self._block: dict[Name, int] = {}

    @property
    def available(self) -> int:
        """Blocks that `allocate` can still give out."""
        return len(self._blank) + len(self._idle)

    @property
    def held(self) -> int:
        """Blocks in the table of at least one sequence."""
        return self.blocks - self.available

    @property
    def idle(self) -> int:
        """Blocks that nobody holds and that a known prefix can still hit."""
        return len(self._idle)

    def allocate(self, count: int) -> list[int]:
        """Take *count* blocks, each with one reference; the caller has looked at `available`."""
        assert count <= self.available, f"{count} blocks asked for, {self.available} available"
        blank = min(count, len(self._blank))
        taken = self._blank[-1 : -blank - 1 : -1]
        del self._blank[len(self._blank) - blank :]
        for _ in range(count - blank):
            block, _ = self._idle.popitem(last=False)
            del self._block[self._name.pop(block)]
            taken.append(block)
        for block in taken:
            self._references[block] = 1
        return taken

    def match(self, names: Iterable[Name]) -> list[int]:
        """Blocks that hold the longest known prefix of *names*; no reference is taken."""
        found: list[int] = []
        for name in names:
            block = self._block.get(name)
            if block is None:
                break
            found.append(block)
        return found

    def count_idle(self, blocks: Iterable[int]) -> int:
        """How many of *blocks* would leave `available` if they were acquired."""
        return sum(not self._references[block] for block in blocks)

    def acquire(self, blocks: Iterable[int]) -> None:
        """Add a reference to each of *blocks*, which came from `match`."""
        for block in blocks:
            if not self._references[block]:
                del self._idle[block]
            self._references[block] += 1

    def publish(self, block: int, name: Name) -> None:
        """Say what the full *block* holds; the first block of a name is the one that later prefixes hit."""
        if self.prefix_cache and name not in self._block and block not in self._name:
            self._name[block] = name
            self._block[name] = block

    def release(self, blocks: Sequence[int]) -> None:
        """Drop one reference to each of *blocks*, the table of one sequence.

        The end of a prefix is of use to fewer than its beginning, so the last block becomes idle first.
        """
        for block in reversed(blocks):
            assert self._references[block] > 0, f"block {block} is released twice"
            self._references[block] -= 1
            if not self._references[block]:
                if block in self._name:
                    self._idle[block] = None
                else:
                    self._blank.append(block)

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """AssertionError unless *tables* of all live sequences account for every reference and every block.

        Each block is in exactly one of the states blank, idle and held; names and blocks are one to one.
        """
        counted = [0] * self.blocks
        for table in tables:
            assert len(set(table)) == len(table), f"a block is twice in one table: {table}"
            for block in table:
                counted[block] += 1
        assert counted == self._references, f"references {self._references}, but tables hold {counted}"
        free = [*self._blank, *self._idle]
        assert sorted(free) == [block for block, count in enumerate(counted) if not count], "free blocks do not add up"
        assert {block: name for name, block in self._block.items()} == self._name, "names and blocks differ"
        assert not set(self._blank) & self._name.keys(), "a blank block has a name"
        assert self._idle.keys() <= self._name.keys(), "an idle block has no name"

    @property
    def names(self) -> Mapping[int, Name]:
        """What is known to lie in which block."""
        return self._name
