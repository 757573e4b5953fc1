"""What a run will take, before it starts: time of a step, memory by owner, and whether it fits."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from simulator.dtypes import DType
from simulator.hardware import Chip
from simulator.memory import library_workspace
from simulator.result import Result
from simulator.simulation import simulate
from simulator.units import PS_PER_SECOND, decimal
from workloads.training.config import Run, checked
from workloads.training.errors import OutOfMemoryError
from workloads.training.memory import StepMemory, step_memory
from workloads.training.metrics import Peak, utilisation
from workloads.training.tracing import trace_run

_CUDA_WORKSPACE = 2 * 32 * 2**20  # what cuBLAS keeps at most for the program's thread and autograd's


@dataclass(frozen=True, slots=True)
class Forecast:
    """One step of *run* on *chip*.

    result     the step as the host dispatches it, operator by operator.
    memory     who holds what; *workspace* bytes of libraries beside it, from the first step to the last.
    """

    run: Run
    chip: Chip
    result: Result
    memory: StepMemory
    workspace: int

    @property
    def step_seconds(self) -> float:
        """Seconds of a step, as if it fitted: torch fetches nothing from the host."""
        return (self.result.time - self.result.spill) / PS_PER_SECOND

    @property
    def busy_seconds(self) -> float:
        """Seconds in which the device works."""
        return sum(each.end - each.start for each in self.result.operators) / PS_PER_SECOND

    @property
    def tokens_per_second(self) -> float:
        return self.run.tokens_per_step / self.step_seconds

    @property
    def peak(self) -> Peak:
        return peak_of(self.chip, self.run)

    @property
    def mfu(self) -> float:
        """Model FLOP over the dense peak, in the convention of `metrics.FLOP_CONVENTION`."""
        used = utilisation(checked(self.run), self.run.seq, self.tokens_per_second, self.peak)
        assert used is not None  # there is a peak
        return used

    @property
    def peak_bytes(self) -> int:
        return self.memory.peak + self.workspace

    @property
    def resident_bytes(self) -> int:
        return self.memory.resident + self.workspace

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= self.chip.dram.capacity

    def after(self, moment: str) -> int:
        """Bytes in use after ``forward``, ``loss`` or ``backward`` of the first micro-batch."""
        return int(self.memory.after[self.memory.moments()[moment]]) + self.workspace

    def as_json(self) -> dict[str, Any]:
        """Return everything in base units; the timeline has one entry an operator, bytes by owner while it runs."""
        at_peak = self.memory.graph.operators[self.memory.peak_at].name
        starts = [each.start / PS_PER_SECOND for each in self.result.operators]
        return {
            "chip": self.chip.name,
            "step_seconds": self.step_seconds,
            "busy_seconds": self.busy_seconds,
            "tokens_per_second": self.tokens_per_second,
            "mfu": self.mfu,
            "peak": str(self.peak),
            "bound": str(self.result.bound),
            "memory": {
                "capacity_bytes": self.chip.dram.capacity,
                "peak_bytes": self.peak_bytes,
                "peak_operator": at_peak,
                "at_peak": {**self.memory.at_peak(), "library workspace": self.workspace},
                "resident_bytes": self.resident_bytes,
                **{f"after_{moment}_bytes": self.after(moment) for moment in ("forward", "loss", "backward")},
                "saved": [{"name": s.name, "count": s.count, "bytes": s.nbytes} for s in self.memory.saved],
            },
            "timeline": {
                "operator": [op.name for op in self.memory.graph],
                "start_seconds": starts,
                "bytes": {owner: nbytes.tolist() for owner, nbytes in self.memory.during.items()},
            },
        }


def forecast(run: Run, chip: Chip) -> Forecast:
    """Trace one step of *run* and play it on *chip*; UsageError if the run makes no sense."""
    graph = trace_run(run)
    workspace = library_workspace(graph, chip, captured=False)
    return Forecast(run, chip, simulate(graph, chip, mode="eager"), step_memory(graph), workspace)


def peak_of(chip: Chip, run: Run) -> Peak:
    """Return the dense peak of *chip* in the type that the products of *run* have."""
    dtype = DType.BF16 if run.precision == "bf16" else DType.FP32
    return Peak(float(chip.peak(dtype)), str(dtype), chip.name)


def device_memory(device: str) -> tuple[int, str]:
    """Return the bytes of the device that a run would use, and its name."""
    if device == "cuda":
        found = torch.cuda.get_device_properties(0)
        return found.total_memory, found.name
    if device == "mps":
        return torch.mps.recommended_max_memory(), "this machine's GPU"
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "this machine"


def check_fits(run: Run, capacity: int, device: str) -> None:
    """Raise OutOfMemoryError if a step of *run* needs more than the *capacity* bytes of *device*.

    Only the trace is made, which takes a second; no parameter is.
    """
    memory = step_memory(trace_run(run))
    need = memory.peak + (_CUDA_WORKSPACE if run.device == "cuda" else 0)
    if need > capacity:
        raise OutOfMemoryError(_too_much(run, memory, need, capacity, device))


def _too_much(run: Run, memory: StepMemory, need: int, capacity: int, device: str) -> str:
    parts = ", ".join(f"{owner} {decimal(size, 'B')}" for owner, size in memory.at_peak().items())
    advice = _advice(run)
    less = f"; less with {' or '.join(advice)}" if advice else ""
    return (
        f"out of memory before the first step: {run.model} with --batch {run.batch} and --seq {run.seq} needs "
        f"{decimal(need, 'B')}, {device} has {decimal(capacity, 'B')} ({parts}){less}"
    )


def _advice(run: Run) -> Sequence[str]:
    found = []
    if run.batch > 1:
        found.append("a smaller --batch and more --accumulate")
    if not run.checkpointing:
        found.append("--checkpointing")
    return found
