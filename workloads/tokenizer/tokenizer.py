"""Text to token ids and back."""

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from simulator.errors import SpecError, UsageError, nearest
from workloads.tokenizer.compiled import Ints, as_bytes
from workloads.tokenizer.encode import AHEAD, encoder
from workloads.tokenizer.patterns import Split
from workloads.tokenizer.vocabulary import Vocabulary

Allowed = Literal["all", "none"] | Collection[str]
BLOCK = 2**14  # bytes that a stream reads at a time


class Tokenizer:
    """Encodes and decodes with a vocabulary.

    *allowed* says which special tokens a text may hold, as tiktoken's ``allowed_special`` does:

    ``()``      none: a text with one in it raises UsageError.  The default, since a user's text must not smuggle any.
    a set       these become their token; any other one raises.
    ``"all"``   all become their token.
    ``"none"``  none is looked for: their characters are encoded as any others are.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._encoder = encoder(vocabulary.split, vocabulary.byte_ids(), list(vocabulary.merges))
        self._bytes: dict[int, bytes] = dict(enumerate(vocabulary.tokens))
        self._special = {text.encode(): id for text, id in vocabulary.special.items()}
        self._bytes |= {id: text for text, id in self._special.items()}
        longest_first = sorted(self._special, key=len, reverse=True)
        self._search = re.compile(b"|".join(map(re.escape, longest_first))) if longest_first else None
        self._longest = max(map(len, self._special), default=0)

    def __len__(self) -> int:
        """Rows that an embedding needs."""
        return len(self.vocabulary)

    def encode(self, text: str | bytes, allowed: Allowed = ()) -> list[int]:
        """Return the token ids of *text*.

        Bytes need not be valid UTF-8: a stray byte is a character of its own, and decoding gives it back.  A lone
        surrogate in a str, which has no bytes, becomes U+FFFD.
        """
        ids: list[int] = self.encode_array(text, allowed).tolist()
        return ids

    def encode_array(self, text: str | bytes, allowed: Allowed = ()) -> Ints:
        """Return the token ids of *text* as an array: 4 bytes each, not 36."""
        data = _utf8(text) if isinstance(text, str) else text
        out = np.empty(len(data), dtype=np.int32)
        _, used = self._encode(data, len(data), self._check(allowed), out)
        return out[:used].copy()

    def encode_stream(self, blocks: Iterable[str | bytes], allowed: Allowed = ()) -> Iterator[int]:
        """Yield the ids of a text that comes in *blocks*, the same as if it came at once.

        Keeps what is not certain yet: the last word and the white space behind it.  With the split ``none`` that is
        the whole text.
        """
        taken = self._check(allowed)
        held = b""
        for block in blocks:
            held += _utf8(block) if isinstance(block, str) else block
            certain = len(held) - AHEAD - self._longest
            if certain <= 0 or self.vocabulary.split is Split.NONE:
                continue
            done, ids = self._part(held, certain, taken)
            held = held[done:]
            yield from ids
        _, ids = self._part(held, len(held), taken)
        yield from ids

    def encode_file(self, path: str | Path, allowed: Allowed = ()) -> Iterator[int]:
        """Yield the ids of the file at *path*, read a block at a time; SpecError if it cannot be read."""
        yield from self.encode_stream(blocks_of(Path(path)), allowed)

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of *ids*; UsageError for an id that no token has."""
        try:
            return b"".join(map(self._bytes.__getitem__, ids))
        except KeyError as error:
            raise UsageError(f"token id {error.args[0]} is not in the vocabulary (0 to {len(self) - 1})") from None

    def decode(self, ids: Iterable[int], errors: str = "replace") -> str:
        """Return the text of *ids*.

        errors  what to do with bytes that are no character: as in bytes.decode (``replace``, ``strict``, ``ignore``).
                With ``strict`` UsageError says where the first one is.
        """
        data = self.decode_bytes(ids)
        try:
            return data.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            raise UsageError(f"the tokens are not UTF-8 at byte {error.start}: {error.reason}") from None
        except LookupError:
            raise UsageError(f"unknown way to treat errors: {errors!r} (known: replace, strict, ignore)") from None

    def _check(self, allowed: Allowed) -> frozenset[bytes] | None:
        """Return the special tokens to take; None if none is looked for."""
        if allowed == "none":
            return None
        if allowed == "all":
            return frozenset(self._special)
        if isinstance(allowed, str):
            raise UsageError(f"allowed special tokens: give 'all', 'none' or a set, not the text {allowed!r}")
        known = self.vocabulary.special
        for text in allowed:
            if text not in known:
                listed = ", ".join(known) or "none"
                raise UsageError(f"unknown special token {text!r}{nearest(text, known)} (known: {listed})")
        return frozenset(text.encode() for text in allowed)

    def _part(self, data: bytes, certain: int, taken: frozenset[bytes] | None) -> tuple[int, list[int]]:
        out = np.empty(len(data), dtype=np.int32)
        done, used = self._encode(data, certain, taken, out)
        return done, out[:used].tolist()

    def _encode(self, data: bytes, certain: int, taken: frozenset[bytes] | None, out: Ints) -> tuple[int, int]:
        """Encode what is certain of *data* into *out*; return the bytes and the tokens that this makes."""
        view, at, used = as_bytes(data), 0, 0
        search = self._search if taken is not None else None
        while search and taken is not None and (match := search.search(data, at)):
            if match.start() > certain:
                break
            if match[0] not in taken:
                raise UsageError(_not_allowed(match[0].decode()))
            _, used = self._encoder.run(view, at, match.start(), match.start(), out, used)
            out[used] = self._special[match[0]]
            used += 1
            at = match.end()
        if at >= len(data):
            return at, used
        return self._encoder.run(view, at, certain, len(data), out, used)


def blocks_of(path: Path) -> Iterator[bytes]:
    """Yield the bytes of the file at *path* in blocks; SpecError if it cannot be read."""
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                yield block
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror or error}") from None


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # lone surrogates; a pair of them is a character
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _not_allowed(text: str) -> str:
    return (
        f"the text holds the special token {text!r}: allow it (allowed={{{text!r}}} or 'all'), "
        "or encode it as ordinary text (allowed='none')"
    )
