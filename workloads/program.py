"""What a workload hands to a frontend: a module, example arguments, and what one run of it does."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simulator.graph import Workload

if TYPE_CHECKING:
    from torch import Tensor, nn

    Loss = Callable[..., Tensor]


@dataclass(frozen=True, slots=True)
class Program:
    """A module on the meta device with the arguments of one call.

    loss  for training: takes the module's output and gives the scalar that gradients are taken of.
    """

    module: "nn.Module"
    args: tuple[Any, ...]
    workload: Workload
    kwargs: dict[str, Any] = field(default_factory=dict)
    loss: "Loss | None" = None
