"""What can go wrong while a model trains.

* XpuError
  * TrainingError       a run had to stop: its loss is no number any more
  * CheckpointError     a checkpoint cannot be read or does not belong to this run
  * OutOfMemoryError    a run was not started: a step of it does not fit into the device
"""

from simulator.errors import XpuError


class TrainingError(XpuError):
    """A run had to stop; what it saved before is still there."""


class CheckpointError(XpuError):
    """A checkpoint cannot be read or does not belong to this run; no file was touched."""


class OutOfMemoryError(XpuError):
    """A run was not started: a step of it needs more memory than the device has."""
