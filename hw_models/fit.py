"""Fits the calibration of a chip to measured kernels.

    python -m hw_models.fit h200 --data hw_models/data/h200/ops.csv

Half of the rows, drawn with a fixed seed, are fitted; the other half is only predicted.  Each group of constants is
fitted on the operators that it decides, by the mean absolute logarithm of predicted over measured time, so that too
fast and too slow count alike and no row outweighs another.  The result is printed as the section of a chip file.
"""

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import differential_evolution, minimize

from hw_models.loader import load_chip
from hw_models.tile import TileModel, recalibrated
from hw_models.tile.kernels import kernel_graph
from simulator.calibration import Calibration
from simulator.dtypes import DType
from simulator.graph import OperatorGraph
from simulator.hardware import Chip
from simulator.units import PS_PER_SECOND

_US = PS_PER_SECOND // 10**6
_POPULATION = 5  # members of a generation for each constant


@dataclass(frozen=True, slots=True)
class Row:
    """One measured kernel: *graph* of its operators, *measured* microseconds; *shape* as it stands in the file."""

    op: str
    dtype: str
    shape: str
    graph: OperatorGraph
    measured: float


@dataclass(frozen=True, slots=True)
class Group:
    """Constants fitted together on the rows of *ops*: paths into Calibration with the range that makes sense."""

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
        "launch": (1, 6),
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
    "conversions": Group(("cast_fp32",), {"vector.converted": (0.5, 4), "vector.converting": (0, 4000)}),
    "norm": _row_group("layernorm", "norm"),
    "rms_norm": _row_group("rmsnorm", "rms_norm"),
    "softmax": Group(("softmax", "cross_entropy"), _SOFTMAX),
    "reduction": Group(("sum",), _row_group("sum", "reduction").bounds | {"vector.reduction.span": (4000, 12000)}),
    "unaligned rows": Group(("layernorm", "rmsnorm"), {"vector.unaligned": (1, 8)}),
    "matmul": Group(
        ("gemm", "bmm"),
        {
            "matmul.launch": (1, 3.5),
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


def read_rows(path: Path, op: str | None = None) -> list[Row]:
    """The rows of *path* that some group can use, all taken for *op* if it is given; unknown operators are left out."""
    rows = []
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            name = op or line["op"]
            graph = kernel_graph(name, DType(line["dtype"]), json.loads(line["shape"]))
            if graph is not None and len(graph):
                rows.append(Row(name, line["dtype"], line["shape"], graph, float(line["us"])))
    return rows


def errors(chip: Chip, rows: Sequence[Row]) -> NDArray[np.float64]:
    """Logarithm of predicted over measured time for each of *rows*."""
    model = TileModel(chip)
    predicted = [sum(cost.time for cost in model.costs(row.graph)) / _US for row in rows]
    return np.array([log(max(1e-9, p) / row.measured) for p, row in zip(predicted, rows, strict=True)])


def value(calibration: Any, path: str) -> float:
    """The constant at *path*, such as ``matmul.launch``; 0 if there is none."""
    for part in path.split("."):
        calibration = calibration.get(part, 0.0) if isinstance(calibration, dict) else getattr(calibration, part)
    return float(calibration)


def changed(section: Any, path: str, number: float) -> Any:
    """*section* with the constant at *path* set to *number*."""
    head, _, rest = path.partition(".")
    if isinstance(section, dict):
        return {**section, head: number}
    return replace(section, **{head: changed(getattr(section, head), rest, number) if rest else number})


def fit(chip: Chip, rows: Sequence[Row], bounds: dict[str, tuple[float, float]], evaluations: int, seed: int) -> Chip:
    """*chip* with the constants of *bounds* fitted to *rows*."""
    paths = list(bounds)
    low, high = (np.log([pair[end] for pair in bounds.values()]) for end in (0, 1))
    start = chip.calibration or Calibration()

    def chip_at(x: NDArray[np.float64]) -> Chip:
        calibration = start
        for path, number in zip(paths, np.clip(x, low, high), strict=True):
            calibration = changed(calibration, path, exp(number))
        return recalibrated(chip, calibration)

    def loss(x: NDArray[np.float64]) -> float:
        return float(np.abs(errors(chip_at(x), rows)).mean())

    box = list(zip(low, high, strict=True))
    rounds = max(1, evaluations // (_POPULATION * len(paths)) - 1)
    wide = differential_evolution(loss, box, maxiter=rounds, popsize=_POPULATION, rng=seed, init="sobol", polish=False)
    fine = {"maxfev": max(20, evaluations // 5), "adaptive": True}
    return chip_at(minimize(loss, wide.x, method="Nelder-Mead", options=fine).x)


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
    """Mean absolute percentage error, as a fraction."""
    return float(np.abs(np.exp(errors(chip, rows)) - 1).mean()) if rows else 0.0


def section(calibration: Any, indent: int = 2) -> str:
    """*calibration* as the lines of a chip file."""
    lines = []
    for item in fields(calibration):
        found = getattr(calibration, item.name)
        if is_dataclass(found):
            lines.append(f"{' ' * indent}{item.name}:\n{section(found, indent + 2)}")
        elif isinstance(found, dict):
            body = ", ".join(f"{key}: {number:.4g}" for key, number in found.items())
            lines.append(f"{' ' * indent}{item.name}: {{{body}}}")
        elif item.name != "source":
            lines.append(f"{' ' * indent}{item.name}: {found:.4g}")
    return "\n".join(lines)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m hw_models.fit", description="fit a chip's calibration")
    parser.add_argument("chip")
    parser.add_argument("--data", type=Path, required=True, help="kernel times, as data/h200/ops.csv")
    parser.add_argument("--attention", type=Path, help="sdpa rows of the kernel that the framework takes by itself")
    parser.add_argument("--groups", nargs="*", default=list(GROUPS), choices=list(GROUPS), metavar="GROUP")
    parser.add_argument("--evaluations", type=int, default=2000, help="of the model, for each group")
    parser.add_argument("--seed", type=int, default=0, help="of the split and of the search")
    parser.add_argument("--all", action="store_true", help="fit on all rows, for the constants of a chip file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, print the errors on both halves and the section of the chip file."""
    args = _arguments(arguments)
    chip = load_chip(args.chip)
    rows = read_rows(args.data) + (read_rows(args.attention, "attention") if args.attention else [])
    train, test = (rows, []) if args.all else split(rows, args.seed)
    for name in args.groups:
        group = GROUPS[name]
        mine = [row for row in train if row.op in group.ops]
        others = [row for row in test if row.op in group.ops]
        if not mine:
            continue
        chip = fit(chip, mine, group.bounds, args.evaluations, args.seed)
        _say(_errors(name, chip, mine, others))
    _say(_errors("all", chip, train, test))
    _say("calibration:\n" + section(chip.calibration))
    return 0


def _errors(name: str, chip: Chip, fitted: Sequence[Row], test: Sequence[Row]) -> str:
    text = f"{name:15} fitted {len(fitted):4} rows {mape(chip, fitted):6.1%}"
    return f"{text}   test {len(test):4} rows {mape(chip, test):6.1%}" if test else text


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
