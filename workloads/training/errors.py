"""What can go wrong while a model trains.

* XpuError
  * TrainingError       a run had to stop: its loss is no number any more
  * CheckpointError     a checkpoint cannot be read or does not belong to this run
"""

from simulator.errors import XpuError


class TrainingError(XpuError):
    """A run had to stop; what it saved before is still there."""


class CheckpointError(XpuError):
    """A checkpoint cannot be read or does not belong to this run; no file was touched."""
