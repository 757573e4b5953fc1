"""The cost model's word on operators that are not in a graph yet."""

from collections.abc import Hashable, Sequence
from dataclasses import replace

from simulator.costs import ComputeModel
from simulator.graph import Operator, OperatorGraph, Storage, Workload


class Prices:
    """Times of a few operators in a row by *model*, each different row of operators asked for once.

    What stays in a cache from one of them to the next counts; what was there before does not.  *cores* are those of
    the chip, for passes that cut work into pieces for each; *capacity* bytes of its memory, 0 if that is not known.
    """

    def __init__(self, model: ComputeModel, cores: int = 1, capacity: int = 0) -> None:
        self.cores, self.capacity = cores, capacity
        self._model = model
        self._known: dict[Hashable, int] = {}

    def of(self, operators: Sequence[Operator], storages: Sequence[Storage]) -> int:
        """Picoseconds of *operators*, one after another, with the chip to themselves; launches included, gaps not."""
        graph = OperatorGraph(Workload("row"))
        place: dict[int, int] = {}
        for op in operators:
            for tensor in (*op.inputs, *op.outputs):
                if tensor.storage not in place:
                    old = storages[tensor.storage]
                    place[tensor.storage] = graph.add_storage("", old.role, old.nbytes).id
        for op in operators:
            inputs, outputs = (
                tuple(replace(tensor, storage=place[tensor.storage]) for tensor in tensors)
                for tensors in (op.inputs, op.outputs)
            )
            graph.add(replace(op, id=len(graph), module="", inputs=inputs, outputs=outputs, deps=()))
        key = (tuple(graph.storages), tuple(graph.operators))
        if key not in self._known:
            self._known[key] = sum(cost.time for cost in self._model.costs(graph))
        return self._known[key]
