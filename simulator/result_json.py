"""A result as one JSON object, with keys that stay.

seconds              time of the run, spill included
peak_memory_bytes    most bytes in use at once; ``capacity`` holds the device's size, ``fits`` and ``overflow_bytes``
energy_joules        of the run, idle power included; ``average_watts``; both null if the chip's energies are not known
clock_hertz          mean clock of the cores; below the full one where the power cap holds it down
bound                the verdict: compute, bandwidth, launch, capacity or interconnect
bounds               seconds by binding resource along the critical path; they add up to ``seconds``
savings_seconds      time saved if the resource were infinite; ``level_savings_seconds`` for the bandwidth of one memory
                     level alone; ``elasticity`` relative change for a relative change
tokens_per_second, mfu, bandwidth_use, model_flops, traffic_bytes
operators            one object each: id, name, module, target, kind, phase, unit, start_seconds, seconds, bound, level
                     (of memory, where bandwidth binds), flops, reads, writes, traffic_bytes, energy_joules (above
                     idle), dtype, dims, detail
waiting_seconds      in which no operator runs: gaps, waits for the host, spill; with the modules it adds up to
                     ``seconds`` on a chip that runs one operator at a time
modules              one object each: module, operators, seconds, flops, traffic_bytes, bound, bounds
uncovered            operators without a rule and how often they ran; ``uncovered_share`` their share of the bytes
memory               bytes by role at the peak
memory_largest       the twenty largest storages alive then: name, role, bytes
passes               in compile mode one object for each pass: name, kernels_before and _after, bytes_before and _after,
                     seconds_before and _after, bound_before and _after, made and gone (what, count); else empty
version, chip, mode, fidelity, workload
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simulator.output import write_text
from simulator.passes.reports import as_rows
from simulator.result import ModuleResult, OperatorResult, Result
from simulator.units import AJ_PER_JOULE, PS_PER_SECOND
from simulator.version import VERSION


def write_result(result: Result, path: Path) -> None:
    """Write *result* to *path*; OutputError if that cannot be done."""
    write_text(path, json.dumps(as_dict(result), indent=1) + "\n")


def as_dict(result: Result) -> dict[str, Any]:
    """Return the object described at the top of this module."""
    return {
        "version": VERSION,
        "workload": asdict(result.graph.workload),
        "chip": result.chip.name,
        "mode": result.mode,
        "fidelity": result.fidelity,
        "seconds": result.seconds,
        "tokens_per_second": result.tokens_per_second,
        "mfu": result.mfu,
        "bandwidth_use": result.bandwidth_use,
        "model_flops": result.graph.model_flops,
        "traffic_bytes": result.traffic,
        "energy_joules": result.energy_joules,
        "average_watts": result.average_watts,
        "clock_hertz": result.clock_hertz,
        "bound": result.bound,
        "bounds": result.bounds,
        "savings_seconds": {str(key): ps / PS_PER_SECOND for key, ps in result.savings.items()},
        "level_savings_seconds": {key: ps / PS_PER_SECOND for key, ps in result.level_savings.items()},
        "elasticity": {str(key): round(value, 4) for key, value in result.elasticity.items()},
        "peak_memory_bytes": result.peak_memory_bytes,
        "capacity": {
            "bytes": result.chip.dram.capacity,
            "fits": not result.overflow,
            "overflow_bytes": result.overflow,
            "spill_seconds": result.spill / PS_PER_SECOND,
        },
        "memory": {str(role): nbytes for role, nbytes in result.memory.at_peak().items()},
        "memory_largest": [
            {"name": each.name, "role": str(each.role), "bytes": each.nbytes} for each in result.held_at_peak()[:20]
        ],
        "uncovered": dict(result.uncovered),
        "uncovered_share": result.uncovered_share,
        "waiting_seconds": result.waiting / PS_PER_SECOND,
        "modules": [_module(each) for each in result.modules],
        "passes": as_rows(result.passes),
        "operators": [_operator(each) for each in result.operators],
    }


def _module(each: ModuleResult) -> dict[str, Any]:
    return {
        "module": each.module,
        "operators": each.operators,
        "seconds": each.seconds,
        "flops": each.flops,
        "traffic_bytes": each.traffic,
        "bound": each.bound,
        "bounds": {str(resource): ps / PS_PER_SECOND for resource, ps in each.bounds.items()},
    }


def _operator(each: OperatorResult) -> dict[str, Any]:
    op = each.operator
    return {
        "id": op.id,
        "name": op.name,
        "module": op.module,
        "target": op.target,
        "kind": op.kind,
        "phase": op.phase,
        "unit": each.cost.unit,
        "start_seconds": each.start / PS_PER_SECOND,
        "seconds": each.seconds,
        "bound": each.bound,
        "level": each.level or None,
        "flops": op.flops,
        "reads": op.reads,
        "writes": op.writes,
        "traffic_bytes": each.cost.traffic,
        "energy_joules": None if each.energy is None else each.energy / AJ_PER_JOULE,
        "dtype": op.dtype,
        "dims": asdict(op.dims) if op.dims is not None else None,
        "detail": each.cost.detail,
    }
