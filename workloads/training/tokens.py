"""Bytes as tokens, and four tokens that no text contains."""

from collections.abc import Sequence

SEPARATOR = 256  # between two documents
USER = 257
ASSISTANT = 258
END = 259  # of an assistant's answer
VOCABULARY = 320  # 260 in use; a multiple of 64, because a matrix with odd columns is slow on every chip

_NAMES = {SEPARATOR: "<|document|>", USER: "<|user|>", ASSISTANT: "<|assistant|>", END: "<|end|>"}


def encode(text: str) -> list[int]:
    """Return the UTF-8 bytes of *text*; what looks like a special token in it stays text.

    >>> encode("é<")
    [195, 169, 60]
    """
    return list(text.encode())


def decode(tokens: Sequence[int]) -> str:
    """Return the text of *tokens*, special ones by name; bytes that are no UTF-8 become U+FFFD.

    >>> decode([72, 105, 259])
    'Hi<|end|>'
    """
    names = (_NAMES.get(token, f"<|{token}|>").encode() if token > 255 else bytes([token]) for token in tokens)
    return b"".join(names).decode(errors="replace")
