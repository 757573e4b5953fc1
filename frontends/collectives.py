"""Runs calls of torch.distributed without a network: shapes come out, operators are entered, waits are remembered."""
# mypy: disallow-untyped-calls=False

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from frontends.ledger import Ledger
from frontends.rules import Call
from frontends.rules_collectives import FORMS, Form, flat, ranks_of, tensors_read, tensors_written
from frontends.shapes import row_major
from simulator.errors import TraceError
from simulator.graph import Operator, OpKind

_WAIT, _WRAP = "_c10d_functional.wait_tensor", "_c10d_functional._wrap_tensor_autograd"
_COPY_IN = "fsdp.all_gather_copy_in"
_NAMES = ("c10d.", "_c10d_functional.", "_dtensor.", "c10d_functional.", _COPY_IN)


def communicates(target: str) -> bool:
    """Whether the operator *target* belongs to torch.distributed."""
    return target.startswith(_NAMES)


class Streams:
    """Order that data alone does not give: one stream a group, and waits of the program.

    A collective comes after the one before it over the same ranks, as on the stream of an NCCL communicator.  The
    first operator that computes after a wait comes after what was waited for, even if it does not read it.

    aside   above 0 while the program is on a stream of its own: waits there hold up no computation.
    packed  what FSDP copied into the buffer that it gathers next, on a stream of its own: the gather reads it.
    handle  the last ``Work`` handed out: torch holds its C++ half only, until the program has it.
    """

    def __init__(self) -> None:
        self.aside = 0
        self.packed: list[torch.Tensor] = []
        self.handle: object = None
        self._last: dict[tuple[int, ...], int] = {}
        self._waits: set[int] = set()
        self._waited: set[int] = set()

    def wait(self, operator: int) -> None:
        """The program waits for the collective *operator*; waiting again costs nothing."""
        if operator not in self._waited and not self.aside:
            self._waited.add(operator)
            self._waits.add(operator)

    def order(self, id: int, group: tuple[int, ...], deps: tuple[int, ...]) -> tuple[int, ...]:
        """Return *deps* of the operator *id* with what its stream, or a wait before it, adds."""
        if group:
            before = {self._last[group]} if group in self._last else set()
            self._last[group] = id
        else:
            before, self._waits = self._waits, set()
        return tuple(sorted({*deps, *before})) if before else deps


class _Books(Protocol):
    """What this module needs of the recorder."""

    ledger: Ledger
    streams: Streams

    def enter(self, call: Call) -> Operator: ...
    def forget(self, tensor: torch.Tensor) -> None: ...
    def clone(self, tensor: torch.Tensor) -> torch.Tensor: ...


class _Work(dist.Work):
    """What an asynchronous classic call hands out: done at once, but its ``wait`` is an order for the simulator."""

    def __init__(self, wait: Callable[[], None], tensors: Any) -> None:
        super().__init__()
        self._wait, self._tensors = wait, tensors

    def wait(self, timeout: Any = None) -> bool:
        self._wait()
        self._tensors = []
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def get_future(self) -> Any:
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self._tensors)
        return future


def run(books: _Books, func: Any, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Enter the collective that *target* starts, and return what torch expects of it.

    Raises TraceError for a call that has no model.
    """
    if target == _WAIT:
        writer = books.ledger.writer(args[0])
        if writer is not None and writer.kind is OpKind.COLLECTIVE:
            books.streams.wait(writer.id)
        return args[0]
    if target == _WRAP:
        return AsyncCollectiveTensor(args[0])
    if target == _COPY_IN:
        books.streams.packed = list(flat(args[0]))
        return func(*args, **kwargs)
    form = FORMS.get(target)
    if form is None:
        raise TraceError(f"{target} of torch.distributed has no model{_ADVICE.get(target, '')}")
    if target.startswith("c10d."):
        return _classic(books, form, func, target, args, kwargs)
    return _functional(books, form, func, target, args, kwargs)


_ADVICE = {
    "c10d.gather_": "; use all_gather",
    "c10d.scatter_": "; use broadcast or all_to_all_single",
    "c10d.reduce_": "; use all_reduce or reduce_scatter_tensor",
    "c10d.recv_any_source_": ": name the rank that sends (src=)",
}


def _classic(books: _Books, form: Form, func: Any, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    read, books.streams.packed = books.streams.packed or tensors_read(form, args), []
    made = _enter(books, Call(func, target, args, kwargs, tuple(read), tuple(tensors_written(form, args))))
    work = _Work(lambda: books.streams.wait(made.id), list(flat(args[form.writes or 0])))
    handle = work.boxed()
    books.streams.handle = work
    return handle if form.gives is None else (args[form.gives], handle)


def _functional(
    books: _Books, form: Form, func: Any, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if form.copies:
        given = args[0]
        copies = [books.clone(each) for each in given] if isinstance(given, list | tuple) else books.clone(given)
        args = (copies, *args[1:])
    if form.writes is None:
        outputs = kwargs["out"] if "out" in kwargs else _outputs(form, target, args)
        written = list(flat(outputs))
    else:
        outputs, written = args[form.writes], tensors_written(form, args)
    _enter(books, Call(func, target, args, kwargs, tuple(tensors_read(form, args)), tuple(written)))
    return outputs


def _enter(books: _Books, call: Call) -> Operator:
    for tensor in call.outputs:
        books.forget(tensor)
    return books.enter(call)


def _outputs(form: Form, target: str, args: tuple[Any, ...]) -> Any:
    """Empty tensors of the shapes that the call gives, one for each input."""
    size = len(ranks_of(form, args))
    if target.endswith("all_to_all_single"):
        rows = sum(args[1]) if args[1] else args[0].shape[0]
        return args[0].new_empty((rows, *args[0].shape[1:]))
    if target.endswith("shard_dim_alltoall"):
        shape = list(args[0].shape)
        shape[args[1]] *= size
        shape[args[2]] //= size
        return args[0].new_empty(shape)
    if isinstance(args[0], list | tuple):
        return [_scaled(form, each, size) for each in args[0]]
    return _scaled(form, args[0], size)


def _scaled(form: Form, tensor: torch.Tensor, size: int) -> torch.Tensor:
    rows = tensor.shape[0] * size if form.pattern == "all_gather" else tensor.shape[0] // size
    if form.pattern == "reduce_scatter" and tensor.shape[0] % size:
        raise TraceError(f"reduce_scatter of {tensor.shape[0]} rows over {size} ranks: the rows do not divide")
    return row_major(tensor).new_empty((rows, *tensor.shape[1:]))
