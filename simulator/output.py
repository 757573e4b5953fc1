"""Writing files: one place where a bad path becomes a message."""

from pathlib import Path

from simulator.errors import OutputError


def write_text(path: Path, text: str) -> None:
    """Write *text* to *path* in UTF-8; OutputError says why it cannot."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from None
