"""What is trained: one frozen class that travels to every process; models and batches follow from it."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from simulator.errors import UsageError, nearest
from workloads.gpt.config import Config
from workloads.gpt.feedforward import MLP
from workloads.gpt.model import Model

MODELS = ("mlp", "gpt")
TYPES = {"fp32": torch.float32, "fp64": torch.float64}


@dataclass(frozen=True, slots=True)
class Job:
    """A training run of a small *model* over dp x tp processes, the same on every machine for a *seed*.

    ring     all-reduces by the ring that is written out, which counts what it sends, instead of torch's own.
    batch    sequences of a step over all ranks; *seq* tokens each; *rate* of plain SGD with momentum 0.9.
    bucket   bytes of gradients that are summed together.
    """

    model: str = "gpt"
    dp: int = 2
    tp: int = 2
    dtype: str = "fp32"
    steps: int = 3
    batch: int = 8
    seq: int = 16
    ring: bool = False
    seed: int = 0
    rate: float = 0.1
    bucket: int = 64 * 1024

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        if self.model not in MODELS:
            raise UsageError(f"unknown model {self.model!r}{nearest(self.model, MODELS)} (known: {', '.join(MODELS)})")
        if self.dtype not in TYPES:
            raise UsageError(f"unknown type {self.dtype!r}{nearest(self.dtype, TYPES)} (known: {', '.join(TYPES)})")
        for name in ("dp", "tp", "steps", "batch", "seq", "bucket"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}, needs at least 1")
        if self.batch % self.dp:
            raise UsageError(f"dp={self.dp} does not divide the batch of {self.batch}")
        if self.model == "gpt" and GPT.kv_heads % self.tp:
            raise UsageError(f"tp={self.tp} does not divide the {GPT.kv_heads} key/value heads")

    @property
    def world(self) -> int:
        """Processes."""
        return self.dp * self.tp


GPT = Config(
    name="gpt-small",
    source="this lab",
    layers=2,
    width=64,
    heads=8,
    kv_heads=4,
    head_dim=8,
    ffn=192,
    vocab=96,
    context=64,
)
WIDTH, HIDDEN = 64, 256  # of the MLP


class Perceptron(nn.Module):
    """Two MLPs with a residual each, for vectors: the smallest program with every kind of communication."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(MLP(WIDTH, HIDDEN) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Return a vector for each vector."""
        for layer in self.layers:
            x = x + layer(x)
        return x


def make_model(job: Job) -> nn.Module:
    """Return the whole model, equal in every process."""
    torch.manual_seed(job.seed)
    model = Model(GPT) if job.model == "gpt" else Perceptron()
    return model.to(TYPES[job.dtype]).train()


def make_batch(job: Job, step: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Return inputs and targets of one *step*, those of all ranks."""
    random = torch.Generator().manual_seed(1000 * job.seed + step)
    if job.model == "gpt":
        tokens = torch.randint(GPT.vocab, (job.batch, job.seq + 1), generator=random)
        return tokens[:, :-1].to(device), tokens[:, 1:].to(device)
    pair = torch.randn(2, job.batch, job.seq, WIDTH, generator=random, dtype=torch.float64).to(TYPES[job.dtype])
    return pair[0].to(device), pair[1].to(device)


def loss_of(output: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy of logits, or mean square of the distance."""
    if targets.is_floating_point():
        return functional.mse_loss(output, targets)
    return functional.cross_entropy(output.flatten(0, 1), targets.flatten())
