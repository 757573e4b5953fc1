"""What a training step of a parallel plan comes to: time, use of the chips, memory of a rank, communication."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simulator.graph import Workload
from simulator.hardware import Chip
from simulator.parallel.memory import RankMemory
from simulator.parallel.plan import Plan
from simulator.parallel.step import BUBBLE, Step
from simulator.system import System
from simulator.units import PS_PER_SECOND
from simulator.variants import Resource


@dataclass(frozen=True, slots=True)
class Run:
    """One step of *workload* (its batch and tokens are those of all ranks together) by *plan* on *system*.

    model_flops  of the whole step: matrix products and attention, recomputation left out.
    memory       of one rank of each stage.
    elasticity   relative change of the time for a relative change of the bandwidth of each level of the network.
    notes        what was not divided, and why.
    """

    workload: Workload
    system: System
    chip: Chip
    plan: Plan
    model_flops: int
    step: Step
    memory: Sequence[RankMemory]
    elasticity: Mapping[str, float]
    notes: Sequence[str] = ()

    @property
    def devices(self) -> int:
        """Chips that take part."""
        return self.plan.world

    @property
    def seconds(self) -> float:
        return self.step.time / PS_PER_SECOND

    @property
    def mfu(self) -> float:
        """Model FLOP over time x dense peak of the weights' type x devices."""
        peak = self.chip.peak(self.workload.dtype) * self.devices
        return self.model_flops / (self.seconds * peak) if self.seconds and peak else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Of all chips together."""
        return self.workload.tokens / self.seconds if self.seconds else 0.0

    @property
    def tokens_per_chip(self) -> float:
        """Tokens a second and chip."""
        return self.tokens_per_second / self.devices

    @property
    def fullest(self) -> int:
        """The stage whose ranks need most memory."""
        return max(range(len(self.memory)), key=lambda stage: self.memory[stage].total)

    @property
    def fits(self) -> bool:
        return not self.memory[self.fullest].excess

    @property
    def exposed_share(self) -> float:
        """Share of the step in which the slowest rank waits for communication."""
        return self.step.bounds[Resource.INTERCONNECT] / self.step.time if self.step.time else 0.0

    @property
    def bubble_share(self) -> float:
        """Share of the step in which the slowest rank waits for other stages to have work for it."""
        return self.step.bounds[BUBBLE] / self.step.time if self.step.time else 0.0
