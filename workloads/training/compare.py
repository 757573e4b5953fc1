"""Predictions beside what was measured on a device: step time, utilisation, memory."""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from simulator.errors import UsageError
from simulator.hardware import Chip
from workloads.training.config import Run
from workloads.training.forecast import Forecast, forecast

TARGETS = {"memory": 0.03, "step time": 0.08}  # largest mean error that the lab asks for
_HOST_BOUND = 0.8  # busy for less of the time than this, the device waits for the host

# What is compared: name -> (group, unit, how many units a measured number has, its prediction in base units).
_POINTS: dict[str, tuple[str, float, Callable[[Forecast], float]]] = {
    "step_ms": ("step time", 1e3, lambda found: found.step_seconds),
    "peak_bytes": ("memory", 1, lambda found: found.peak_bytes),
    "resident_bytes": ("memory", 1, lambda found: found.resident_bytes),
    "after_forward_bytes": ("memory", 1, lambda found: found.after("forward")),
    "after_loss_bytes": ("memory", 1, lambda found: found.after("loss")),
    "after_backward_bytes": ("memory", 1, lambda found: found.after("backward")),
}


@dataclass(frozen=True, slots=True)
class Point:
    """One quantity of one configuration, in the unit that its *name* says."""

    name: str
    group: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True)
class Compared:
    """One configuration.

    busy         milliseconds that the device worked in one step, as its profiler saw; *busy_predicted* the same.
    host_bound   whether the device waited for the host for a fifth of the measured time or more.
    mfu          measured; *mfu_predicted* in the same convention and with the same peak.
    """

    name: str
    found: Forecast
    points: Sequence[Point]
    busy: float
    mfu: float

    @property
    def busy_predicted(self) -> float:
        return self.found.busy_seconds * 1e3

    @property
    def mfu_predicted(self) -> float:
        return self.mfu / (1 + self.point("step_ms").error)

    @property
    def host_bound(self) -> bool:
        return self.busy < _HOST_BOUND * self.point("step_ms").measured

    def point(self, name: str) -> Point:
        return next(each for each in self.points if each.name == name)


def compare(measured: Mapping[str, Any], chip: Chip) -> list[Compared]:
    """Predict every configuration of a file that `device_run` wrote."""
    return [_compared(name, facts, chip) for name, facts in measured["configurations"].items() if "run" in facts]


def _compared(name: str, facts: Mapping[str, Any], chip: Chip) -> Compared:
    found = forecast(Run(**facts["run"]), chip)
    points = [
        Point(point, group, float(facts[point]), scale * predict(found))
        for point, (group, scale, predict) in _POINTS.items()
    ]
    busy = sum(microseconds for _, _, microseconds in facts["kernels"]) / 1e3
    return Compared(name, found, points, busy, facts["mfu"])


def mean_errors(rows: Sequence[Compared]) -> dict[str, float]:
    """Return the mean absolute error by quantity, by group, and of the step time where the host does not decide."""
    errors = {name: _mean(row.point(name) for row in rows) for name in _POINTS}
    for group in TARGETS:
        errors[group] = _mean(point for row in rows for point in row.points if point.group == group)
    busy = [row for row in rows if not row.host_bound]
    errors["step time, host not in the way"] = _mean(row.point("step_ms") for row in busy)
    errors["device busy"] = statistics.fmean(abs(row.busy_predicted / row.busy - 1) for row in rows)
    return errors


def _mean(points: Any) -> float:
    found = [abs(point.error) for point in points]
    return statistics.fmean(found) if found else float("nan")


def read_measured(path: Path) -> dict[str, Any]:
    """Read a file that `device_run` wrote; UsageError says what is wrong with it."""
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: no JSON ({error})") from None
    if not isinstance(content, dict) or not isinstance(content.get("configurations"), dict):
        raise UsageError(f"{path}: no measurements of this lab (it has no object 'configurations')")
    known = {each.name for each in fields(Run)}
    for name, facts in content["configurations"].items():
        unknown = set(facts.get("run", {})) - known
        missing = [each for each in (*_POINTS, "kernels", "mfu") if each not in facts]
        if "run" in facts and (unknown or missing):
            fault = f"unknown field {min(unknown)!r} of a run" if unknown else f"no {missing[0]}"
            raise UsageError(f"{path}: configuration {name!r}: {fault}")
    return content


def as_json(rows: Sequence[Compared]) -> dict[str, Any]:
    """Return every point, the means and the targets."""
    return {
        "mean_absolute_errors": mean_errors(rows),
        "targets": TARGETS,
        "configurations": {
            row.name: {
                "host_bound": row.host_bound,
                "busy_ms": {"measured": row.busy, "predicted": row.busy_predicted},
                "mfu": {"measured": row.mfu, "predicted": row.mfu_predicted},
                **{
                    point.name: {"measured": point.measured, "predicted": point.predicted, "error": point.error}
                    for point in row.points
                },
            }
            for row in rows
        },
    }
