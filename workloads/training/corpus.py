"""Text that every Python carries: the sources and documentation of its standard library (PSF License Agreement)."""

import sysconfig
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simulator.errors import UsageError
from workloads.training.tokens import SEPARATOR

Tokens = NDArray[np.uint16]
_FOREIGN = {"site-packages", "dist-packages", "__pycache__"}
_VALIDATION = 20  # every so many documents, by a checksum of their name, are kept for validation
_TYPES = {".py", ".md", ".rst", ".txt"}


@dataclass(frozen=True, slots=True)
class Corpus:
    """Token streams of the documents, each with a separator after it.

    source  where the text is from and under which licence, in one line.
    """

    train: Tokens
    validation: Tokens
    source: str


def load_corpus(data: str = "stdlib", limit: int = 0) -> Corpus:
    """Read the text that *data* names: ``stdlib``, a folder or a file.  *limit* is in bytes, 0 for all.

    Whole documents go to either stream, so that no validation text was seen in training; a single file is split at
    nine tenths.  Raises UsageError for a missing path and for a corpus without text.
    """
    folder = Path(sysconfig.get_path("stdlib")) if data == "stdlib" else Path(data)
    if not folder.exists():
        raise UsageError(f"no text: {folder} does not exist")
    documents = dict(_documents(folder, limit))
    total = sum(map(len, documents.values()))
    if not total:
        raise UsageError(f"empty corpus: {data} holds no text")
    if data == "stdlib":
        version = sysconfig.get_python_version()
        source = f"Python {version} standard library, {len(documents):,} sources, PSF License Agreement"
    else:
        count = f"{len(documents):,} documents" if len(documents) > 1 else "1 document"
        source = f"{data}, {count}, licence as its owner says"
    return _split(documents, f"{source}, {total:,} bytes")


def _documents(folder: Path, limit: int) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each document, in order of name; empty ones left out."""
    left = limit or float("inf")
    for path in [folder] if folder.is_file() else sorted(folder.rglob("*")):
        if left <= 0:
            return
        if not path.is_file() or (path != folder and path.suffix not in _TYPES) or _FOREIGN & set(path.parts):
            continue
        text = path.read_bytes()[: int(min(left, 2**62))]
        left -= len(text)
        if text:
            yield path.name if path == folder else path.relative_to(folder).as_posix(), text


def _split(documents: dict[str, bytes], source: str) -> Corpus:
    if len(documents) == 1:
        (text,) = documents.values()
        cut = max(1, len(text) * 9 // 10)
        return Corpus(_stream([text[:cut]]), _stream([text[cut:]]), source)
    kept = {name for name in documents if zlib.crc32(name.encode()) % _VALIDATION == 0}
    train = [text for name, text in documents.items() if name not in kept]
    validation = [documents[name] for name in documents if name in kept]
    if not train or not validation:  # too few documents for the checksum to divide
        *train, last = documents.values()
        validation = [last]
    return Corpus(_stream(train), _stream(validation), source)


def _stream(texts: list[bytes]) -> Tokens:
    parts: list[Tokens] = []
    for text in texts:
        parts += [np.frombuffer(text, dtype=np.uint8).astype(np.uint16), np.array([SEPARATOR], dtype=np.uint16)]
    return np.concatenate(parts)
