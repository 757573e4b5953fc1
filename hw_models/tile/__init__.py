"""The ``tile`` model: waves of tiles over cores, folds over arrays, and what stays in the cache between operators."""

from hw_models.tile.machine import Machine, machine, recalibrated
from hw_models.tile.model import TileModel

__all__ = ["Machine", "TileModel", "machine", "recalibrated"]
