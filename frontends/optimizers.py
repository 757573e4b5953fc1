"""The optimizer's step as one fused operator over all parameters."""

from collections.abc import Mapping

import torch

from frontends.dtypes import dtype_of
from frontends.ledger import Ledger
from frontends.shards import local
from simulator.errors import UsageError, nearest
from simulator.graph import Operator, OpKind, Phase, Role, Tensor

STATES = {"adamw": ("exp_avg", "exp_avg_sq"), "sgd": ()}
_FLOPS = {"adamw": 14, "sgd": 2}
_TENSORS_PER_LAUNCH = 36  # of torch's fused AdamW: what fits into the arguments of one kernel


def check_optimizer(name: str | None) -> None:
    """Raise UsageError unless *name* is an optimizer that a training step can end with."""
    if name is not None and name not in STATES:
        raise UsageError(f"unknown optimizer {name!r}{nearest(name, STATES)} (known: {', '.join(STATES)}, none)")


def add_optimizer(name: str, parameters: Mapping[str, torch.nn.Parameter], ledger: Ledger) -> None:
    """Append the step of *name* over those parameters that have a gradient.

    adamw   reads parameter, gradient and two states in the parameter's type, writes parameter and states; 14 FLOPs an
            element: weight decay 1, first moment 3, second 4, corrections 2, root 1, epsilon 1, quotient and step 2.
    sgd     without momentum: reads parameter and gradient, writes the parameter; 2 FLOPs an element.
    """
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    elements = 0
    trained = {path: each for path, each in parameters.items() if each.grad is not None}
    for path, parameter in trained.items():
        assert parameter.grad is not None  # those without were left out
        entry = ledger.tensor(parameter)
        count = local(parameter).numel()
        nbytes = count * parameter.element_size()
        states = [
            Tensor(ledger.add_storage(f"{path}.{state}", Role.OPTIMIZER, nbytes), entry.shape, entry.dtype)
            for state in STATES[name]
        ]
        inputs += [entry, ledger.tensor(parameter.grad), *states]
        outputs += [entry, *states]
        elements += count
    if not trained:
        return
    read, written = tuple(inputs), tuple(outputs)
    first = next(iter(trained.values()))
    ledger.add(
        Operator(
            id=len(ledger.graph),
            module="",
            target=name,
            kind=OpKind.POINTWISE,
            phase=Phase.OPTIMIZER,
            inputs=read,
            outputs=written,
            flops=_FLOPS[name] * elements,
            reads=sum(tensor.nbytes for tensor in read),
            writes=sum(tensor.nbytes for tensor in written),
            deps=ledger.dependencies(read, written),
            dtype=dtype_of(first.dtype),
            dispatches=-(-len(trained) // _TENSORS_PER_LAUNCH),
        )
    )
