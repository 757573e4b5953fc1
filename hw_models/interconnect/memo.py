"""Predictions of one system, each worked out once: groups that lie alike on the system share them."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from hw_models.interconnect.fabric import Fabric
from hw_models.interconnect.prediction import Prediction, predict
from simulator.system import System


@dataclass
class Collectives:
    """Collectives on *system*; a program of many layers and ranks asks for few different ones.

    Two groups lie alike if they extend along the same positions of the same axes, as all tensor-parallel groups of a
    pod do, whichever node they are in.
    """

    system: System
    _fabric: Fabric = field(init=False, repr=False)
    _places: dict[tuple[int, ...], Hashable] = field(default_factory=dict, repr=False)
    _known: dict[Hashable, Prediction] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._fabric = Fabric(self.system)

    def predict(self, pattern: str, size: int, ranks: Sequence[int], algorithm: str | None = None) -> Prediction:
        """What ``predict`` says, remembered."""
        group = tuple(ranks)
        if group not in self._places:
            axes = self._fabric.axes(group)
            self._places[group] = group if axes is None else axes
        key = (pattern, size, self._places[group], algorithm)
        if key not in self._known:
            self._known[key] = predict(self.system, pattern, size, group, algorithm)
        return self._known[key]
