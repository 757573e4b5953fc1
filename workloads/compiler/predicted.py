"""What the simulator says of the kernels that ``device_run`` measured: kernel by kernel, and as the one of the rule."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from frontends import trace
from simulator.costs import compute_model
from simulator.errors import SpecError
from simulator.graph import OperatorGraph
from simulator.hardware import Chip
from simulator.passes.prices import Prices
from simulator.units import PS_PER_SECOND
from workloads.compiler.fusion.examples import Modulated, SwiGLU
from workloads.compiler.fusion.rule import chains

DATA = Path(__file__).parents[2] / "docs" / "data" / "lab09_h200.json"
_MODULES = {each.__name__: each for each in (SwiGLU, Modulated)}
_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_US = 1e6


@dataclass(frozen=True, slots=True)
class Compared:
    """One measured shape; microseconds of PyTorch's kernels one by one and of the fused one, as *measured* and not."""

    name: str
    measured: Mapping[str, Any]
    apart: float
    fused: float

    @property
    def gain(self) -> tuple[float, float]:
        """How many times faster the fused kernel is: predicted, measured."""
        return self.apart / self.fused, self.measured["eager_us"] / self.measured["triton_us"]


def compared(chip: Chip, path: Path = DATA) -> list[Compared]:
    """Return every row of the file at *path* with predictions for *chip*; SpecError if it is no such file."""
    try:
        rows = json.loads(path.read_text())["rows"]
    except (OSError, ValueError, KeyError, TypeError):
        raise SpecError(f"{path} is not a file of 'python -m workloads.compiler device-run'") from None
    return [_compared(chip, row) for row in rows]


def _compared(chip: Chip, row: Mapping[str, Any]) -> Compared:
    made = torch.empty(row["shape"], dtype=_TYPES[row["dtype"]], device="meta")
    others = made if row["module"] == "SwiGLU" else made[0]
    graph = trace(_MODULES[row["module"]](), [made, others.clone(), others.clone()], dtype=row["dtype"])
    fused = chains(graph, Prices(compute_model("tile", chip)))
    name = f"{row['module']} {row['dtype']} {row['shape'][0]:,} x {row['shape'][1]:,}"
    return Compared(name, row, *(_us(each, chip) for each in (graph, fused)))


def _us(graph: OperatorGraph, chip: Chip) -> float:
    """Microseconds of the kernels one after the other, as in a captured graph that is replayed."""
    costs = compute_model("tile", chip).costs(graph)
    return (sum(each.time for each in costs) + len(costs) * chip.overheads.gap) / PS_PER_SECOND * _US
