"""A sweep as JSON, in base units.

version          of this layout, 1
workload         name, phase, batch, tokens, context, dtype
chip, cores, arrays_per_core, clock_hz    of the base chip
threshold        part of the time below which a step is not worth taking
axes             array_sizes [rows, columns], sram_bytes (of each core), bandwidths_bytes_per_second, dataflows
without_fold     points left out because the scratchpad cannot hold one fold of the array
recommendation   the sizes, what they give, and for each axis what a step does and why
by_bandwidth     the same sizes for each bandwidth
points           all points: sizes, seconds, seconds_by (adds up to seconds), utilisation and cells_busy from 0 to 1,
                 flops, peak_flops_per_second, dram_bytes, least_dram_bytes, dram_bytes_per_second, bound
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hw_models.array_model import Choice, Point, Recommendation, Sweep
from simulator.units import PS_PER_SECOND
from workloads.accelerator.words import reason, resource


def as_data(sweep: Sweep, best: Recommendation, every: Sequence[Recommendation]) -> dict[str, Any]:
    """Return everything about *sweep*; the keys are stable."""
    program, axes = sweep.program, sweep.axes
    array = program.chip.matrix.array
    assert array is not None  # a Program has one
    return {
        "version": 1,
        "workload": asdict(program.graph.workload),
        "chip": program.chip.name,
        "cores": program.chip.cores,
        "arrays_per_core": array.count,
        "clock_hz": program.chip.matrix.clock,
        "threshold": best.threshold,
        "axes": {
            "array_sizes": [[size.rows, size.columns] for size in axes.sizes],
            "sram_bytes": list(axes.srams),
            "bandwidths_bytes_per_second": list(axes.bandwidths),
            "dataflows": [str(each) for each in axes.dataflows],
        },
        "without_fold": sweep.without_fold,
        "recommendation": recommendation(best, sweep),
        "by_bandwidth": [_row(each.point) | {"next_bandwidth_saves": _saves(each)} for each in every],
        "points": [_row(point) for point in sweep.points],
    }


def recommendation(found: Recommendation, sweep: Sweep) -> dict[str, Any]:
    """Return one recommendation: its point, and each axis with its reason."""
    axes = {str(each.axis).lower(): _choice(each, found, sweep) for each in found.choices}
    return _row(found.point) | {"next_bandwidth_saves": _saves(found), "axes": axes}


def dumps(data: Mapping[str, Any]) -> str:
    """Return *data* as JSON text, the points one a line."""
    text = json.dumps({**data, "points": []}, indent=1)
    lines = ",\n".join("  " + json.dumps(point) for point in data["points"])
    return text.replace('"points": []', f'"points": [\n{lines}\n ]') + "\n"


def _choice(choice: Choice, found: Recommendation, sweep: Sweep) -> dict[str, Any]:
    return {
        "gain_of_a_step": _short(choice.gain),
        "loss_of_a_step_back": None if choice.loss is None else _short(choice.loss),
        "step_was_swept": choice.swept,
        "reason": reason(choice, found, sweep.program),
    }


def _saves(found: Recommendation) -> float | None:
    return None if found.following is None else _short(1 - found.following)


def _row(point: Point) -> dict[str, Any]:
    return {
        "rows": point.size.rows,
        "columns": point.size.columns,
        "dataflow": str(point.dataflow),
        "sram_bytes": point.sram,
        "bandwidth_bytes_per_second": point.bandwidth,
        "seconds": point.seconds,
        "utilisation": _short(point.utilisation),
        "cells_busy": _short(point.cells_busy),
        "dram_bytes": point.traffic,
        "least_dram_bytes": point.least,
        "dram_bytes_per_second": round(point.achieved),
        "flops": point.flops,
        "peak_flops_per_second": point.peak,
        "bound": str(resource(point)),
        "seconds_by": {str(each): part / PS_PER_SECOND for each, part in point.shares.items()},
    }


def _short(part: float) -> float:
    return round(part, 6)
