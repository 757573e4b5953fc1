"""The 3x law and its exceptions, counted on traced training steps of PyTorch modules.

A product y = x W takes 2 m k n FLOP forwards, and backwards as much again twice: once for the gradient of x, once for
that of W.  So backward = 2 x forward and a step = 3 x forward, unless one of the two is not needed, the kernel does
something else, or forward work is done again.
"""
# mypy: disallow-untyped-calls=False

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812  everybody's name for it
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from frontends import trace_training_step
from simulator.graph import MATRIX_KINDS, OperatorGraph, Phase

WIDTH, LAYERS, ROWS = 256, 8, 512
VOCABULARY = 4096
HEADS, SEQUENCE = 4, 512


@dataclass(frozen=True, slots=True)
class Case:
    """One program with what the law predicts: FLOP of products in units of its forward pass.

    backward, recompute  by formula; *why* the formula.
    parameters           of the model, if the rule 6 P T is to be held against the count; 0 otherwise.
    """

    name: str
    backward: float
    recompute: float
    why: str
    graph: Callable[[], OperatorGraph]
    parameters: int = 0


@dataclass(frozen=True, slots=True)
class Count:
    """FLOP of matrix products and attention by phase."""

    forward: int
    backward: int
    recompute: int

    @property
    def total(self) -> int:
        return self.forward + self.backward + self.recompute


def count(graph: OperatorGraph) -> Count:
    """Return the products of *graph*."""
    totals = dict.fromkeys(Phase, 0)
    for op in graph:
        if op.kind in MATRIX_KINDS:
            totals[op.phase] += op.flops
    return Count(totals[Phase.FORWARD], totals[Phase.BACKWARD], totals[Phase.RECOMPUTE])


class Stack(nn.Module):
    """LAYERS times Linear and relu.  again: every layer is a checkpoint; frozen: the first layers are not trained."""

    def __init__(self, again: bool = False, frozen: int = 0, last_is_linear: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))
        self.again, self.last_is_linear = again, last_is_linear
        for layer in self.layers[:frozen]:
            layer.requires_grad_(requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        for i in range(0, LAYERS, 2):
            part = self._pair(i)
            x = checkpoint(part, x, use_reentrant=False) if self.again else part(x)
        return x

    def _pair(self, i: int) -> Callable[[Tensor], Tensor]:
        first, second = self.layers[i], self.layers[i + 1]

        def run(x: Tensor) -> Tensor:
            out: Tensor = second(first(x).relu())
            return out if self.last_is_linear else out.relu()

        return run


class Lookup(nn.Module):
    """An embedding and a head that gives logits for every word: a language model without blocks."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embedding(tokens))
        return logits


class Attention(nn.Module):
    """Nothing but fused attention, over queries, keys and values that are parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Parameter(torch.empty(3, 1, HEADS, SEQUENCE, WIDTH // HEADS))

    def forward(self, scale: Tensor) -> Tensor:
        q, k, v = self.qkv.unbind()
        return F.scaled_dot_product_attention(q, k, v) * scale


class WithInputGradient(nn.Module):
    """A stack in the middle of a network: what comes in is a result that needs a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.empty(ROWS, WIDTH))
        self.stack = Stack()

    def forward(self, scale: Tensor) -> Tensor:
        out: Tensor = self.stack(self.x * scale)
        return out


def _step(make: Callable[[], nn.Module], *arguments: Tensor) -> Callable[[], OperatorGraph]:
    def trace() -> OperatorGraph:
        with torch.device("meta"):
            module = make()
        return trace_training_step(module, arguments)

    return trace


def cases() -> tuple[Case, ...]:
    """Return the programs, from the law itself to what departs from it most."""
    x = torch.empty(ROWS, WIDTH, device="meta")
    one = torch.empty((), device="meta")
    tokens = torch.empty(1, ROWS, dtype=torch.int64, device="meta")
    half, table = LAYERS // 2, VOCABULARY * WIDTH
    return (
        Case("layers inside a network", 2, 0, "one product for x, one for W", _step(WithInputGradient, one)),
        Case(
            f"all {LAYERS} layers of an MLP", 2 - 1 / LAYERS, 0, "the first layer's x needs none: 2 - 1/L",
            _step(Stack, x), LAYERS * WIDTH**2,
        ),
        Case(
            "embedding and head", 2, 0, "a look-up multiplies nothing, 6PT counts it",
            _step(lambda: Lookup(tied=False), tokens), 2 * table,
        ),
        Case(
            "embedding and head, tied", 2, 0, "one table for both, used in one product",
            _step(lambda: Lookup(tied=True), tokens), table,
        ),
        Case("fused attention", 2.5, 0, "five products for two: scores again", _step(Attention, one)),
        Case(
            "MLP, first half frozen", 1 - 1 / LAYERS, 0, "nothing flows below the trained half",
            _step(lambda: Stack(frozen=half), x),
        ),
        Case(
            "MLP, recomputed", 2 - 1 / LAYERS, 1, "every product once more: 4x, less 1/L",
            _step(lambda: Stack(again=True), x),
        ),
        Case(
            "MLP, recomputed, no last relu", 2 - 1 / LAYERS, 0.5, "torch stops at the last saved tensor",
            _step(lambda: Stack(again=True, last_is_linear=True), x),
        ),
    )  # fmt: skip
