"""The books of a trace: which storage a tensor is a view of, who wrote it last, and when the program let go of it."""

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from frontends.dtypes import dtype_of
from frontends.shards import local
from simulator.graph import Operator, OperatorGraph, OpKind, Role, Tensor, Workload

_COMPLEX_PARTS = (2,)


class Ledger:
    """Gives identities to storages and keeps reads and writes in order while the program runs.

    A storage of torch is known by its address as long as it lives.  When it dies, the address may be used again, so
    its death is watched, and with it the moment at which the program's memory was given back.
    """

    def __init__(self, workload: Workload, on_death: Callable[[int], None]) -> None:
        """*on_death* is told the address of each storage that dies."""
        self._on_death = on_death
        self.graph = OperatorGraph(workload)
        self._ids: dict[int, int] = {}
        self._watch: dict[int, Any] = {}
        self._writer: list[int] = []
        self._readers: list[list[int]] = []
        self._last_use: list[int] = []
        self._gone: dict[int, int] = {}

    def adopt(self, tensor: torch.Tensor, name: str, role: Role) -> int:
        """Return the id of the storage under *tensor*, entered as *name* and *role* if it is new."""
        storage = local(tensor).untyped_storage()
        address = storage._cdata
        known = self._ids.get(address)
        if known is not None:
            return known
        entry = self.graph.add_storage(name, role, storage.nbytes())
        self._ids[address] = entry.id
        self._watch[address] = weakref.ref(storage, lambda _: self._died(address))
        self._writer.append(-1)
        self._readers.append([])
        self._last_use.append(-1)
        return entry.id

    def add_storage(self, name: str, role: Role, nbytes: int) -> int:
        """Enter a storage that no tensor of the program stands for, such as an optimizer's state."""
        entry = self.graph.add_storage(name, role, nbytes)
        self._writer.append(-1)
        self._readers.append([])
        self._last_use.append(-1)
        return entry.id

    def _died(self, address: int) -> None:
        storage = self._ids.pop(address)
        del self._watch[address]
        self._on_death(address)
        self._gone[storage] = len(self.graph.operators) - 1

    def emptied(self, tensor: torch.Tensor) -> None:
        """The program gave back the memory under *tensor*, which it may fill again: that is another storage then."""
        address = local(tensor).untyped_storage()._cdata
        if address in self._ids:
            self._died(address)

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether the storage under *tensor* has an id already."""
        return local(tensor).untyped_storage()._cdata in self._ids

    def writer(self, tensor: torch.Tensor) -> Operator | None:
        """Return the operator that wrote to the storage under *tensor* last."""
        storage = self._ids.get(local(tensor).untyped_storage()._cdata, -1)
        return self.graph.operators[self._writer[storage]] if storage >= 0 and self._writer[storage] >= 0 else None

    def source(self, tensor: torch.Tensor, kind: OpKind) -> Operator | None:
        """Return the last operator of *kind* that the values of *tensor* come from."""
        writer = self.writer(tensor)
        reached = set() if writer is None else {writer.id}
        while reached:
            operator = self.graph.operators[max(reached)]
            if operator.kind is kind:
                return operator
            reached.discard(operator.id)
            reached.update(operator.deps)
        return None

    def tensor(self, tensor: torch.Tensor, name: str = "constant") -> Tensor:
        """Return *tensor* as the graph writes it; a storage met for the first time is an activation."""
        tensor = local(tensor)
        shape = tuple(tensor.shape)
        if tensor.is_complex():
            shape += _COMPLEX_PARTS
        return Tensor(self.adopt(tensor, name, Role.ACTIVATION), shape, dtype_of(tensor.dtype))

    def dependencies(self, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> tuple[int, ...]:
        """Operators that must end first: writers of what is read, writers and readers of what is written."""
        deps = {self._writer[tensor.storage] for tensor in inputs}
        for tensor in outputs:
            deps.add(self._writer[tensor.storage])
            deps.update(self._readers[tensor.storage])
        deps.discard(-1)
        return tuple(sorted(deps))

    def add(self, operator: Operator) -> Operator:
        """Append *operator* to the graph and note what it reads and writes; returns it."""
        self.graph.add(operator)
        for tensor in operator.inputs:
            self._readers[tensor.storage].append(operator.id)
            self._last_use[tensor.storage] = operator.id
        for tensor in operator.outputs:
            self._writer[tensor.storage] = operator.id
            self._readers[tensor.storage] = []
            self._last_use[tensor.storage] = operator.id
        return operator

    def relabel(self, tensor: torch.Tensor, name: str, role: Role) -> None:
        """Give the storage under *tensor* another name and role: a gradient is known as one only at the end."""
        entry = self.graph.storages[self._ids[local(tensor).untyped_storage()._cdata]]
        self.graph.storages[entry.id] = replace(entry, name=name, role=role)

    def close(self, outputs: list[torch.Tensor]) -> OperatorGraph:
        """Return the finished graph; *outputs* are what the program gives back.

        What the program still holds at its end, without returning it, was held to the end.
        """
        self.graph.outputs = frozenset(self.adopt(out, "output", Role.ACTIVATION) for out in outputs)
        last = len(self.graph.operators) - 1
        held = dict.fromkeys(self._ids.values(), last)
        for storage, moment in {**self._gone, **held}.items():
            if moment > self._last_use[storage] >= 0 and not self.graph.storages[storage].role.resident:
                self.graph.released[storage] = moment
        self._watch.clear()  # a weak reference that is gone calls nobody
        return self.graph
