"""The engine beside its simulation in tables: errors by model and kind of step, every step of a model, replays."""

from collections.abc import Mapping, Sequence

from simulator.hardware import Chip
from workloads.inference.compare import MODELS, PARTS, SCHEMES, Facts, Row, mape, of, rows
from workloads.inference.replay import Replay, replay
from workloads.lab import LabTable

_WEIGHTS = {"none": "bf16"}  # what a scheme is called in a table


def tables(facts: Facts, chip: Chip) -> dict[str, LabTable]:
    """Every table by the name that docs/lab06.md gives it."""
    found = rows(facts, chip)
    served = {name: part for name, part in facts.items() if name.startswith("served ") and "steps" in part}
    shown = {"errors": errors(found), "linear": linear(facts)}
    shown |= {f"decode {model}": decode(found, model) for model in MODELS if of(found, model, "none", "decode")}
    shown |= {f"prompts {model}": prompts(found, model) for model in MODELS if of(found, model, "none", "prefill")}
    return shown | {"served": replays(served, chip)} if served else shown


def errors(found: Sequence[Row]) -> LabTable:
    """Mean absolute error of each kind of step."""
    lines = []
    for scheme in SCHEMES:
        for model in MODELS:
            parts = [of(found, model, scheme, part) for part in PARTS]
            if all(parts):
                lines.append([model, _WEIGHTS.get(scheme, scheme), *(f"{mape(part):.1%}" for part in parts)])
    for scheme in SCHEMES:
        parts = [[row for row in found if (row.scheme, row.part) == (scheme, part)] for part in PARTS]
        if all(parts):
            lines.append(["all", _WEIGHTS.get(scheme, scheme), *(f"{mape(part):.1%}" for part in parts)])
    note = (
        "Captured graphs, measured against simulated. Decode: 9 batches x 2 contexts; prefill: 7 prompts; paged: the "
        "same with keys read from the cache; mixed: 512 positions of a prompt beside 0, 16 or 64 decodes. No step was "
        "used to fit a constant."
    )
    return LabTable("Mean absolute error", ("model", "weights", *(f">{part}" for part in PARTS)), lines, note)


def _cells(row: Row) -> list[str]:
    return [f"{row.measured / 1000:,.3f}", f"{row.simulated / 1000:,.3f}", f"{row.error:+.1%}"]


def _columns(schemes: Sequence[str]) -> list[str]:
    names = [_WEIGHTS.get(scheme, scheme) for scheme in schemes]
    return [each for name in names for each in (f">{name}, ms", ">simul.", ">error")]


def decode(found: Sequence[Row], model: str) -> LabTable:
    """Every decode step of *model*, measured and simulated."""
    schemes = [scheme for scheme in SCHEMES if of(found, model, scheme, "decode")]
    lines = []
    for row in of(found, model, "none", "decode"):
        same = [
            next(
                each
                for each in of(found, model, scheme, "decode")
                if (each.decodes, each.context) == (row.decodes, row.context)
            )
            for scheme in schemes
        ]
        lines.append([f"{row.decodes}", f"{row.context:,}", *(cell for each in same for cell in _cells(each))])
    return LabTable(f"Decode of {model}", (">batch", ">context", *_columns(schemes)), lines)


def prompts(found: Sequence[Row], model: str) -> LabTable:
    """Every step of *model* in bf16 that has a prompt in it."""
    lines = []
    for part in PARTS[1:]:
        for row in of(found, model, "none", part):
            beside = f"{row.decodes} x {row.context:,}" if row.decodes else ""
            lines.append([part, f"{row.chunk:,}", f"{row.start:,}" if row.start else "", beside, *_cells(row)])
    columns = ("step", ">new positions", ">after", ">decodes beside", *_columns(("none",)))
    return LabTable(f"Prompts of {model}", columns, lines)


def linear(facts: Facts) -> LabTable:
    """Measured products of llama-8b: packed weights beside torch's bf16."""
    lines = []
    for each in facts["linear"]:
        if each["product"] in ("up", "head") and "bf16_us" in each:
            dense = each["bf16_us"]
            cells = [f"{each[key]:,.1f} ({dense / each[key]:.2f}x)" if each[key] else "" for key in ("w8_us", "w4_us")]
            lines.append([each["product"], f"{each['rows']:,}", f"{dense:,.1f}", *cells])
    note = "In brackets: times as fast as bf16. up: 28,672 x 4,096; head: 128,256 x 4,096; operands from memory."
    return LabTable("Products as measured, us", ("product", ">rows", ">bf16", ">w8", ">w4"), lines, note)


def replays(served: Mapping[str, Facts], chip: Chip) -> LabTable:
    """The served schedules, played again by the same scheduler."""
    names = {name: name.split()[1:3] for name in served}  # served llama-8b none
    found = [replay(model, scheme, served[name], chip) for name, (model, scheme) in names.items()]
    note = (
        "Same: steps whose slices are those of the device's. Captured: decode steps as graphs; their measured time "
        "has the copies in it that Python launches to fill a graph's places. Launched: steps with a prompt, whose "
        "kernels Python launches one by one; medians."
    )
    columns = (
        "model", "weights", ">steps", ">same", ">captured", ">time, s", ">simul.", ">error", ">launched",
        ">ms", ">simul.",
    )  # fmt: skip
    return LabTable("Schedules served on the device", columns, [_replayed(each) for each in found], note)


def _replayed(found: Replay) -> list[str]:
    captured, eager = found.captured, [step for step in found.steps if not step.replayed]
    return [
        found.model, _WEIGHTS.get(found.scheme, found.scheme), f"{len(found.steps) + found.extra}", f"{found.same}",
        f"{len(captured)}", f"{sum(step.measured for step in captured) / 1e6:.3f}",
        f"{sum(step.simulated for step in captured) / 1e6:.3f}", f"{found.total:+.1%}", f"{len(eager)}",
        f"{_median([step.measured for step in eager]):.1f}", f"{_median([step.simulated for step in eager]):.1f}",
    ]  # fmt: skip


def _median(values: Sequence[float]) -> float:
    """Median in milliseconds of *values* in microseconds."""
    return sorted(values)[len(values) // 2] / 1000 if values else 0.0
