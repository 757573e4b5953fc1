"""Compiles the inner loops with numba.  A function marked here is plain Python over arrays and numbers."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from simulator.errors import UsageError

try:
    import numba
except ImportError:
    raise UsageError("the tokenizer needs numba: pip install 'xpusim[labs]'") from None

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile *function* when it is first called; the result is kept on disk, and threads run it side by side."""
    decorate: Any = numba.njit(cache=True, nogil=True)
    return cast(Callable[P, R], decorate(function))


@compiled
def signed(value: Any) -> int:
    """Return *value* as a signed number of 64 bits: in compiled code a signed and an unsigned one make a float."""
    return np.int64(value)  # type: ignore[return-value]  # for mypy only Python's int is an int


def as_bytes(data: bytes | bytearray) -> Bytes:
    """Look at *data* as an array, without a copy."""
    return np.frombuffer(data, dtype=np.uint8)
