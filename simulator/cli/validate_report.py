"""Errors of predictions: means by operator and regime, as a JSON object and for a person."""

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median, quantiles
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.cli.validate_predict import Prediction
from simulator.cli.validate_read import Format
from simulator.hardware import Chip
from simulator.version import VERSION


def report(form: Format, predictions: Sequence[Prediction], chip: Chip, fidelity: str) -> dict[str, Any]:
    """Everything as one JSON object; errors are fractions, *rows* are in the order of the table."""
    counted = [each for each in predictions if each.counted]
    peaks = [(each, _peak(each)) for each in predictions if _peak(each) is not None and each.peak_bytes is not None]
    memory = [abs((each.peak_bytes or 0) / peak - 1) for each, peak in peaks if peak]
    return {
        "version": VERSION,
        "chip": chip.name,
        "fidelity": fidelity,
        "format": form.name,
        "unit": form.unit,
        "predicted": sum(each.predicted is not None for each in predictions),
        "not_predicted": sum(each.predicted is None for each in predictions),
        **_statistics(counted),
        "peak_bytes_mape": fmean(memory) if memory else None,
        "groups": {
            "operator": _groups(predictions, lambda each: each.group),
            "regime": _groups(counted, lambda each: each.regime),
        },
        "rows": [_row(each) for each in predictions],
    }


def _statistics(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """Means over *predictions*, and what the plain roofline reaches on the same rows."""
    errors = [abs(each.error) for each in predictions if each.error is not None]
    floor = [abs(each.roofline_error) for each in predictions if each.roofline_error is not None]
    if not errors:
        return {"mape": None, "median": None, "p90": None, "roofline_mape": None}
    return {"mape": fmean(errors), "median": median(errors), "p90": _p90(errors), "roofline_mape": fmean(floor)}


def _p90(errors: Sequence[float]) -> float:
    return quantiles(errors, n=10, method="inclusive")[-1] if len(errors) > 1 else errors[0]


def _groups(predictions: Iterable[Prediction], key: Callable[[Prediction], str]) -> dict[str, Any]:
    members: dict[str, list[Prediction]] = {}
    for each in predictions:
        members.setdefault(key(each), []).append(each)
    return {name: {"rows": len(mine), **_statistics(mine), "worst": _worst(mine)} for name, mine in members.items()}


def _worst(predictions: Sequence[Prediction]) -> float | None:
    """The error of largest size, with its sign."""
    return max((each.error for each in predictions if each.error is not None), key=abs, default=None)


def _peak(prediction: Prediction) -> int | None:
    text = prediction.row.values.get("peak_bytes", "")
    return int(float(text)) if text and prediction.peak_bytes is not None else None


def _row(prediction: Prediction) -> dict[str, Any]:
    made = {
        "line": prediction.row.line,
        **{name: value for name, value in prediction.row.values.items() if value == value},  # noqa: PLR0124
        "measured": prediction.row.measured,
        "predicted": prediction.predicted,
        "error": prediction.error,
        "roofline": prediction.roofline,
        "regime": prediction.regime,
        "counted": prediction.counted,
        "note": prediction.note,
    }
    if prediction.peak_bytes is not None:
        peak = _peak(prediction)
        made |= {
            "predicted_peak_bytes": prediction.peak_bytes,
            "peak_bytes_error": prediction.peak_bytes / peak - 1 if peak else None,
        }
    return made


def print_report(form: Format, predictions: Sequence[Prediction], found: dict[str, Any], worst: int) -> None:
    """Print the means, the groups and the worst rows."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120)
    console.print(
        Text(f"{found['chip']}: {len(predictions)} measured {form.name}, fidelity {found['fidelity']}", "bold")
    )
    if found["mape"] is None:
        console.print("nothing could be predicted")
    else:
        console.print(_sentence(found))
    for kind, groups in found["groups"].items():
        console.print(_table(kind, groups))
    ranked = sorted((each for each in predictions if each.error is not None), key=lambda each: -abs(each.error or 0))
    console.print(_rows(f"worst {min(worst, len(ranked))} rows", form, ranked[:worst]))
    skipped = [each for each in predictions if each.note]
    for note in dict.fromkeys(each.note for each in skipped):
        console.print(f"{sum(each.note == note for each in skipped)} rows: {note}", markup=False)


def print_tables(tables: Sequence[dict[str, Any]], chip: Chip, fidelity: str) -> None:
    """Print a line for each of *tables* (reports with their ``table`` and ``fitted``), then each by operator."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120)
    console.print(Text(f"{chip.name}: predictions of fidelity {fidelity} beside what was measured", "bold"))
    summary = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("table", "what", "rows", "MAPE", "median", "p90", "roofline", "peak memory", "fitted to"):
        summary.add_column(name, justify="left" if name in ("table", "what", "fitted to") else "right")
    for each in tables:
        means = [_percent(each[key]) for key in ("mape", "median", "p90", "roofline_mape", "peak_bytes_mape")]
        summary.add_row(each["table"], each["format"], str(each["predicted"]), *means, each["fitted"])
    console.print(summary)
    for each in tables:
        console.print()
        console.print(Text(f"{each['table']}: {each['format']} in {each['unit']}", "bold"))
        console.print(_table("operator", each["groups"]["operator"]))
        notes = [row["note"] for row in each["rows"] if row["note"]]
        for note in dict.fromkeys(notes):
            console.print(f"{notes.count(note)} rows: {note}", markup=False)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _sentence(found: dict[str, Any]) -> str:
    text = (
        f"MAPE {found['mape']:.1%}, median {found['median']:.1%}, 90 % of rows within {found['p90']:.1%}; "
        f"plain roofline on the same rows {found['roofline_mape']:.1%}"
    )
    if found["peak_bytes_mape"] is not None:
        text += f"; peak memory {found['peak_bytes_mape']:.1%}"
    return text


def _table(kind: str, groups: dict[str, Any]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), title_justify="left")
    for name in (f"by {kind}", "rows", "MAPE", "median", "p90", "worst", "roofline"):
        table.add_column(name, justify="left" if name.startswith("by") else "right")
    for name, found in sorted(groups.items()):
        cells = (found["mape"], found["median"], found["p90"], found["worst"], found["roofline_mape"])
        shown = [
            "-" if cell is None else f"{cell:+.1%}" if index == 3 else f"{cell:.1%}" for index, cell in enumerate(cells)
        ]
        table.add_row(Text(name), str(found["rows"]), *shown)
    return table


def _rows(title: str, form: Format, predictions: Sequence[Prediction]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in (title, f"measured {form.unit}", "predicted", "error", "bound"):
        table.add_column(name, justify="left" if name in (title, "bound") else "right")
    for each in predictions:
        error, predicted = each.error, each.predicted
        assert error is not None  # only predicted rows are ranked
        assert predicted is not None
        label = " ".join(_cell(value) for name, value in each.row.values.items() if name in form.columns[:-1])
        table.add_row(Text(label), f"{each.row.measured:.4g}", f"{predicted:.4g}", f"{error:+.1%}", each.regime)
    return table


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}={int(size)}" for key, size in value.items())
    return str(value)
