"""Writes down what the engine does as an operator graph: the same kind that `frontends.trace` makes of PyTorch.

FLOPs an element are the frontends' own table, so that both sides count by one convention.
"""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.dtypes import DType
from simulator.graph import Operator, OperatorGraph, Phase, Role, Storage, Tensor, Workload
from workloads.autograd.costs import work_of
from workloads.autograd.modules import Module
from workloads.autograd.optimizers import Optimizer
from workloads.autograd.state import STATE, Array

AnyArray = npt.NDArray[Any]
_TYPES = {"float32": DType.FP32, "float64": DType.FP64, "int64": DType.INT64, "int32": DType.INT32, "bool": DType.BOOL}


class Recorder:
    """The books of a recording: storages by the array that owns the memory, who wrote them and who reads them.

    dtype  type that the device would use in place of numpy's floats; None: as they are.
    """

    def __init__(self, workload: Workload, dtype: DType | None) -> None:
        self.graph = OperatorGraph(workload)
        self._dtype = dtype
        self._ids: dict[int, int] = {}
        self._alive: dict[int, weakref.ref[AnyArray]] = {}
        self._writer: list[int] = []
        self._readers: list[list[int]] = []
        self._gone: dict[int, int] = {}

    def enter(self, array: AnyArray, name: str, role: Role) -> Storage:
        """Return the storage under *array*, entered as *name* and *role* if it is new."""
        owner = owner_of(array)
        key = id(owner)
        known = self._ids.get(key)
        if known is not None:
            return self.graph.storages[known]
        storage = self.graph.add_storage(name, role, (owner.size * self.type_of(owner).bits + 7) // 8)
        self._ids[key] = storage.id
        self._alive[key] = weakref.ref(owner, lambda _: self._died(key))
        self._writer.append(-1)
        self._readers.append([])
        return storage

    def relabel(self, array: AnyArray, name: str, role: Role) -> None:
        """Give the storage under *array* another name: a gradient is known as one only at the end."""
        key = self._ids[id(owner_of(array))]
        self.graph.storages[key] = replace(self.graph.storages[key], name=name, role=role)

    def type_of(self, array: AnyArray) -> DType:
        """Type of one element on the device."""
        if self._dtype is not None and np.issubdtype(array.dtype, np.floating):
            return self._dtype
        return _TYPES[array.dtype.name]

    def launched(self, target: str, inputs: Sequence[AnyArray], outputs: Sequence[Array], axes: Sequence[int]) -> None:
        """Append one operator.  Numbers without axes that no kernel has made are arguments of the launch."""
        given = [each for each in inputs if each.ndim or id(owner_of(each)) in self._ids]
        label = f"{STATE.module}/{target}" if STATE.module else target
        read = tuple(self._tensor(each, "input", Role.INPUT) for each in given)
        written = tuple(self._tensor(each, label, Role.ACTIVATION) for each in outputs)
        work = work_of(target, given, outputs, axes)
        operator = Operator(
            id=len(self.graph),
            module=STATE.module,
            target=f"aten.{target}" if STATE.phase is not Phase.OPTIMIZER else target,
            kind=work.kind,
            phase=STATE.phase,
            inputs=read,
            outputs=written,
            flops=work.flops,
            reads=self._bytes(given) if work.gathered is None else self._bytes(work.gathered),
            writes=self._bytes(outputs),
            deps=self._dependencies(read, written),
            dtype=self.type_of(outputs[0]),
            dims=work.dims,
        )
        self.graph.add(operator)
        self._note(operator)

    def close(self) -> OperatorGraph:
        """Return the graph; what is still alive was held to the end."""
        last = len(self.graph) - 1
        used = {t.storage: op.id for op in self.graph for t in op.inputs + op.outputs}
        moments = {**self._gone, **dict.fromkeys(self._ids.values(), last)}
        self.graph.released = {
            key: moment
            for key, moment in moments.items()
            if moment > used.get(key, last) and not self.graph.storages[key].role.resident
        }
        self._alive.clear()
        return self.graph

    def _tensor(self, array: AnyArray, name: str, role: Role) -> Tensor:
        return Tensor(self.enter(array, name, role).id, array.shape, self.type_of(array))

    def _bytes(self, arrays: Sequence[AnyArray]) -> int:
        return sum((touched(each) * self.type_of(each).bits + 7) // 8 for each in arrays)

    def _dependencies(self, read: tuple[Tensor, ...], written: tuple[Tensor, ...]) -> tuple[int, ...]:
        """Writers of what is read, writers and readers of what is written."""
        deps = {self._writer[each.storage] for each in read + written}
        deps.update(reader for each in written for reader in self._readers[each.storage])
        return tuple(sorted(deps - {-1}))

    def _note(self, operator: Operator) -> None:
        for each in operator.inputs:
            self._readers[each.storage].append(operator.id)
        for each in operator.outputs:
            self._writer[each.storage], self._readers[each.storage] = operator.id, []

    def _died(self, key: int) -> None:
        self._gone[self._ids.pop(key)] = len(self.graph) - 1
        del self._alive[key]


def owner_of(array: AnyArray) -> AnyArray:
    """Return the array that owns the memory *array* is a view of."""
    found = array
    base: Any = array.base
    while base is not None:
        if isinstance(base, np.ndarray):
            found = base
        base = getattr(base, "base", None)
    return found


def touched(array: AnyArray) -> int:
    """Elements of memory that reading all of *array* touches: a repeated axis (stride 0) counts once."""
    real: int = prod(size for size, stride in zip(array.shape, array.strides, strict=True) if stride)
    there: int = owner_of(array).size
    return min(real, there)


class Recording:
    """What `recording` hands out: *graph* is there once its block has ended."""

    graph: OperatorGraph


@contextmanager
def recording(
    model: Module, optimizer: Optimizer | None = None, workload: Workload | None = None, dtype: DType | None = None
) -> Iterator[Recording]:
    """Write down all work inside; parameters of *model* and states of *optimizer* get their names and roles.

    >>> from workloads.autograd import MLP, SGD, Tensor
    >>> model = MLP((8, 4, 2), np.random.default_rng(0))
    >>> with recording(model, sgd := SGD(model.parameters(), 0.1)) as step:
    ...     model(Tensor(np.ones((3, 8)))).sum().backward()
    ...     sgd.step()
    >>> sum(op.flops for op in step.graph if op.kind == "matmul" and op.phase == "forward")  # 2 x 3 x (8 x 4 + 4 x 2)
    240
    """
    model.name_parts()
    recorder = Recorder(workload or Workload(type(model).__name__), dtype)
    parameters = model.named_parameters()
    for path, parameter in parameters.items():
        recorder.enter(parameter.data, path, Role.WEIGHT)
    for name, states in (optimizer.states() if optimizer else {}).items():
        for parameter, state in zip(optimizer.parameters if optimizer else (), states, strict=True):
            recorder.enter(state, f"{parameter.name}.{name}", Role.OPTIMIZER)
    result = Recording()
    before, STATE.watcher = STATE.watcher, recorder
    try:
        yield result
    finally:
        STATE.watcher = before
    for path, parameter in parameters.items():
        if parameter.grad is not None:
            recorder.relabel(parameter.grad, f"{path}.grad", Role.GRADIENT)
    result.graph = recorder.close()
