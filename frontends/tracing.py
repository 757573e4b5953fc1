"""Traces of a user's program: his real code runs once, without values, and every operator is written down."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from math import prod
from typing import Any

import torch
from torch import nn

from frontends.blame import blaming
from frontends.dtypes import cast_type, dtype_of
from frontends.host import Host, patched
from frontends.inputs import StandIns, arguments, mode_of, tensors_in
from frontends.ledger import Ledger
from frontends.losses import default_loss
from frontends.optimizers import add_optimizer, check_optimizer
from frontends.recorder import Recorder
from frontends.scopes import Scopes
from frontends.shadows import Shadows
from simulator.dtypes import DType
from simulator.errors import TraceError
from simulator.graph import OperatorGraph, Role, Workload

Loss = Callable[..., torch.Tensor]


def trace(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    workload: Workload | None = None,
    dtype: str | DType | None = None,
) -> OperatorGraph:
    """Return the operators of one inference call ``module(*args, **kwargs)``: no gradients, evaluation mode.

    The module and the tensors may live on the meta device or hold real values; only shapes count, and the user's own
    objects are left as they were.  *dtype* casts floating-point parameters, buffers and inputs first; ``"tf32"`` casts
    to float32 and lets matrix products run in tf32.

    Raises TraceError with the user's line if the program fails or its control flow depends on data, UsageError for a
    dtype that a cast cannot reach.
    """
    session = _Session(module, args, kwargs, workload, dtype, training=False)
    with session.running(), torch.no_grad():
        output = session.forward()
    return session.close(output)


def trace_training_step(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Loss | None = None,
    optimizer: str | None = "adamw",
    workload: Workload | None = None,
    dtype: str | DType | None = None,
) -> OperatorGraph:
    """Return the operators of one training step: forward, loss, backward, one fused optimizer step.

    loss       ``loss(output, *args)`` gives a scalar; without it `frontends.losses.default_loss` does.
    optimizer  ``"adamw"``, ``"sgd"`` or None; its states have the parameters' type.

    Gradients are new in every step (``zero_grad(set_to_none=True)``), and the program keeps no name for the logits once
    it has the loss.  Errors as for `trace`; TraceError also if the loss is not a scalar or nothing needs a gradient.
    """
    check_optimizer(optimizer)
    session = _Session(module, args, kwargs, workload, dtype, training=True)
    with session.running(), torch.enable_grad():
        scalar = session.loss(loss)
        session.backward(scalar)
        session.finish(optimizer)
    return session.close(scalar)


def trace_step(
    step: Callable[..., Any],
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    optimizer: str | None = "adamw",
    workload: Workload | None = None,
    dtype: str | DType | None = None,
) -> OperatorGraph:
    """Return the operators of ``step(module, *args, **kwargs)``, a training step that runs its backward pass itself.

    For programs whose own code decides when gradients are reduced, micro-batches run or stages wait.  *optimizer* is
    added over the parameters that have a gradient when *step* returns; None leaves it to *step*.  Errors as for
    `trace`.
    """
    check_optimizer(optimizer)
    session = _Session(module, args, kwargs, workload, dtype, training=True)
    with session.running(), torch.enable_grad():
        output = session.step(step)
        session.finish(optimizer)
    return session.close(output)


def run(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dtype: str | DType | None = None,
) -> Any:
    """Return what one inference call gives, on the meta device; arguments and errors as for `trace`."""
    session = _Session(module, args, kwargs, None, dtype, training=False)
    with session.running(), torch.no_grad():
        return session.forward()


class _Session:
    """One run of one program, with the books it is written into."""

    def __init__(
        self,
        module: nn.Module,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        workload: Workload | None,
        dtype: str | DType | None,
        *,
        training: bool,
    ) -> None:
        _check_arguments(module, args, kwargs)
        module = _uncompiled(module)
        cast = cast_type(dtype)
        self._module, self._training = module, training
        self._shadows = Shadows()
        self._ledger = Ledger(workload or Workload(type(module).__name__), self._shadows.forget)
        self._stand_ins = StandIns(module, cast, self._ledger, self._shadows)
        self._args, self._kwargs = arguments(tuple(args), dict(kwargs or {}), cast, self._ledger)
        self._scopes = Scopes(module)
        self._recorder = Recorder(self._ledger, self._scopes, self._shadows, tf32=dtype == DType.TF32)
        if workload is None:
            self._ledger.graph.workload = self._guess()

    def _guess(self) -> Workload:
        """What the run does, as far as its arguments tell.

        Token ids are integers [batch, sequence], embedded ones floats [batch, sequence, width]; else one a batch entry.
        """
        weights = [each.dtype for each in self._stand_ins.parameters.values() if each.is_floating_point()]
        given = list(tensors_in([self._args, self._kwargs]))
        ids = next((each for each in given if each.dim() == 2 and not each.is_floating_point()), None)
        shape = ids.shape if ids is not None else next((each.shape for each in given if each.dim()), torch.Size([1]))
        return Workload(
            name=type(self._module).__name__,
            phase="train" if self._training else "forward",
            batch=shape[0],
            tokens=prod(shape[:2]) if ids is not None or len(shape) == 3 else shape[0],
            dtype=dtype_of(max(weights, key=weights.count) if weights else torch.float32),
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        """Everything that has to be in place while the program runs."""
        with ExitStack() as stack:
            for each in (
                self._stand_ins.installed(),
                mode_of(self._module, self._training),
                self._scopes.watch(),
                patched(),
                self._recorder,
                Host(self._recorder),
            ):
                stack.enter_context(each)
            yield

    def forward(self) -> Any:
        """Run the user's module."""
        with blaming(f"the module {type(self._module).__name__}"):
            return self._module(*self._args, **self._kwargs)

    def step(self, step: Callable[..., Any]) -> Any:
        """Run the user's whole step."""
        with blaming("the training step"):
            return step(self._module, *self._args, **self._kwargs)

    def loss(self, loss: Loss | None) -> torch.Tensor:
        """Run the module and the loss; nothing but the scalar stays alive."""
        output = [self.forward()]  # handed over, so that no name here keeps the logits alive
        with blaming("the loss"):
            if loss is None:
                scalar = default_loss(output.pop(), (*self._args, *self._kwargs.values()))
            else:
                scalar = loss(output.pop(), *self._args)
        if not isinstance(scalar, torch.Tensor) or scalar.numel() != 1:
            got = f"shape {tuple(scalar.shape)}" if isinstance(scalar, torch.Tensor) else type(scalar).__name__
            raise TraceError(f"the loss must be a tensor with one element, got {got}")
        if not scalar.requires_grad:
            raise TraceError("nothing to train: the loss depends on no parameter that needs a gradient")
        return scalar

    def backward(self, scalar: torch.Tensor) -> None:
        """Run the backward pass below our modes, so that recomputed modules are seen as in the forward pass."""
        with blaming("the backward pass"):
            seed = torch.ones_like(scalar)
            torch.autograd.graph._engine_run_backward(
                (scalar,), (seed,), False, False, (), allow_unreachable=True, accumulate_grad=True
            )

    def finish(self, optimizer: str | None) -> None:
        """Name the gradients and take the optimizer's step."""
        for path, parameter in self._stand_ins.parameters.items():
            if parameter.grad is not None:
                self._ledger.relabel(parameter.grad, f"{path}.grad", Role.GRADIENT)
        if optimizer is not None:
            add_optimizer(optimizer, self._stand_ins.parameters, self._ledger)

    def close(self, output: Any) -> OperatorGraph:
        """Return the graph; what the program returns outlives the run."""
        return self._ledger.close(list(tensors_in(output)))


def _uncompiled(module: nn.Module) -> nn.Module:
    """Return the module that ``torch.compile`` wraps: the operators are the same, how they are fused is not ours."""
    inner = getattr(module, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else module


def _check_arguments(module: Any, args: Any, kwargs: Any) -> None:
    if not isinstance(module, nn.Module):
        raise TraceError(f"the program must be a torch.nn.Module, got {type(module).__name__}")
    if not isinstance(args, tuple | list):
        raise TraceError(f"args must be a tuple or list of the module's arguments, got {type(args).__name__}")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise TraceError(f"kwargs must be a dict of the module's named arguments, got {type(kwargs).__name__}")
    if not any(True for _ in tensors_in([args, dict(kwargs or {})])):
        kinds = ", ".join(type(each).__name__ for each in args) or "nothing"
        raise TraceError(f"no tensor among the arguments of {type(module).__name__}: got {kinds}")
