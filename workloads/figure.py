"""Writes a figure to a file."""

from pathlib import Path
from typing import TYPE_CHECKING

from simulator.errors import OutputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save(figure: "Figure", path: Path, dpi: int = 130) -> None:
    """Write *figure*; the suffix of *path* says in which format.  OutputError says why it cannot."""
    try:
        figure.savefig(path, dpi=dpi)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from None
    except ValueError as error:  # a suffix that is no picture
        raise OutputError(f"cannot write {path}: {error}") from None
