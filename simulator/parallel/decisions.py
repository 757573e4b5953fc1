"""What dividing a graph over tensor-parallel ranks does to one operator."""

from dataclasses import dataclass, field

from simulator.dims import Dims
from simulator.graph import Operator, OperatorGraph, Role, Tensor
from simulator.parallel.layouts import WHOLE, Layout, Sizes, Split


@dataclass(frozen=True, slots=True)
class Decision:
    """How a rank runs one operator.

    needs    layouts of its inputs, after what has to be sent for them; *gives* those of its outputs.
    dims     its sizes, where they change; *work* (part, parts) of its FLOPs, where dims do not say it.
    reduces  elements of the all-reduces inside it: a softmax over divided columns, a sum over divided rows.
    """

    needs: tuple[Layout, ...]
    gives: tuple[Layout, ...]
    work: tuple[int, int] = (1, 1)
    dims: Dims | None = None
    reduces: tuple[int, ...] = ()


@dataclass
class Context:
    """What the rules know of the program and of the plan.

    shares     what a rank holds of a weight, where it is not 1/ways (fewer key/value heads than ranks).
    undivided  weights that stay whole, with the reason.
    summed     gradients of a loss, whose sum over the vocabulary is known; *kept* partial sums of the forward pass.
    """

    graph: OperatorGraph
    ways: int
    sequence: bool
    sizes: Sizes
    shares: dict[int, tuple[int, int]] = field(default_factory=dict)
    undivided: dict[int, str] = field(default_factory=dict)
    layouts: dict[int, Layout] = field(default_factory=dict)
    summed: set[int] = field(default_factory=set)
    kept: set[int] = field(default_factory=set)

    def role(self, tensor: Tensor) -> Role:
        return self.graph.storages[tensor.storage].role

    def of(self, tensor: Tensor) -> Layout:
        return self.layouts.get(tensor.storage, WHOLE)

    def share(self, weight: int) -> tuple[int, int]:
        return self.shares.get(weight, (1, self.ways))

    @property
    def tokens(self) -> Layout:
        """Divided along the sequence."""
        return Layout(Split.TOKENS, (1, self.ways))

    def summed_up(self, tensor: Tensor) -> Layout:
        """What a partial sum becomes: with sequence parallelism, rows of tokens are scattered."""
        rows, rest = divmod(tensor.elements, self.sizes.tokens)
        return self.tokens if self.sequence and not rest and rows > 1 else WHOLE

    def settled(self, tensor: Tensor, *, whole: bool = False) -> Layout:
        """The layout to read *tensor* in, if it must be no partial sum; *whole*: nor divided by tokens."""
        found = self.of(tensor)
        if found.split is Split.PARTIAL:
            found = WHOLE if whole else self.summed_up(tensor)
        return WHOLE if whole and found.split is Split.TOKENS else found

    def keep_whole(self, op: Operator, layouts: tuple[Layout, ...]) -> None:
        """Note that *op* needs what the weights behind *layouts* give in one piece: they stay whole."""
        for each in layouts:
            for weight in each.origins:
                self.undivided.setdefault(weight, f"{op.module or 'the program'}/{op.target} needs all of its columns")


def merged(layouts: list[Layout]) -> Layout:
    """The layout of what several divided tensors of features give together.

    >>> merged([Layout(Split.FEATURES, (1, 4), 8), Layout(Split.FEATURES, (1, 4), 8)]).share
    (1, 4)
    """
    origins = frozenset().union(*(each.origins for each in layouts))
    widest = max(layouts, key=lambda each: each.width)
    return Layout(Split.FEATURES, widest.share, widest.width, "", origins)
