"""Tables of ``xpusim collective`` and ``xpusim systems``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simulator.units import binary, decimal, seconds

if TYPE_CHECKING:
    from rich.table import Table

    from hw_models.interconnect.prediction import Option, Prediction
    from simulator.system import Level, System

_WIDTH = 120  # of a line that goes to a file or a pipe
_CONVENTION = (
    "Bus bandwidth: bytes that each rank has to send, over the time; a link's bandwidth is its ceiling (NCCL-tests).\n"
    "Estimate: too slow or too many messages to play; the busiest link and the longest way give the time."
)


def print_systems(systems: Sequence["System"]) -> None:
    """One line for each level of each system."""
    console = _console()
    table = _table("system", "chip", ">chips", "level", "joins", ">GB/s each way", ">latency")
    for system in systems:
        for number, (name, level) in enumerate(system.levels):
            head = (system.name, system.chip, str(system.chips)) if not number else ("", "", "")
            table.add_row(*head, name, shape(level), f"{level.bandwidth / 1e9:g}", seconds(level.latency))
    console.print(table)
    console.print("A level that joins 1 repeats its system: dgx-h200x16 is 16 of dgx-h200.", style="dim")


def shape(level: "Level") -> str:
    """What *level* joins, in a few words."""
    if level.shape is not None:
        open_axes = [str(axis) for axis, wraps in enumerate(level.wraps) if not wraps]
        return "x".join(map(str, level.shape)) + " torus" + (f", axis {' '.join(open_axes)} open" if open_axes else "")
    more = f", {level.oversubscription:g}:1" if level.oversubscription > 1 else ""
    return f"{level.members} on a {level.topology.replace('_', ' ')}{more}"


def print_prediction(prediction: "Prediction", gains: Sequence[tuple[str, float]]) -> None:
    """Verdict, algorithms side by side, and what would make the collective faster."""
    console = _console()
    best, system = prediction.best, prediction.system
    size = binary(prediction.size)
    console.print(
        f"{prediction.pattern} of {size} among {prediction.ranks} of {system.chips} chips of {system.name}",
        style="bold",
    )
    if not best.time:
        console.print("Nothing to do: one rank alone.")
        return
    console.print(f"{seconds(best.time)} by {_named(best)}, bound by {best.bound}")
    console.print(
        f"algorithm bandwidth {decimal(prediction.algorithm_bandwidth, 'B/s')}, "
        f"bus bandwidth {decimal(prediction.bus_bandwidth, 'B/s')}"
    )
    console.print()
    console.print(_options(prediction))
    console.print()
    gained = _table("with", ">faster by")
    for what, factor in gains:
        gained.add_row(what, f"{factor - 1:.0%}")
    console.print(gained)
    console.print(_CONVENTION, style="dim")


def _named(option: "Option") -> str:
    return option.algorithm if option.protocol == "-" else f"{option.algorithm} ({option.protocol})"


def _options(prediction: "Prediction") -> "Table":
    table = _table("algorithm", ">time", ">of it latency", ">bus GB/s", "busiest link", ">bytes", ">busy", "worked out")
    factor = prediction.bus_bandwidth * prediction.best.time
    for option in prediction.options:
        busiest = option.busiest
        table.add_row(
            _named(option),
            seconds(option.time),
            f"{min(1.0, option.latency / option.time):.0%}",
            f"{factor / option.time / 1e9:.3g}",
            option.link or "-",
            binary(busiest.size) if busiest else "-",
            f"{option.utilisation:.0%}",
            option.how,
        )
    return table


def print_rows(title: str, rows: Sequence[dict[str, Any]], columns: Sequence[str], summary: Sequence[str]) -> None:
    """*rows* as a table of *columns*, and *summary* below; numbers are set to the right."""
    console = _console()
    console.print(title, style="bold")
    table = _table(*(f">{name}" if rows and not isinstance(rows[0].get(name), str) else name for name in columns))
    cells = [[_cell(row.get(name)) for name in columns] for row in rows]
    for column, texts in zip(table.columns[:-1], zip(*cells, strict=True), strict=False):
        column.min_width = max(map(len, texts))  # never cut: the last column, which may be a sentence, folds
    table.columns[-1].no_wrap = False
    for texts_of_row in cells:
        table.add_row(*texts_of_row)
    if rows:
        console.print(table)
    for line in summary:
        console.print(line)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.1%}" if isinstance(value, float) else str(value)


def _table(*columns: str) -> "Table":
    """A table without lines; a column whose name starts with ``>`` is set to the right."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", no_wrap=True)
    return table


def _console() -> Any:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH)
