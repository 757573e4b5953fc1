"""The roofline of any traced program, of which no closed form is known."""

from dataclasses import dataclass

from simulator.dtypes import DType
from simulator.graph import OperatorGraph, OpKind
from simulator.hardware import Chip
from workloads.roofline.machine import Machine, machine


@dataclass(frozen=True, slots=True)
class Traced:
    """One run of a graph.

    flops    of matrix products and attention.
    least    bytes if everything that is there before the run is read once and what lives in between stays on the chip.
    unfused  bytes if every operator fetches its inputs and writes its outputs.
    """

    name: str
    machine: Machine
    dtype: DType
    flops: int
    least: int
    unfused: int

    @property
    def intensity(self) -> float:
        """FLOP per byte of the least traffic."""
        return self.flops / self.least if self.least else 0.0

    @property
    def bound(self) -> str:
        return "compute" if self.intensity >= self.machine.ridge else "bandwidth"

    @property
    def seconds(self) -> float:
        """The floor: peak and bandwidth of the data sheet, fully overlapped."""
        return self.machine.seconds(self.flops, self.least)

    @property
    def unfused_seconds(self) -> float:
        return self.machine.seconds(self.flops, self.unfused)


def analyse_graph(graph: OperatorGraph, chip: Chip, count: int = 1) -> Traced:
    """Return what the roofline says about one run of *graph* on *count* of *chip*."""
    dtype = graph.workload.dtype
    return Traced(
        name=graph.workload.name,
        machine=machine(chip, dtype, count),
        dtype=dtype,
        flops=graph.model_flops,
        least=_least(graph),
        unfused=sum(op.nbytes for op in graph),
    )


def _least(graph: OperatorGraph) -> int:
    """Resident storages that an operator computes with (a look-up in a table is no pass over it), and the outputs."""
    used = {tensor.storage for op in graph if op.kind is not OpKind.MOVE for tensor in op.inputs}
    resident = {storage.id for storage in graph.storages if storage.role.resident} & used
    return sum(graph.storages[id].nbytes for id in resident | graph.outputs)
