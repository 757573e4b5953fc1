"""What a chip does with one operator, with a verdict: the numbers behind ``xpusim op``."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hw_models.roofline import ridge_point, roofline_cost, vector_ridge_point
from simulator.costs import Cost, compute_model
from simulator.graph import MATRIX_KINDS, Operator, OperatorGraph
from simulator.hardware import Chip
from simulator.output import write_text
from simulator.units import PS_PER_SECOND, decimal, seconds
from simulator.variants import INFINITE, Resource, scaled
from simulator.verdict import operator_bounds

VERSION = 1


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """One operator alone on one chip.

    floor    its plain roofline time; *bound* the resource that binds it.
    savings  picoseconds that it would take less with each resource made infinite.
    peak     FLOP per second that its arithmetic could reach at best, *ridge* the intensity for that, in FLOP/B.
    """

    workload: str
    op: Operator
    chip: Chip
    fidelity: str
    cost: Cost
    floor: int
    bound: Resource
    savings: Mapping[Resource, int]
    peak: int
    ridge: float

    @property
    def title(self) -> str:
        return f"{self.workload} {self.op.dtype} on {self.chip.name} ({self.fidelity})"

    def lines(self) -> list[tuple[str, str]]:
        """Label and text of each line that a person reads."""
        op, cost = self.op, self.cost
        flops, nbytes = self._per_second(op.flops), self._per_second(cost.traffic)
        peak, bandwidth = self.peak, self.chip.dram_bandwidth
        parts = f"arithmetic {seconds(cost.compute)}, traffic {seconds(cost.memory)}, fixed {seconds(cost.launch)}"
        part = f", {self.floor / cost.time:.1%} of the time" if cost.time else ""
        return [
            ("time", f"{seconds(cost.time)} on the {cost.unit} unit"),
            ("arithmetic", f"{decimal(op.flops, 'FLOP')} (multiply-add = 2): {decimal(flops, 'FLOP/s')}, "
             f"{flops / peak:.1%} of the dense {op.dtype} peak of {decimal(peak, 'FLOP/s')}"),
            ("traffic", f"{decimal(cost.traffic, 'B')}: {decimal(nbytes, 'B/s')}, "
             f"{nbytes / bandwidth:.1%} of the {decimal(bandwidth, 'B/s')} of the {self.chip.dram_name}"),
            ("bound by", f"{self.bound}: {self._why()}"),
            ("made of", parts),
            ("intensity", f"{op.intensity:.4g} FLOP/B; the ridge point is {self.ridge:.4g}"),
            ("roofline", f"{seconds(self.floor)}{part}"),
            ("how", cost.detail or "-"),
        ]  # fmt: skip

    def to_json(self) -> dict[str, object]:
        """Everything, times in seconds."""
        cost = self.cost
        return {
            "version": VERSION,
            "operator": self.workload,
            "dtype": str(self.op.dtype),
            "chip": self.chip.name,
            "fidelity": self.fidelity,
            "seconds": cost.time / PS_PER_SECOND,
            "roofline_seconds": self.floor / PS_PER_SECOND,
            "compute_seconds": cost.compute / PS_PER_SECOND,
            "memory_seconds": cost.memory / PS_PER_SECOND,
            "launch_seconds": cost.launch / PS_PER_SECOND,
            "flops": self.op.flops,
            "bytes": self.op.nbytes,
            "traffic_bytes": cost.traffic,
            "flops_per_second": self._per_second(self.op.flops),
            "bytes_per_second": self._per_second(cost.traffic),
            "peak_flops_per_second": self.peak,
            "peak_bytes_per_second": self.chip.dram_bandwidth,
            "intensity": self.op.intensity,
            "ridge_point": self.ridge,
            "bound": str(self.bound),
            "savings_seconds": {str(resource): saved / PS_PER_SECOND for resource, saved in self.savings.items()},
            "unit": str(cost.unit),
            "detail": cost.detail,
        }

    def save_json(self, path: str) -> None:
        """Write `to_json` to *path*; OutputError if that cannot be done."""
        write_text(Path(path), json.dumps(self.to_json(), indent=2) + "\n")

    def _per_second(self, amount: int) -> float:
        return amount / self.cost.time * PS_PER_SECOND if self.cost.time else 0.0

    def _why(self) -> str:
        saved = self.savings[self.bound]
        if not saved:
            return "no resource alone would make it faster"
        what = "no launch latency" if self.bound is Resource.LAUNCH else f"infinite {self.bound}"
        return f"with {what} it would take {seconds(self.cost.time - saved)}"


def operator_report(graph: OperatorGraph, chip: Chip, fidelity: str = "tile") -> OperatorReport:
    """Cost the one operator of *graph* on *chip*, alone and after its host has submitted it."""
    (op,) = graph
    costs = compute_model(fidelity, chip).costs(graph)
    without = {r: compute_model(fidelity, scaled(chip, r, INFINITE)).costs(graph) for r in Resource}
    matrix = op.kind in MATRIX_KINDS
    return OperatorReport(
        workload=graph.workload.name,
        op=op,
        chip=chip,
        fidelity=fidelity,
        cost=costs[0],
        floor=roofline_cost(chip, op).time,
        bound=operator_bounds(costs, without)[0],
        savings={resource: max(0, costs[0].time - other[0].time) for resource, other in without.items()},
        peak=chip.peak(op.dtype) if matrix else chip.vector_peak(op.dtype),
        ridge=(ridge_point if matrix else vector_ridge_point)(chip, op.dtype),
    )
