"""What the engine is doing at the moment: shared by tensors, kernels and modules, one for each thread."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from simulator.graph import Phase

Array = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.integer[Any]]
Shape = tuple[int, ...]


class Watcher(Protocol):
    """Somebody who wants to know what work is done; `workloads.autograd.export` has one."""

    def launched(
        self, target: str, inputs: Sequence[npt.NDArray[Any]], outputs: Sequence[Array], axes: Sequence[int]
    ) -> None:
        """Be told of one kernel, after it has run; *axes* are those that it works along, none if it has none."""


class State(threading.local):
    """recording: operators are remembered for backward.  phase, module: whom the work now done belongs to."""

    recording: bool = True
    watcher: Watcher | None = None
    phase: Phase = Phase.FORWARD
    module: str = ""


STATE = State()


@contextmanager
def no_grad() -> Iterator[None]:
    """Inside, results are plain values: nothing is saved for a backward pass.

    >>> from workloads.autograd import Tensor
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> with no_grad():
    ...     y = x * x
    >>> y.requires_grad
    False
    """
    before, STATE.recording = STATE.recording, False
    try:
        yield
    finally:
        STATE.recording = before


@contextmanager
def working_on(phase: Phase, module: str = "") -> Iterator[None]:
    """Inside, work is booked under *phase* and *module*."""
    before = STATE.phase, STATE.module
    STATE.phase, STATE.module = phase, module
    try:
        yield
    finally:
        STATE.phase, STATE.module = before
