"""One rank's part of a job: its shard of the model, its part of the batch, one step."""
# mypy: disallow-untyped-calls=False

from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.utils._python_dispatch import TorchDispatchMode

from workloads.distributed import tensor_parallel
from workloads.distributed.comm import Communicator
from workloads.distributed.data_parallel import Buckets
from workloads.distributed.job import Job, loss_of, make_batch, make_model

DIMENSIONS = ("dp", "tp")


class Trainer:
    """A model cut for this rank of *mesh*, which has the dimensions dp and tp."""

    def __init__(self, job: Job, mesh: DeviceMesh) -> None:
        self.job = job
        self.data, self.tensor = (Communicator(mesh.get_group(each), job.ring) for each in DIMENSIONS)
        self.model = make_model(job)
        tensor_parallel.shard(self.model, self.tensor)
        self._buckets = Buckets(self.model.parameters(), self.data, job.bucket)

    @property
    def sent(self) -> int:
        """Bytes that this rank has put on the wire, if the job runs the ring."""
        return self.data.sent + self.tensor.sent

    def part(self, whole: Tensor) -> Tensor:
        """Return this rank's sequences of a batch."""
        return whole.chunk(self.data.size, 0)[self.data.place]

    def step(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Run forward, backward and the averaging of gradients; return this rank's loss."""
        loss = loss_of(model(inputs), targets)
        loss.backward()
        self._buckets.finish()
        return loss.detach()


class Momentum:
    """SGD with momentum 0.9: m = 0.9 m + gradient, weight -= rate x m.

    Written out, because torch's own loads torch's compiler first: seconds, in every process.
    """

    def __init__(self, model: nn.Module, rate: float) -> None:
        self._rate = rate
        self._pairs = [(each, torch.zeros_like(each)) for each in model.parameters()]

    @torch.no_grad()
    def step(self) -> None:
        """Move every weight against its gradient, and forget the gradient."""
        for weight, moment in self._pairs:
            assert weight.grad is not None  # every weight of these models takes part
            moment.mul_(0.9).add_(weight.grad)
            weight.sub_(moment, alpha=self._rate)
            weight.grad = None


class Calls(TorchDispatchMode):
    """Counts what torch's own all-reduce is asked to sum, below all Python of this package: calls and bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.nbytes = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Tell torch not to load its compiler for this class."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.c10d.allreduce_.default:
            self.calls += 1
            self.nbytes += sum(each.numel() * each.element_size() for each in args[0])
        return func(*args, **(kwargs or {}))


def train(job: Job) -> dict[str, Any]:
    """Train as this rank of the process group that exists; return losses, weights, bytes and seconds a step.

    sent    bytes on the wire in each step (ring only); *calls* and *summed*: torch's all-reduces and their bytes.
    """
    mesh = init_device_mesh("cpu", (job.dp, job.tp), mesh_dim_names=DIMENSIONS)
    trainer = Trainer(job, mesh)
    optimizer = Momentum(trainer.model, job.rate)
    losses, seconds, sent, calls, summed = [], [], [], [], []
    for number in range(job.steps):
        inputs, targets = (trainer.part(each) for each in make_batch(job, number))
        dist.barrier()
        before, start = trainer.sent, perf_counter()
        with Calls() as counted:
            losses.append(float(trainer.step(trainer.model, inputs, targets)))
        optimizer.step()
        seconds.append(perf_counter() - start)
        sent.append(trainer.sent - before)
        calls.append(counted.calls)
        summed.append(counted.nbytes)
    weights = {name: each.detach().clone() for name, each in trainer.model.named_parameters()}
    return {
        "losses": losses, "weights": weights, "seconds": seconds, "sent": sent, "calls": calls, "summed": summed
    }  # fmt: skip


def train_alone(job: Job) -> dict[str, Any]:
    """Train the same model on the same batches in this process; losses and weights."""
    model = make_model(job)
    optimizer = Momentum(model, job.rate)
    losses = []
    for number in range(job.steps):
        inputs, targets = make_batch(job, number)
        loss = loss_of(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return {"losses": losses, "weights": {name: each.detach() for name, each in model.named_parameters()}}
