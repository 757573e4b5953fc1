"""Real text that every machine with Python has: the sources of its standard library, and the texts of its `help`.

Licence: the Python Software Foundation License.  Nothing is downloaded; the text is that of the running Python, so its
version belongs to every number that comes from it.
"""

import platform
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from simulator.errors import SpecError

LIMIT = 10_000_000  # bytes
_LEFT_OUT = frozenset({"site-packages", "test", "tests", "__pycache__"})
_PROSE = "pydoc_data"  # help texts of the language, which come first


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents to learn from, documents to measure on (every tenth file), and what they are."""

    name: str
    training: tuple[bytes, ...]
    held_out: tuple[bytes, ...]

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.training))


@cache
def python_corpus(limit: int = LIMIT) -> Corpus:
    """Return up to *limit* bytes of the standard library, tests left out, in the order of their paths.

    Deterministic for one version of Python; files that are not UTF-8 are left out.
    """
    training: list[bytes] = []
    held_out: list[bytes] = []
    room = limit
    for number, source in enumerate(_sources()):
        data = source[:room]
        room -= len(data)
        (held_out if number % 10 == 9 else training).append(data)
        if room == 0:
            break
    if not training:
        raise SpecError(f"no sources in {sysconfig.get_path('stdlib')}: this Python comes without them")
    name = f"Python {platform.python_version()} standard library (PSF License)"
    return Corpus(name, tuple(training), tuple(held_out))


def _sources() -> Iterator[bytes]:
    root = Path(sysconfig.get_path("stdlib"))
    paths = [path.relative_to(root) for path in root.rglob("*.py")]
    kept = [path for path in paths if not _LEFT_OUT & set(path.parts)]
    for path in sorted(kept, key=lambda path: (path.parts[0] != _PROSE, path.as_posix())):
        data = (root / path).read_bytes()
        try:
            data.decode()
        except UnicodeDecodeError:
            continue
        yield data
