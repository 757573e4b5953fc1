"""Tables of collectives: rows of ASTRA-sim by its conventions or by ours, and NCCL times of a system."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.errors import SpecError, UsageError, nearest

if TYPE_CHECKING:
    from hw_models.interconnect.astrasim import Case
    from hw_models.interconnect.measured import Measured
    from simulator.system import System

CONVENTIONS = ("astra-sim", "physical")
_ASTRA = (
    "backend", "topology", "npus", "bw_GBps", "latency_ns", "algorithm", "dataset_splits", "active_chunks",
    "endpoint_delay", "collective", "size_bytes",
)  # fmt: skip
_SHOWN = (*_ASTRA[:3], "algorithm", "collective", "size_bytes", "measured", "cycles", "error", "fault")
_WITHIN = 0.01


def table(
    path: Path, system: str | None, overrides: Sequence[str], convention: str | None, worst: int
) -> dict[str, Any]:
    """Predict every row of *path*, print, and return what ``--json`` writes."""
    from hw_models import load_system
    from hw_models.interconnect.measured import is_nccl, read_nccl, read_table

    columns, rows = read_table(path)
    if is_nccl(columns):
        if system is None:
            raise UsageError("rows of NCCL need --system, such as dgx-a100")
        if convention is not None:
            raise UsageError("--convention is for rows of ASTRA-sim")
        return nccl_table(load_system(system, overrides), read_nccl(path), str(path), worst)
    missing = [name for name in _ASTRA if name not in columns]
    if missing:
        raise SpecError(f"{path}: lacks the column {missing[0]} (it has {', '.join(columns)})")
    if system is not None or overrides:
        raise UsageError("rows of ASTRA-sim bring their own system: --system and --set do not go with them")
    return astra_table(path, rows, _convention(convention), worst)


def _convention(name: str | None) -> str:
    name = name or CONVENTIONS[0]
    if name not in CONVENTIONS:
        raise UsageError(f"unknown convention {name!r}{nearest(name, CONVENTIONS)} (known: {', '.join(CONVENTIONS)})")
    return name


def astra_table(path: Path, rows: Sequence[Mapping[str, str]], convention: str, worst: int) -> dict[str, Any]:
    """Cycles of each row of ASTRA-sim, in input order, beside what the table says."""
    from hw_models.interconnect.astrasim import cycles
    from simulator.cli.collective_print import print_rows
    from simulator.version import VERSION

    count = cycles if convention == "astra-sim" else _physical_cycles
    cases = [_case(path, line, row) for line, row in enumerate(rows, 2)]
    measured = [_measured(path, line, row.get("cycles_max", "")) for line, row in enumerate(rows, 2)]
    found = [_compared(*each, count) for each in zip(rows, cases, measured, strict=True)]
    summary = _summary(found)
    bad = sorted((row for row in found if row["error"] or row["fault"]), key=lambda row: -abs(row["error"] or 9e9))
    print_rows(f"{len(found)} rows by the {convention} convention", bad[:worst], _SHOWN, _said(summary))
    return {"version": VERSION, "convention": convention, "rows": found, "summary": summary}


def _case(path: Path, line: int, row: Mapping[str, str]) -> "Case":
    from hw_models.interconnect.astrasim import Case

    whole = {
        name: _number(path, line, name, row[name], int)
        for name in ("npus", "dataset_splits", "active_chunks", "endpoint_delay", "size_bytes")
    }
    bandwidth, latency = (_number(path, line, name, row[name], float) for name in ("bw_GBps", "latency_ns"))
    for name, value in {**whole, "bw_GBps": bandwidth, "latency_ns": latency}.items():
        free = name in ("endpoint_delay", "latency_ns")
        if value < 0 or (not value and not free):
            wanted = "must not be negative" if free else "must be greater than 0"
            raise SpecError(f"{path}, line {line}: {name} {wanted}, got {row[name]}")
    return Case(
        row["backend"], row["topology"], whole["npus"], bandwidth, latency, row["algorithm"], whole["dataset_splits"],
        whole["active_chunks"], whole["endpoint_delay"], row["collective"], whole["size_bytes"],
    )  # fmt: skip


def _compared(
    row: Mapping[str, str], case: "Case", measured: int | None, count: Callable[["Case"], int]
) -> dict[str, Any]:
    """One row of ``--json``: what the table says, cycles, error, and why there are none if so."""
    fault = case.fault()
    cycles = None if fault else count(case)
    error = cycles / measured - 1 if cycles and measured else None
    return {**row, "cycles": cycles, "measured": measured, "error": error, "fault": fault}


def _measured(path: Path, line: int, text: str) -> int | None:
    if not text:
        return None
    cycles: int = _number(path, line, "cycles_max", text, int)
    if cycles < 1:
        raise SpecError(f"{path}, line {line}: cycles_max must be greater than 0, got {text}")
    return cycles


def _number(path: Path, line: int, column: str, text: str, kind: Any) -> Any:
    try:
        value = kind(float(text)) if kind is int and float(text).is_integer() else kind(text)
    except (ValueError, OverflowError):
        raise SpecError(f"{path}, line {line}: {column} must be a number, got {text!r}") from None
    if not abs(value) < 2**60:
        raise SpecError(f"{path}, line {line}: {column} must be a number, got {text!r}")
    return value


def _physical_cycles(case: "Case") -> int:
    """Nanoseconds of our own model on the same links: decimal GB/s, cut-through, contention where links are shared."""
    from hw_models.interconnect.astrasim import TOPOLOGIES
    from hw_models.interconnect.prediction import predict
    from simulator.system import Level, System

    source = "a row of ASTRA-sim"
    level = Level(
        topology=TOPOLOGIES[case.topology],
        size=case.npus,
        bandwidth=round(case.bandwidth * 1e9),
        latency=round(case.latency * 1e3),
        source=source,
    )
    system = System(name="row", description=source, source=source, chip="-", links={"link": level})
    names = {"halvingDoubling": "halving_doubling", "doubleBinaryTree": "double_tree"}
    size = case.size * case.npus if case.collective == "all_gather" else case.size
    found = predict(system, case.collective, size, algorithm=names.get(case.algorithm, case.algorithm))
    return round(found.best.time / 1e3)


def _summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    errors = [abs(row["error"]) for row in rows if row["error"] is not None]
    return {
        "rows": len(rows),
        "compared": len(errors),
        "within_1_percent": sum(error <= _WITHIN for error in errors),
        "equal": sum(not error for error in errors),
        "not_covered": sum(row["fault"] is not None for row in rows),
        "mean_absolute_error": sum(errors) / len(errors) if errors else None,
        "worst": max(errors, default=None),
    }


def _said(summary: Mapping[str, Any]) -> list[str]:
    lines = []
    if summary["compared"]:
        lines.append(
            f"{summary['within_1_percent']} of {summary['compared']} rows within 1 %, {summary['equal']} equal to the "
            f"cycle; {summary['mean_absolute_error']:.2%} off in the mean, {summary['worst']:.1%} at worst"
        )
    if summary["not_covered"]:
        lines.append(f"{summary['not_covered']} rows not covered: see fault")
    return lines


def validate(name: str, overrides: Sequence[str], data: str | None, worst: int) -> dict[str, Any]:
    """``xpusim validate SYSTEM``: measured collectives, those of *data* or those that come with the project."""
    from hw_models import load_system
    from hw_models.interconnect.measured import PACKAGED, packaged, read_nccl

    system = load_system(name, overrides)
    path = Path(data) if data else packaged(system.name)
    if path is None:
        names = ", ".join(PACKAGED)
        raise UsageError(
            f"no measurements of {system.name} come with xpusim (there are some of: {names}); give --data CSV"
        )
    return nccl_table(system, read_nccl(path), path.name, worst)


def nccl_table(system: "System", rows: Sequence["Measured"], label: str, worst: int) -> dict[str, Any]:
    """Times of each row on *system*, in input order, beside those measured."""
    from hw_models.interconnect.measured import halves, packaged
    from simulator.cli.collective_print import print_rows
    from simulator.version import VERSION

    largest = max(rows, key=lambda row: row.ranks)
    if largest.ranks > system.chips:
        raise UsageError(f"{label} has rows of {largest.ranks} GPUs, and {system.name} has {system.chips} chips")
    ours = packaged(system.name)
    fitted = set(halves(rows)[0]) if ours is not None and Path(label).name == ours.name else set()
    found = [_nccl_row(system, row, row in fitted) for row in rows]
    regimes = _regimes(found)
    print_rows(
        f"{label}: {len(found)} collectives measured, predicted on {system.name}",
        sorted(found, key=lambda row: -abs(row["error"]))[:worst],
        ("collective", "ranks", "bytes", "algorithm", "bound", "measured_us", "us", "error"),
        [],
    )
    title = "Mean absolute error by collective and size, rows that were not fitted"
    print_rows(title, regimes, ("collective", "size", "rows", "off"), _nccl_said(found))
    return {"version": VERSION, "system": system.name, "rows": found, "regimes": regimes}


def _nccl_row(system: "System", row: "Measured", fitted: bool) -> dict[str, Any]:
    found = row.predicted(system)
    return {
        "collective": row.pattern,
        "ranks": row.ranks,
        "bytes": row.size,
        "algorithm": f"{found.best.algorithm} ({found.best.protocol})",
        "bound": found.best.bound,
        "measured_us": f"{row.time / 1e6:.1f}",
        "us": f"{found.best.time / 1e6:.1f}",
        "error": found.best.time / row.time - 1,
        "fitted": fitted,
    }


def _regimes(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Mean absolute error of rows that were not fitted, by collective and size."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        size = "up to 64 KiB" if row["bytes"] <= 2**16 else "up to 4 MiB" if row["bytes"] <= 2**22 else "above 4 MiB"
        if not row["fitted"]:
            groups.setdefault((row["collective"], size), []).append(abs(row["error"]))
    return [
        {"collective": name, "size": size, "rows": len(errors), "off": sum(errors) / len(errors)}
        for (name, size), errors in groups.items()
    ]


def _nccl_said(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for what, fitted in (("not fitted", False), ("fitted", True)):
        errors = [abs(row["error"]) for row in rows if row["fitted"] is fitted]
        if errors:
            mean = sum(errors) / len(errors)
            lines.append(f"{len(errors)} rows {what}: {mean:.1%} off in the mean, {max(errors):.0%} at worst")
    return lines
