"""The step of a run as an operator graph: the very modules that train, traced without weights."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from frontends import trace_training_step
from simulator.dims import RowDims
from simulator.dtypes import DType
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role, Workload
from simulator.graph import Tensor as Traced
from workloads.training.config import Run, checked
from workloads.training.network import Network, summed_loss
from workloads.training.packing import IGNORED

_PREFIX = "network"
_CHUNK = 65536  # elements of a block of torch's kernels over lists of tensors


class _Step(nn.Module):
    """Forward passes over all micro-batches, and backward passes over all but the last, which the tracer adds."""

    def __init__(self, network: Network, parts: int) -> None:
        super().__init__()
        self.network = network
        self._parts = parts

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of the last micro-batch; *inputs* and *targets* are [parts, batch, seq]."""
        weight = 1 / (targets != IGNORED).sum()
        for part in range(self._parts - 1):
            _backward(summed_loss(self.network(inputs[part]), targets[part]) * weight)
        return summed_loss(self.network(inputs[-1]), targets[-1]) * weight


def _backward(loss: Tensor) -> None:
    """``loss.backward()``, below the tracer's modes so that it also sees what is computed again."""
    torch.autograd.graph._engine_run_backward(
        (loss,), (torch.ones_like(loss),), False, False, (), allow_unreachable=True, accumulate_grad=True
    )


def trace_run(run: Run) -> OperatorGraph:
    """Return the operators of one optimizer step of *run*: all micro-batches, clipping, AdamW.

    Parameters are in fp32; the workload's type is the one that the products run in, which names the peak of MFU.
    """
    config = checked(run)
    with torch.device("meta"):
        network = Network(config, run.precision, run.checkpointing)
        tokens = torch.zeros(run.accumulate, run.batch, run.seq, dtype=torch.int64)
        targets = torch.zeros_like(tokens)
    workload = Workload(
        name=config.name,
        phase="train",
        batch=run.batch * run.accumulate,
        tokens=run.tokens_per_step,
        context=run.seq,
        dtype=DType.BF16 if run.precision == "bf16" else DType.FP32,
    )
    graph = trace_training_step(_Step(network, run.accumulate), (tokens, targets), loss=_given, workload=workload)
    return _named(_with_clipping(graph))


def _given(loss: Tensor, *_: Tensor) -> Tensor:
    return loss


def _with_clipping(graph: OperatorGraph) -> OperatorGraph:
    """Put clipping before the optimizer: the norm of all gradients, then a factor on each of them."""
    update = graph.operators[-1]
    assert update.phase is Phase.OPTIMIZER  # a traced step ends with it
    gradients = tuple(t for t in update.inputs if graph.storages[t.storage].role is Role.GRADIENT)
    elements = sum(each.elements for each in gradients)
    size = sum(each.nbytes for each in gradients)
    norm = Traced(graph.add_storage("norm", Role.ACTIVATION, 4).id, (), DType.FP32)
    clip = Operator(
        id=update.id, module="", target="clip.norm", kind=OpKind.REDUCTION, phase=Phase.OPTIMIZER, inputs=gradients,
        outputs=(norm,), flops=2 * elements, reads=size, writes=4, deps=update.deps, dtype=DType.FP32,
        dims=RowDims(-(-elements // _CHUNK), _CHUNK), dispatches=update.dispatches,
    )  # fmt: skip
    scale = Operator(
        id=update.id + 1, module="", target="clip.scale", kind=OpKind.POINTWISE, phase=Phase.OPTIMIZER,
        inputs=(*gradients, norm), outputs=gradients, flops=elements, reads=size, writes=size, deps=(clip.id,),
        dtype=DType.FP32, dispatches=update.dispatches,
    )  # fmt: skip
    last = replace(update, id=update.id + 2, deps=tuple(sorted({*update.deps, scale.id})))
    graph.operators[-1:] = [clip, scale, last]
    moved = {storage: last.id if at == update.id else at for storage, at in graph.released.items()}
    graph.released.clear()
    graph.released.update(moved)
    return graph


def _named(graph: OperatorGraph) -> OperatorGraph:
    """Take the name of the wrapper out of all paths: ``network.blocks.0`` is ``blocks.0`` to its user."""
    graph.storages[:] = [replace(each, name=_stripped(each.name)) for each in graph.storages]
    graph.operators[:] = [replace(each, module=_stripped(each.module)) for each in graph.operators]
    return graph


def _stripped(name: str) -> str:
    return name.removeprefix(_PREFIX).removeprefix(".") if name.startswith((f"{_PREFIX}.", _PREFIX)) else name
