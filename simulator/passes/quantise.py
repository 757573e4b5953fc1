"""Weight-only quantisation: matrices of linear layers in 8 or 4 bits, unpacked by the kernel that multiplies.

Weights lie in groups of 128 along K.  A group has its integers, an fp16 scale and an fp16 zero, so a weight takes
8 + 32 / 128 = 8.25 or 4 + 32 / 128 = 4.25 bits.  The product still runs in the type of the activations.  FLOPs stay;
reads shrink.  What unpacking costs is the chip model's business.
"""

from collections.abc import Callable
from dataclasses import replace

from simulator.dims import MatmulDims
from simulator.dtypes import DType
from simulator.graph import Operator, OperatorGraph, Role, Storage, Tensor
from simulator.packing import GROUP, PARAMETERS, bits_of, groups_of
from simulator.passes.prices import Prices

SCHEMES = {"w8": DType.INT8, "w4": DType.INT4}


def quantised(graph: OperatorGraph, scheme: str) -> OperatorGraph:
    """Return *graph* with the weights of its matrix products packed by *scheme*; ``none`` leaves it as it is.

    A tied embedding is packed with the head: a lookup then unpacks the rows that it needs.
    """
    bits_of(scheme)
    if scheme == "none":
        return graph
    dtype = SCHEMES[scheme]
    storages = list(graph.storages)
    parameters: dict[int, Tensor] = {}
    for op in graph:
        weight = _weight(op, graph.storages)
        if weight is not None and weight.storage not in parameters:
            parameters[weight.storage] = _pack(storages, weight, op, dtype)
    operators = [_reading_packed(op, graph.storages, parameters, dtype) for op in graph]
    return replace(graph, storages=storages, operators=operators)


def _weight(op: Operator, storages: list[Storage]) -> Tensor | None:
    """The matrix of weights that *op* multiplies with, if it does."""
    if not isinstance(op.dims, MatmulDims) or not op.dtype.floating:
        return None
    found = (each for each in op.inputs if storages[each.storage].role is Role.WEIGHT and len(each.shape) > 1)
    return next(found, None)


def _pack(storages: list[Storage], weight: Tensor, op: Operator, dtype: DType) -> Tensor:
    """Shrink the storage of *weight* to its integers and return its scales and zeros, which get one of their own."""
    assert isinstance(op.dims, MatmulDims)
    old, k = storages[weight.storage], op.dims.k
    rows = weight.elements // k
    groups = groups_of(k)
    storages[old.id] = replace(old, nbytes=rows * groups * GROUP * dtype.bits // 8)
    scales = Tensor(len(storages), (PARAMETERS, groups, rows), DType.FP16)
    storages.append(Storage(scales.storage, f"{old.name}.scales", Role.WEIGHT, scales.nbytes))
    return scales


def _reading_packed(op: Operator, storages: list[Storage], parameters: dict[int, Tensor], dtype: DType) -> Operator:
    """*op* with what it reads of packed weights made smaller, and their scales among its inputs."""
    dense = [each for each in op.inputs if each.storage in parameters]
    if not dense:
        return op
    weight = dense[0]
    whole = sum(each.nbytes for each in op.inputs)
    if isinstance(op.dims, MatmulDims):
        read = min(weight.nbytes, op.reads - (whole - weight.nbytes) if op.reads < whole else weight.nbytes)
    else:
        read = min(op.writes, weight.nbytes)  # a lookup: the rows that it returns
    packed = replace(weight, dtype=dtype)
    scales = parameters[weight.storage]
    stored = scales.elements // PARAMETERS * GROUP * dtype.bits // 8  # whole groups
    part = read * (stored + scales.nbytes) // weight.nbytes
    inputs = tuple(packed if each is weight else each for each in op.inputs)
    return replace(op, inputs=(*inputs, scales), reads=max(0, op.reads - read) + part)


def _pass(scheme: str) -> Callable[[OperatorGraph, Prices], OperatorGraph]:
    def quantise(graph: OperatorGraph, _: Prices) -> OperatorGraph:
        return quantised(graph, scheme)

    return quantise


w8, w4 = _pass("w8"), _pass("w4")
