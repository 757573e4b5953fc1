"""The chain rule backwards through recorded operators: the heart of it, in a page.

A result remembers what it came from and, for each origin, a function from the gradient of the result to its share
in the gradient of that origin (a vector-Jacobian product).  Results are numbered as they are made, so that larger
numbers first is an order in which every gradient is complete before it is passed on.  No recursion, at any depth.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Union

from simulator.errors import UsageError
from simulator.graph import Phase
from workloads.autograd import kernels
from workloads.autograd.state import STATE, Array, Shape, working_on

if TYPE_CHECKING:
    from workloads.autograd.tensor import Tensor

Share = Callable[[Array], Array]
_numbers = itertools.count()


@dataclass(slots=True, weakref_slot=True, eq=False)
class Node:
    """How a result of *shape* was made: by *operator* of *module*; *shares* are gone once backward has run.

    parents  what it was made from: leaves, and the nodes of other results, whose values it does not hold on to.  Only
             those that need a gradient are kept, so that nothing is saved or computed for the others.
    """

    operator: str
    shape: Shape
    parents: tuple["Origin", ...]
    shares: tuple[Share, ...] | None
    module: str = field(default_factory=lambda: STATE.module)
    number: int = field(default_factory=lambda: next(_numbers))


Origin = Union[Node, "Tensor"]  # a tensor only if it is a leaf


def backward(root: Origin, gradient: Array) -> None:
    """Add to the ``grad`` of every leaf below *root* its share in *gradient*, and free the graph on the way.

    UsageError, before anything is changed, if a part of the graph has been freed by an earlier call.
    """
    nodes = _oldest_first(root)
    waiting: dict[int, Array] = {}
    with working_on(Phase.BACKWARD):
        _deliver(root, gradient, waiting)
        del gradient
        while nodes:
            node = nodes.pop()
            STATE.module = node.module
            _pass_on(node, waiting.pop(id(node)), waiting)
            node.parents, node.shares = (), None


def _oldest_first(root: Origin) -> list[Node]:
    """Return all nodes; the newest stands at the end, where `list.pop` takes from."""
    found = [each for each in reachable(root) if isinstance(each, Node)]
    for node in found:
        if node.shares is None:
            raise UsageError(
                f"backward has already run through this {node.operator}, and what it had saved is freed: "
                "run the forward pass again, or add the losses up before backward"
            )
    return sorted(found, key=lambda node: node.number)


def reachable(root: Origin) -> Iterator[Origin]:
    """Yield *root* and everything it was made from, each once."""
    stack, seen = [root], {id(root)}
    while stack:
        origin = stack.pop()
        yield origin
        for parent in origin.parents if isinstance(origin, Node) else ():
            if id(parent) not in seen:
                seen.add(id(parent))
                stack.append(parent)


def _pass_on(node: Node, gradient: Array, waiting: dict[int, Array]) -> None:
    assert node.shares is not None  # `_oldest_first` has looked
    for parent, share in zip(node.parents, node.shares, strict=True):
        _deliver(parent, share(gradient), waiting)


def _deliver(origin: Origin, share: Array, waiting: dict[int, Array]) -> None:
    """Add *share* to what *origin* has got so far: a leaf keeps it, a node passes it on in its turn."""
    if isinstance(origin, Node):
        before = waiting.get(id(origin))
        waiting[id(origin)] = share if before is None else kernels.add(before, share)
    elif origin.grad is not None:
        origin.grad = kernels.add(origin.grad, share)
    else:
        origin.grad = share if share.flags.writeable else kernels.copy(share)  # a broadcast view is not memory
