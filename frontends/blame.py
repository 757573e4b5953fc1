"""Finds the line of the user's program that an exception came from, and says so in one line."""

import linecache
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import torch

from simulator.errors import TraceError, XpuError

_NOT_THE_USERS = (str(Path(torch.__file__).parent), str(Path(__file__).parent), "<")
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class DataDependentError(Exception):
    """The program looks at the value of a tensor that depends on its input; *what* says how."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class OutOfRangeError(Exception):
    """A position that follows from shapes alone lies outside its table."""


def users_line(trace: TracebackType | None) -> str:
    """Return ``model.py:12 in forward: 'if x.sum() > 0:'`` for the innermost frame of *trace* in the user's code.

    What is installed is not the user's, unless nothing else is on the way: a model of an installed package.
    """
    frames = [frame for frame in traceback.extract_tb(trace) if not frame.filename.startswith(_NOT_THE_USERS)]
    if not frames:
        return "a line that is not in a file"
    own = [frame for frame in frames if not frame.filename.startswith(_INSTALLED)]
    frame = (own or frames)[-1]
    line = (frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip()
    return f"{frame.filename}:{frame.lineno} in {frame.name}: '{line}'"


def one_line(error: BaseException) -> str:
    """Return type and message of *error* in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def blaming(who: str) -> Iterator[None]:
    """Turn whatever is raised inside into a TraceError that names the user's line; *who* raised it, for the message."""
    try:
        yield
    except XpuError:
        raise
    except DataDependentError as error:
        raise TraceError(
            f"data-dependent control flow at {users_line(error.__traceback__)} {error.what}, which depends on the "
            "input; a trace knows shapes, not values"
        ) from error
    except OutOfRangeError as error:
        raise TraceError(f"{error} at {users_line(error.__traceback__)}") from error
    except (Exception, SystemExit) as error:
        raise TraceError(f"{who} raised {one_line(error)} at {users_line(error.__traceback__)}") from error
