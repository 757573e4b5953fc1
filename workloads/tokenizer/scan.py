"""The split patterns as compiled code: where the piece that starts at a byte ends.

All work on UTF-8 bytes.  A byte that is no part of a valid character is a character of its own, of class other, and
stays what it is: nothing is lost in encoding (Python calls the same reading ``surrogateescape``).
"""

from workloads.tokenizer.compiled import Bytes, compiled
from workloads.tokenizer.patterns import LETTER, NUMBER, OTHER, SPACE, Split

_GPT2, _CL100K = Split.GPT2.number, Split.CL100K.number
_QUOTE, _BLANK, _CR, _LF = ord("'"), ord(" "), ord("\r"), ord("\n")
_D, _E, _L, _M, _R, _S, _T, _V = (ord(letter) for letter in "delmrstv")
_LONG_S = (0xC5, 0xBF)  # U+017F, which is an s where case does not count


@compiled
def character(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the code point at *at* and its bytes, or (-1, 1) where no valid character stands."""
    first = int(data[at])
    if first < 0x80:
        return first, 1
    size = 2 if 0xC2 <= first < 0xE0 else 3 if 0xE0 <= first < 0xF0 else 4 if 0xF0 <= first < 0xF5 else 0
    if size == 0 or at + size > end:
        return -1, 1
    code = first & (0x7F >> size)
    for i in range(at + 1, at + size):
        if data[i] & 0xC0 != 0x80:
            return -1, 1
        code = code << 6 | (data[i] & 0x3F)
    too_long = (size == 3 and code < 0x800) or (size == 4 and code < 0x10000)
    if too_long or code > 0x10FFFF or 0xD800 <= code < 0xE000:
        return -1, 1
    return code, size


@compiled
def kind_at(data: Bytes, at: int, end: int, classes: Bytes) -> tuple[int, int]:
    """Return the class of the character at *at* and its bytes; class -1 at the end of the text."""
    if at >= end:
        return -1, 0
    first = data[at]
    if first < 0x80:
        return int(classes[first]), 1
    code, size = character(data, at, end)
    return (OTHER if code < 0 else int(classes[code])), size


@compiled
def run_of(kind: int, data: Bytes, at: int, end: int, classes: Bytes) -> int:
    """Return where the run of characters of class *kind* that starts at *at* ends."""
    while at < end:
        found, size = kind_at(data, at, end, classes)
        if found != kind:
            break
        at += size
    return at


@compiled
def contraction(data: Bytes, at: int, end: int, fold: bool) -> int:
    """Return where 's, 't, 're, 've, 'm, 'll or 'd at *at* ends, 0 if there is none; *fold*: in any case."""
    if data[at] != _QUOTE or at + 1 >= end:
        return 0
    case = 0x20 if fold else 0
    one = data[at + 1] | case
    if one in (_S, _D, _M, _T):
        return at + 2
    if at + 2 >= end:
        return 0
    two = data[at + 2] | case
    if (one == _L and two == _L) or (one in (_V, _R) and two == _E):
        return at + 3
    return at + 3 if fold and data[at + 1] == _LONG_S[0] and data[at + 2] == _LONG_S[1] else 0


@compiled
def blanks(data: Bytes, at: int, end: int, classes: Bytes, newlines: bool) -> int:
    r"""Return where white space at *at* is cut: ``\s++$ | \s*[\r\n] (if newlines) | \s+(?!\S) | \s``.

    The last blank before a word is left to the word.
    """
    stop, last, after_newline = at, at, at
    while stop < end:
        found, size = kind_at(data, stop, end, classes)
        if found != SPACE:
            break
        last = stop
        stop += size
        if data[last] == _CR or data[last] == _LF:
            after_newline = stop
    if stop == end:
        return stop
    if newlines and after_newline > at:
        return after_newline
    return last if last > at else stop


@compiled
def gpt2_piece(data: Bytes, at: int, end: int, classes: Bytes) -> int:
    """Return the end of the piece at *at* under the GPT-2 pattern."""
    stop = contraction(data, at, end, False)
    if stop:
        return stop
    kind, _ = kind_at(data, at, end, classes)
    if data[at] == _BLANK:
        after, _ = kind_at(data, at + 1, end, classes)
        if after >= 0 and after != SPACE:
            return run_of(after, data, at + 1, end, classes)
    if kind != SPACE:
        return run_of(kind, data, at, end, classes)
    return blanks(data, at, end, classes, False)


@compiled
def cl100k_piece(data: Bytes, at: int, end: int, classes: Bytes) -> int:
    """Return the end of the piece at *at* under the cl100k pattern."""
    stop = contraction(data, at, end, True)
    if stop:
        return stop
    kind, size = kind_at(data, at, end, classes)
    if kind == LETTER:
        return run_of(LETTER, data, at, end, classes)
    if kind == NUMBER:
        return digits(data, at, end, classes)
    after, _ = kind_at(data, at + size, end, classes)
    if after == LETTER and data[at] != _CR and data[at] != _LF:
        return run_of(LETTER, data, at + size, end, classes)
    start = at + 1 if data[at] == _BLANK and after == OTHER else at
    stop = run_of(OTHER, data, start, end, classes)
    if stop == start:
        return blanks(data, at, end, classes, True)
    while stop < end and (data[stop] == _CR or data[stop] == _LF):
        stop += 1
    return stop


@compiled
def digits(data: Bytes, at: int, end: int, classes: Bytes) -> int:
    """Return the end of at most three numbers."""
    for _ in range(3):
        found, size = kind_at(data, at, end, classes)
        if found != NUMBER:
            break
        at += size
    return at


@compiled
def piece_end(data: Bytes, at: int, end: int, classes: Bytes, split: int) -> int:
    """Return the end of the piece that starts at *at*; *end* is the end of the text."""
    if split == _GPT2:
        return gpt2_piece(data, at, end, classes)
    if split == _CL100K:
        return cl100k_piece(data, at, end, classes)
    return end
