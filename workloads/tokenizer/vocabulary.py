"""A vocabulary: the bytes of every token, the merges that make them, and the special tokens.  Plain data."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from simulator.errors import UsageError
from workloads.tokenizer.patterns import Split

BYTES = 256
Merge = tuple[int, int, int]  # left, right, result; a lower result merges first


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a tokenizer is made of.

    tokens   bytes of the tokens 0, 1, 2, ...; 256 of them are the single bytes.
    merges   in order.  A vocabulary that came as ranks has every pair whose bytes together are a token.
    special  text and id of the tokens that no merge makes; ids may leave gaps behind the others.
    ranks    whether it came as ranks (a .tiktoken file) and not as merges.
    """

    split: Split
    tokens: tuple[bytes, ...]
    merges: tuple[Merge, ...]
    special: Mapping[str, int] = field(default_factory=dict)
    ranks: bool = False

    def __len__(self) -> int:
        """Rows of the embedding that a model of it needs: the largest id and one."""
        return max([len(self.tokens) - 1, *self.special.values()]) + 1

    def byte_ids(self) -> list[int]:
        """Return the id of each byte."""
        return [self.tokens.index(bytes([byte])) for byte in range(BYTES)]

    def cut(self, size: int) -> "Vocabulary":
        """Return the vocabulary of *size* tokens that training would have stopped at; special tokens are dropped.

        Vocabularies of byte-pair merges are nested: a smaller one is the start of a larger one.
        """
        check_size(size, 0)
        return Vocabulary(self.split, self.tokens[:size], tuple(m for m in self.merges if m[2] < size), {}, self.ranks)


def check_size(size: int, special: int) -> None:
    """Raise UsageError unless a vocabulary of *size* has room for the bytes and *special* tokens."""
    if size < BYTES:
        raise UsageError(f"a vocabulary of {size:,} tokens: needs at least {BYTES}, one for each byte")
    if size < BYTES + special:
        raise UsageError(
            f"a vocabulary of {size:,} tokens: needs at least {BYTES + special}, one for each byte and special token"
        )


def from_merges(
    split: Split, pairs: Iterable[tuple[int, int]], special: Mapping[str, int], bytes_in_order: Iterable[int]
) -> Vocabulary:
    """Return the vocabulary whose token 256 + i is the i-th of *pairs*; ids 0 to 255 are *bytes_in_order*.

    ValueError names the first pair that speaks of a token which is not there yet, or that stands there twice.
    """
    tokens = [bytes([byte]) for byte in bytes_in_order]
    merges = []
    place: dict[tuple[int, int], int] = {}
    for at, (left, right) in enumerate(pairs):
        if not (0 <= left < len(tokens) and 0 <= right < len(tokens)):
            raise ValueError(f"merge {at} joins {left} and {right}, but there are only {len(tokens)} tokens yet")
        if place.setdefault((left, right), at) != at:
            raise ValueError(f"merge {at} joins {left} and {right}, as merge {place[left, right]} does already")
        merges.append((left, right, len(tokens)))
        tokens.append(tokens[left] + tokens[right])
    return Vocabulary(split, tuple(tokens), tuple(merges), dict(special))


def from_ranks(split: Split, tokens: Iterable[bytes], special: Mapping[str, int]) -> Vocabulary:
    """Return the vocabulary of *tokens* in the order of their ranks: any two whose bytes together are one merge."""
    listed = tuple(tokens)
    ids = {token: id for id, token in enumerate(listed)}
    merges = [
        (ids[token[:i]], ids[token[i:]], id)
        for id, token in enumerate(listed)
        for i in range(1, len(token))
        if token[:i] in ids and token[i:] in ids
    ]
    return Vocabulary(split, listed, tuple(merges), dict(special), ranks=True)


def gpt2_byte_order() -> list[int]:
    """Return the bytes in the order of their ids in GPT-2: those that print first, then the others.

    Source: OpenAI's GPT-2 release, encoder.py.  HF tokenizers number a trained byte-level alphabet the same way.

    >>> bytes(gpt2_byte_order()[:8])
    b'!"#$%&\\'('
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return [*printable, *(byte for byte in range(BYTES) if byte not in set(printable))]


def gpt2_characters() -> dict[str, int]:
    """Return the byte behind each character that GPT-2's files write it as.

    >>> gpt2_characters()["Ġ"], gpt2_characters()["A"]
    (32, 65)
    """
    order = gpt2_byte_order()
    odd = order[188:]  # those that do not print stand from U+0100 on
    return {chr(byte): byte for byte in order[:188]} | {chr(BYTES + i): byte for i, byte in enumerate(odd)}
