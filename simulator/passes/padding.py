"""Operands of products are padded to whole 16-byte rows where that is faster: Inductor's ``pad_mm``.

Wide loads and bulk copies need rows that are multiples of 16 bytes; a vocabulary of 50257 has none.  The copies cost
kernels and bytes, so this is the one pass that does not only save them: it is made where the model says that the
product gains more.  FLOPs stay those of the program: multiplying zeros is no work.
"""

from dataclasses import replace
from itertools import product

from simulator.dims import MatmulDims
from simulator.graph import MATRIX_KINDS, Operator, OperatorGraph, OpKind, Role, Storage, Tensor
from simulator.passes.draft import rebuilt
from simulator.passes.prices import Prices

_ROW_BYTES = 16
_Key = tuple[int, tuple[int, ...]]


def padding(graph: OperatorGraph, prices: Prices) -> OperatorGraph:
    """Products with rows that are no multiples of 16 bytes get padded operands where that pays."""
    return _Padding(graph, prices).run()


class _Padding:
    def __init__(self, graph: OperatorGraph, prices: Prices) -> None:
        self._old = graph
        self._prices = prices
        self._storages = list(graph.storages)
        self._row: dict[int, int] = {}  # length of the rows of what operators have written
        self._made: dict[_Key, Tensor] = {}  # padded copies that still hold what their originals do

    def run(self) -> OperatorGraph:
        pieces = []
        phase = None
        for op in self._old:
            if op.phase is not phase:
                self._made, phase = {}, op.phase  # phases are compiled apart: a copy is not kept for the next one
            best = [op]
            dims = op.dims
            if op.kind in MATRIX_KINDS and isinstance(dims, MatmulDims) and dims.batch == dims.groups == 1:
                best = self._best(op, dims)
            pieces.append(best)
            changed = {tensor.storage for tensor in op.outputs}
            self._made = {key: made for key, made in self._made.items() if key[0] not in changed}
            self._note(best[:-1])
            self._row.update({tensor.storage: tensor.shape[-1] for tensor in op.outputs if tensor.shape})
        return rebuilt(self._old, self._storages, pieces)

    def _in_memory(self, tensor: Tensor, padded: Tensor) -> tuple[Tensor, Tensor]:
        """Both as they lie in memory, as far as is known: *tensor* may be a transposed view.

        What was computed lies as it was written; of weights the rows are taken to be the axis that is not padded.
        """
        row = self._row.get(tensor.storage)
        other = tensor.shape[-1] != row if row in tensor.shape else tensor.shape[-1] != padded.shape[-1]
        turn = -1 if other else 1
        return replace(tensor, shape=tensor.shape[::turn]), replace(padded, shape=padded.shape[::turn])

    def _note(self, copies: list[Operator]) -> None:
        for op in copies:
            self._made[op.inputs[0].storage, tuple(sorted(op.outputs[0].shape))] = op.outputs[0]

    def _best(self, op: Operator, dims: MatmulDims) -> list[Operator]:
        """*op*, or copies of its operands and the padded product, whichever is fastest."""
        whole = _ROW_BYTES * 8 // op.dtype.bits
        sizes = [(size, -(-size // whole) * whole) for size in (dims.m, dims.n, dims.k)]
        found, storages = [op], self._storages
        price = self._prices.of(found, storages)
        for m, n, k in product(*(dict.fromkeys(pair) for pair in sizes)):
            wanted = replace(dims, m=m, n=n, k=k)
            made = None if wanted == dims else self._padded(op, dims, wanted)
            if made is not None and (time := self._prices.of(*made)) < price:
                price, (found, storages) = time, made
        self._storages = storages
        return found

    def _padded(
        self, op: Operator, dims: MatmulDims, wanted: MatmulDims
    ) -> tuple[list[Operator], list[Storage]] | None:
        """Copies and the product of *wanted* sizes, with the storages that they need; None if operands are unknown."""
        storages, copies = list(self._storages), []
        operands = list(op.inputs)
        places = [(-2, (dims.m, dims.k), (wanted.m, wanted.k)), (-1, (dims.k, dims.n), (wanted.k, wanted.n))]
        if len(operands) < 2 or any(operands[place].shape != shape for place, shape, _ in places):
            return None
        for place, shape, padded in places:
            if shape == padded:
                continue
            tensor = operands[place]
            known = self._made.get((tensor.storage, tuple(sorted(padded))))
            if known is None:
                known = replace(tensor, storage=len(storages), shape=padded)
                name = f"{storages[tensor.storage].name} padded"
                storages.append(Storage(known.storage, name, Role.ACTIVATION, known.nbytes))
                copies.append(_copy(op, *self._in_memory(tensor, known)))
            operands[place] = replace(known, shape=padded)
        result = op.outputs[0]
        size = wanted.m * wanted.n * result.dtype.bits // 8
        if size > storages[result.storage].nbytes:
            storages[result.storage] = replace(storages[result.storage], nbytes=size)
        reads = sum(tensor.nbytes for tensor in operands)
        return [*copies, replace(op, dims=wanted, inputs=tuple(operands), reads=reads, writes=size)], storages


def _copy(op: Operator, tensor: Tensor, padded: Tensor) -> Operator:
    """The copy of *tensor* into *padded*; its id says that it has no place in the old graph."""
    return Operator(
        id=-1,
        module=op.module,
        target="aten.constant_pad_nd",
        kind=OpKind.MOVE,
        phase=op.phase,
        inputs=(tensor,),
        outputs=(padded,),
        flops=0,
        reads=tensor.nbytes,
        writes=padded.nbytes,
        deps=(),
        dtype=tensor.dtype,
    )
