"""Rules: what one operator asks of the hardware, from its arguments' shapes alone.

A rule takes a `Call` and returns a `Work`.  There is one decorated function a family in the ``rules_*`` modules, and
`rule` is how a user adds his own.  A rule need not know views, phases, storages or dependencies.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch

from simulator.dims import Dims
from simulator.graph import OpKind


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operator, after it has run on meta tensors.

    target   its name, such as ``aten.mm``.
    args     its arguments, *kwargs* those by name, as torch's schema of *func* orders them.
    inputs   the tensors among the arguments that it reads, each once; *outputs* those that it makes or changes.
    """

    func: Any
    target: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]

    def arg(self, index: int, name: str, default: Any = None) -> Any:
        """Return the argument at *index*, or the one called *name*, or *default*."""
        return self.args[index] if index < len(self.args) else self.kwargs.get(name, default)

    @property
    def elements(self) -> int:
        """Elements of the largest output."""
        return max((out.numel() for out in self.outputs), default=0)


@dataclass(frozen=True, slots=True)
class Work:
    """What a call costs on any hardware; what is left out is worked out from the tensors.

    flops    multiply and add count as two.
    reads    bytes read if nothing is cached (None: every element of each input that is in memory, once).
    writes   bytes written (None: every element of each output, once).
    dtype    type whose peak rate bounds the arithmetic (None: of the first floating-point input, else output).
    group    ranks of a collective.
    """

    kind: OpKind
    flops: int = 0
    reads: int | None = None
    writes: int | None = None
    dims: Dims | None = None
    dtype: torch.dtype | None = None
    group: tuple[int, ...] = ()


Rule = Callable[[Call], Work | None]


@dataclass(slots=True)
class _Registry:
    rules: dict[str, Rule] = field(default_factory=dict)
    fallbacks: list[Rule] = field(default_factory=list)


_REGISTRY = _Registry()


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Decorator: the function below is the rule for the operators *names*, such as ``"mylib::op"`` or ``"aten.mm"``.

    All overloads of a name share a rule, and so does the in-place form (``aten.add_``) unless it has its own.  A rule
    may return None to leave a call to the rule of last resort.
    """

    def enter(function: Rule) -> Rule:
        for name in names:
            _REGISTRY.rules[name.replace("::", ".")] = function
        return function

    return enter


def fallback(function: Rule) -> Rule:
    """Decorator: ask this rule for every operator without one of its own; None passes it on."""
    _REGISTRY.fallbacks.append(function)
    return function


def has_rule(name: str) -> bool:
    """Whether *name*, such as ``"aten.mm"``, has a rule of its own."""
    return name.replace("::", ".") in _REGISTRY.rules


def work_of(call: Call) -> Work | None:
    """Return what *call* costs, or None if no rule knows it."""
    rules = _REGISTRY.rules
    found = rules.get(call.target) or rules.get(call.target.removesuffix("_"))
    if found is not None:
        return found(call)
    for last in _REGISTRY.fallbacks:
        if (work := last(call)) is not None:
            return work
    return None


def touched(tensor: torch.Tensor) -> int:
    """Bytes of memory that reading all of *tensor* touches: an expanded axis (stride 0) counts once.

    >>> touched(torch.empty(4, 8)), touched(torch.empty(8).expand(4, 8))
    (128, 32)
    """
    shape = tensor.shape
    if tensor.is_contiguous():
        return prod(shape) * tensor.element_size()
    real = prod(size for size, stride in zip(shape, tensor.stride(), strict=True) if stride)
    if tensor.numel() == 0:
        return 0
    extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, tensor.stride(), strict=True))
    return min(real, extent) * tensor.element_size()


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes that touching each of *tensors* once takes."""
    return sum(touched(tensor) for tensor in tensors)


def floating_type(call: Call) -> torch.dtype:
    """Return the type of the first floating-point tensor of *call*, else of its first tensor."""
    tensors = (*call.inputs, *call.outputs)
    for tensor in tensors:
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            return tensor.dtype
    return tensors[0].dtype if tensors else torch.float32
