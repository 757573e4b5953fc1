"""Fits the calibration of a chip to measured kernels; ``xpusim fit`` is its command.

Each group of constants is fitted on the operators that it decides, by the mean absolute logarithm of predicted over
measured time, so that too fast and too slow count alike and no row outweighs another.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import reduce
from math import exp, log
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import differential_evolution, minimize

from hw_models.tile import TileModel, recalibrated
from hw_models.tile.machine import machine
from simulator.costs import ComputeModel
from simulator.graph import OperatorGraph
from simulator.hardware import Chip
from simulator.variants import INFINITE, Resource, scaled

_POPULATION = 5  # members of a generation for each constant


@dataclass(frozen=True, slots=True)
class Row:
    """One measured kernel: what it is called, the *graph* of its operators, and *measured* picoseconds.

    group  what its error is counted under, such as ``gemm bf16``.
    """

    op: str
    graph: OperatorGraph
    measured: float
    group: str


@dataclass(frozen=True, slots=True)
class Group:
    """Constants fitted together on the rows of *ops*: paths into Calibration with the range that makes sense.

    Ranges start above 0: they are searched on a logarithmic scale.
    """

    ops: tuple[str, ...]
    bounds: dict[str, tuple[float, float]]


def _row_group(op: str, section: str) -> Group:
    ranges = {
        "passes": (1, 4),
        "latency": (500, 8000),
        "element_latency": (0.05, 3.5),
        "cycles": (0.02, 1),
        "row_cycles": (80, 300),
    }
    return Group((op,), {f"vector.{section}.{name}": pair for name, pair in ranges.items()})


_SOFTMAX = _row_group("softmax", "softmax").bounds | {
    "vector.softmax.element_latency": (0.3, 0.5),  # otherwise hidden by the throughput of many rows
    "vector.softmax.row_cycles": (10, 300),
    "vector.softmax.held_cycles": (0.3, 1.5),
}


def _attention_group(op: str, section: str) -> Group:
    ranges = {
        "launch": (1, 8),
        "efficiency": (0.2, 1),
        "exponentials": (5, 60),
        "alone": (1, 2),
        "tail": (0.05, 1),
        "block_cycles": (10, 20000),
        "stream": (2, 30),
        "split_stream": (2, 30),
        "split": (0.1, 8),
        "part_cycles": (1, 1000),
    }
    return Group((op,), {f"{section}.{name}": pair for name, pair in ranges.items()})


GROUPS = {
    "vector": Group(
        ("copy", "add", "mul_scalar", "embedding", "transpose", "gelu", "silu"),
        {
            "dram": (0.7, 0.95),
            "vector.launch": (0.4, 1.5),
            "vector.first_byte": (50, 3000),
            "vector.strided": (0.05, 0.5),
        },
    ),
    "conversions": Group(("cast_fp32",), {"vector.converted": (0.5, 4), "vector.converting": (1, 4000)}),
    "norm": _row_group("layernorm", "norm"),
    "rms_norm": _row_group("rmsnorm", "rms_norm"),
    "softmax": Group(("softmax", "cross_entropy"), _SOFTMAX),
    "reduction": Group(("sum",), _row_group("sum", "reduction").bounds | {"vector.reduction.span": (4000, 12000)}),
    "unaligned rows": Group(("layernorm", "rmsnorm"), {"vector.unaligned": (1, 8)}),
    "matmul": Group(
        ("gemm", "bmm"),
        {
            "matmul.launch": (1, 8),
            "matmul.efficiency": (0.85, 1),
            "matmul.step_cycles": (20, 600),
            "matmul.stream": (15, 120),
            "matmul.overlap": (1.2, 12),
            "matmul.split": (0.05, 2.5),
            "matmul.multicast": (1.5, 4),
            "matmul.store": (0.5, 1),
            "matmul.unaligned": (2, 20),
            "matmul.vector": (0.4, 1),
            "power.exponent": (0.2, 1),
        },
    ),
    "flash": _attention_group("sdpa", "flash"),
    "attention": _attention_group("attention", "attention"),
}


def relative_errors(model: ComputeModel, rows: Sequence[Row]) -> NDArray[np.float64]:
    """Predicted over measured time, less one, for each of *rows*."""
    times = [sum(cost.time for cost in model.costs(row.graph)) for row in rows]
    return np.array([time / row.measured - 1 for time, row in zip(times, rows, strict=True)], dtype=np.float64)


def errors(chip: Chip, rows: Sequence[Row]) -> NDArray[np.float64]:
    """Logarithm of predicted over measured time for each of *rows*."""
    return np.array([log(max(1e-9, each + 1)) for each in relative_errors(TileModel(chip), rows)])


def regimes(chip: Chip, rows: Sequence[Row]) -> list[str]:
    """The resource that binds each of *rows*: the one that, made infinite, saves most."""
    resources = (Resource.COMPUTE, Resource.BANDWIDTH, Resource.LAUNCH, Resource.CAPACITY)
    models = [TileModel(scaled(chip, each, INFINITE)) for each in resources]
    times = [[sum(cost.time for cost in model.costs(row.graph)) for model in models] for row in rows]
    return [str(resources[np.argmin(each)]) for each in times]


def value(calibration: Any, path: str) -> float:
    """The constant at *path*, such as ``matmul.launch``."""
    return float(reduce(getattr, path.split("."), calibration))


def changed(section: Any, path: str, number: float) -> Any:
    """*section* with the constant at *path* set to *number*."""
    head, _, rest = path.partition(".")
    return replace(section, **{head: changed(getattr(section, head), rest, number) if rest else number})


def fit(chip: Chip, rows: Sequence[Row], bounds: dict[str, tuple[float, float]], evaluations: int, seed: int) -> Chip:
    """*chip* with the constants of *bounds* fitted to *rows*; never further off on them than *chip* itself.

    evaluations  how often the rows are predicted, about: a wide search (differential evolution), then a fine one.
    """
    paths = list(bounds)
    low, high = (np.log([pair[end] for pair in bounds.values()]) for end in (0, 1))
    start = machine(chip).calibration

    def chip_at(x: NDArray[np.float64]) -> Chip:
        calibration = start
        for path, number in zip(paths, np.clip(x, low, high), strict=True):
            calibration = changed(calibration, path, exp(number))
        return recalibrated(chip, calibration)

    def loss(x: NDArray[np.float64]) -> float:
        return float(np.abs(errors(chip_at(x), rows)).mean())

    box = list(zip(low, high, strict=True))
    rounds = max(1, evaluations // (_POPULATION * len(paths)) - 1)
    inside = 1e-9 * (high - low)  # scipy takes no start on the border
    here = np.clip(np.log([max(value(start, path), 1e-12) for path in paths]), low + inside, high - inside)
    wide = differential_evolution(
        loss, box, maxiter=rounds, popsize=_POPULATION, rng=seed, init="sobol", polish=False, x0=here
    )
    fine = {"maxfev": max(20, evaluations // 5), "adaptive": True}
    best = chip_at(minimize(loss, wide.x, method="Nelder-Mead", options=fine).x)
    return best if np.abs(errors(best, rows)).mean() < np.abs(errors(chip, rows)).mean() else chip


def split(rows: Sequence[Row], seed: int) -> tuple[list[Row], list[Row]]:
    """Half of *rows* to fit and half to test, drawn with *seed* within each operator."""
    rng = np.random.default_rng(seed)
    train, test = [], []
    for op in dict.fromkeys(row.op for row in rows):
        mine = [row for row in rows if row.op == op]
        order = rng.permutation(len(mine))
        half = (len(mine) + 1) // 2
        train += [mine[i] for i in order[:half]]
        test += [mine[i] for i in order[half:]]
    return train, test


def mape(chip: Chip, rows: Sequence[Row]) -> float:
    """Mean absolute error of the predicted time, as a fraction of the measured one; *rows* must not be empty."""
    return float(np.abs(relative_errors(TileModel(chip), rows)).mean())


def section(calibration: Any, indent: int = 2) -> str:
    """*calibration* as the lines of a chip file."""
    lines = []
    for item in fields(calibration):
        found = getattr(calibration, item.name)
        if is_dataclass(found):
            lines.append(f"{' ' * indent}{item.name}:\n{section(found, indent + 2)}")
        elif item.name != "source":
            lines.append(f"{' ' * indent}{item.name}: {found:.4g}")
    return "\n".join(lines)
