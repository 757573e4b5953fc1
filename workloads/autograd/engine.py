"""The chain rule backwards through recorded operators: the heart of it, in a page.

A result remembers the tensors it came from and, for each, a function from the gradient of the result to its share
in the gradient of that tensor (a vector-Jacobian product).  Results are numbered as they are made, so that larger
numbers first is an order in which every gradient is complete before it is passed on.  No recursion, at any depth.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulator.errors import UsageError
from simulator.graph import Phase
from workloads.autograd import kernels
from workloads.autograd.state import STATE, Array, working_on

if TYPE_CHECKING:
    from workloads.autograd.tensor import Tensor

Share = Callable[[Array], Array]
_numbers = itertools.count()


@dataclass(slots=True, weakref_slot=True, eq=False)
class Node:
    """How a tensor was made: by *operator* of *module*, from *parents*; *shares* are gone once backward has run.

    Only parents that need a gradient are kept, so that nothing is saved or computed for the others.
    """

    operator: str
    parents: tuple["Tensor", ...]
    shares: tuple[Share, ...] | None
    module: str = field(default_factory=lambda: STATE.module)
    number: int = field(default_factory=lambda: next(_numbers))


def backward(root: "Tensor", gradient: Array) -> None:
    """Add to the ``grad`` of every leaf below *root* its share in *gradient*, and free the graph on the way.

    UsageError, before anything is changed, if a part of the graph has been freed by an earlier call.
    """
    waiting: dict[int, Array] = {id(root): gradient}
    nodes = _newest_first(root)
    with working_on(Phase.BACKWARD):
        while nodes:
            tensor, node = nodes.pop()
            incoming = waiting.pop(id(tensor))
            STATE.module = node.module
            for parent, share in zip(node.parents, node.shares or (), strict=True):
                _deliver(parent, share(incoming), waiting)
            node.parents, node.shares = (), None


def _newest_first(root: "Tensor") -> list[tuple["Tensor", Node]]:
    """Return results and how they were made, the newest at the end, where `list.pop` takes from."""
    found = [(tensor, tensor.node) for tensor in reachable(root) if tensor.node is not None]
    for _, node in found:
        if node.shares is None:
            raise UsageError(
                f"backward has already run through this {node.operator}, and what it had saved is freed: "
                "run the forward pass again, or add the losses up before backward"
            )
    return sorted(found, key=lambda each: each[1].number)


def reachable(root: "Tensor") -> Iterator["Tensor"]:
    """Yield *root* and every tensor it came from, each once."""
    stack, seen = [root], {id(root)}
    while stack:
        tensor = stack.pop()
        yield tensor
        for parent in tensor.node.parents if tensor.node is not None else ():
            if id(parent) not in seen:
                seen.add(id(parent))
                stack.append(parent)


def _deliver(tensor: "Tensor", share: Array, waiting: dict[int, Array]) -> None:
    """Add *share* to what *tensor* has got so far: a leaf keeps it, a result passes it on in its turn."""
    if tensor.node is not None:
        before = waiting.get(id(tensor))
        waiting[id(tensor)] = share if before is None else kernels.add(before, share)
    elif tensor.grad is not None:
        tensor.grad = kernels.add(tensor.grad, share)
    else:
        tensor.grad = share if share.flags.writeable else kernels.copy(share)  # a broadcast view is not memory
