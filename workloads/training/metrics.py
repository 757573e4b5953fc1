"""Speed, utilisation and memory of a run, with the conventions that go with them."""

import resource
import sys
from dataclasses import dataclass

import torch

from simulator.units import decimal
from workloads.gpt.config import Config
from workloads.gpt.estimates import training_flops_per_token

FLOP_CONVENTION = (
    "model FLOP a token = 6 x matrix parameters + 12 x layers x width of heads x seq "
    "(multiply-add = 2; attention as if not causal; recomputation not counted; as in the PaLM paper)"
)


@dataclass(frozen=True, slots=True)
class Peak:
    """The rate that utilisation refers to: dense FLOP per second of one device in *dtype*."""

    flops: float
    dtype: str
    name: str

    def __str__(self) -> str:
        return f"{self.name}, dense {self.dtype}, {decimal(self.flops, 'FLOP/s', 4)}"


def utilisation(config: Config, seq: int, tokens_per_second: float, peak: Peak | None) -> float | None:
    """Return MFU: model FLOP a second over the peak; None without a peak."""
    if peak is None:
        return None
    return training_flops_per_token(config, seq) * tokens_per_second / peak.flops


def synchronise(device: str) -> None:
    """Wait until *device* has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()
    elif device == "mps":
        torch.mps.synchronize()


def reset_peak(device: str) -> None:
    """Forget the highest memory use so far, where the device keeps it."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()


def memory_in_use(device: str) -> tuple[int, str]:
    """Return bytes and what they mean: the peak of tensors on cuda, those now on mps, the whole process on the CPU."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated(), "peak of allocated tensors"
    if device == "mps":
        return torch.mps.current_allocated_memory(), "allocated tensors now"
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale, "peak of the whole process"
