"""How a tensor lies over the ranks of tensor parallelism, and the shapes that one rank holds of it."""

from dataclasses import dataclass
from enum import StrEnum

from simulator.graph import Tensor


class Split(StrEnum):
    """WHOLE on every rank; FEATURES or TOKENS divided; PARTIAL: every rank has a summand of it.

    FILLED  made from nothing (zeros): it becomes what it is used with.
    """

    WHOLE = "whole"
    FEATURES = "features"
    TOKENS = "tokens"
    PARTIAL = "partial"
    FILLED = "filled"


@dataclass(frozen=True, slots=True)
class Layout:
    """One storage's *split*.

    share    (part, parts): what a rank holds of it.
    width    features that are divided, of activations [tokens, features]; 0 once heads are a batch of their own.
    axis     of a weight: ``out`` (column-parallel) or ``in`` (row-parallel), as the forward product uses it.
    origins  the weights that divided it.
    """

    split: Split
    share: tuple[int, int] = (1, 1)
    width: int = 0
    axis: str = ""
    origins: frozenset[int] = frozenset()

    @property
    def divided(self) -> bool:
        return self.split in (Split.FEATURES, Split.TOKENS)

    def part(self, count: int) -> int:
        """What one rank, the one with most, has of *count*.

        >>> Layout(Split.FEATURES, (1, 4)).part(50257)
        12565
        """
        return -(-count * self.share[0] // self.share[1]) if self.divided else count


WHOLE = Layout(Split.WHOLE)
FILLED = Layout(Split.FILLED)
PARTIAL = Layout(Split.PARTIAL)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes by which an axis is recognised: *seq* positions, *tokens* = batch x seq, and numbers of *heads*."""

    seq: int
    tokens: int
    heads: frozenset[int] = frozenset()

    def cut(self, tensor: Tensor, layout: Layout) -> tuple[int, ...]:
        """Return the shape that a rank holds of *tensor*: the axis that the layout divides, divided.

        >>> from simulator.dtypes import DType
        >>> Sizes(64, 128, frozenset({32})).cut(Tensor(0, (2, 32, 64, 128), DType.BF16), Layout(Split.FEATURES, (1, 4)))
        (2, 8, 64, 128)
        """
        axis = self._axis(tensor.shape, layout) if layout.divided else None
        if axis is None:
            return tensor.shape
        return (*tensor.shape[:axis], layout.part(tensor.shape[axis]), *tensor.shape[axis + 1 :])

    def _axis(self, shape: tuple[int, ...], layout: Layout) -> int | None:
        """The axis that the layout divides: recognised by its size, else the last one that divides evenly."""
        wanted = [{self.seq}, {self.tokens}] if layout.split is Split.TOKENS else [{layout.width}, self.heads]
        places = range(len(shape))
        for sizes in wanted:
            found = [axis for axis in places if shape[axis] in sizes]
            if found:
                return found[0] if len(shape) > 2 else found[-1]
        part, parts = layout.share
        features = [axis for axis in places if shape[axis] * part % parts == 0 and shape[axis] >= parts]
        return features[-1] if features else None
