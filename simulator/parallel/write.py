"""A run of a parallel plan as one JSON object, with keys that stay.

seconds, tokens_per_second, tokens_per_second_per_chip, mfu, model_flops
fits, memory          of the fullest stage: bytes by what they are for, and ``in_flight`` microbatches
memory_by_stage       the same for each pipeline stage
bound                 what most of the slowest rank's time goes to
bounds                seconds of it by resource, interconnect being exposed communication, and ``bubble``; they add up
exposed_seconds       exposed communication by parallelism; ``alone_seconds`` what it would take one after the other,
                      ``volume_bytes`` its payload
elasticity            relative change of the time for a relative change of each network level's bandwidth
plan, schedule, system, chip, devices, workload, version
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simulator.output import write_text
from simulator.parallel.memory import RankMemory
from simulator.parallel.result import Run
from simulator.units import PS_PER_SECOND
from simulator.version import VERSION


def write_json(run: Run, path: Path) -> None:
    """Write *run* to *path*; OutputError if that cannot be done."""
    write_text(path, json.dumps(as_dict(run), indent=1, allow_nan=False) + "\n")


def as_dict(run: Run) -> dict[str, Any]:
    """Return the object described at the top of this module."""
    step = run.step
    return {
        "version": VERSION,
        "workload": asdict(run.workload),
        "system": run.system.name,
        "chip": run.chip.name,
        "devices": run.devices,
        "plan": asdict(run.plan),
        "seconds": run.seconds,
        "tokens_per_second": run.tokens_per_second,
        "tokens_per_second_per_chip": run.tokens_per_chip,
        "mfu": run.mfu,
        "model_flops": run.model_flops,
        "fits": run.fits,
        "memory": _memory(run.memory[run.fullest]),
        "memory_by_stage": [_memory(each) for each in run.memory],
        "bound": step.bound,
        "slowest_stage": step.rank,
        "bounds": {name: ps / PS_PER_SECOND for name, ps in step.bounds.items()},
        "exposed_seconds": {name: ps / PS_PER_SECOND for name, ps in step.exposed.items()},
        "alone_seconds": {name: ps / PS_PER_SECOND for name, ps in step.alone.items()},
        "volume_bytes": dict(step.volume),
        "elasticity": {name: round(value, 4) for name, value in run.elasticity.items()},
        "notes": list(run.notes),
    }


def _memory(memory: RankMemory) -> dict[str, Any]:
    return {**asdict(memory), "total": memory.total, "excess": memory.excess}
