"""Writing files: one place where a bad path becomes a message."""

import os
from pathlib import Path

from simulator.errors import OutputError


def write_text(path: Path, text: str) -> None:
    """Write *text* to *path* in UTF-8; OutputError says why it cannot."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from None


def check_writable(path: Path) -> None:
    """Raise OutputError now if *path* could not be written later: before the work, not after it."""
    if path == Path():
        raise OutputError("cannot write a file without a name")
    folder = path.parent
    if not folder.is_dir():
        raise OutputError(f"cannot write {path}: there is no folder {folder}")
    if path.is_dir():
        raise OutputError(f"cannot write {path}: it is a folder")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise OutputError(f"cannot write {path}: no permission")
