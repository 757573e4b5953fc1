"""How many rows of a table of runs equal the results that SCALE-Sim itself wrote into it.

SCALE-Sim's ``total_cycles`` is the index of the last cycle, so its cycles are one more; they include its stalls, which
are taken off.  Its stalls, its DRAM words and, for ``os``, its ofmap words are unsound (hw_models/data/scalesim), so
they are compared and not expected to be equal.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hw_models.array_model.runs import Row
from hw_models.array_model.scalesim import csv_rows, plain, short


@dataclass(frozen=True, slots=True)
class Agreement:
    """*equal* of the *rows* that give a figure have ours; *sound* says whether theirs can be relied on."""

    what: str
    equal: int
    rows: int
    sound: bool


_Theirs = dict[str, float]


@dataclass(frozen=True, slots=True)
class _Figure:
    """A figure that both give: the columns that theirs needs, theirs, ours, and the rows for which it is sound."""

    what: str
    needs: tuple[str, ...]
    theirs: Callable[[_Theirs], float]
    ours: Callable[[Row], float]
    dataflows: tuple[str, ...]
    sound: bool = True


def _column(name: str, dataflows: tuple[str, ...], sound: bool, what: str) -> _Figure:
    return _Figure(what, (name,), lambda theirs: theirs[name], lambda row: row[name] or 0, dataflows, sound)


_ALL, _STATIONARY = ("os", "ws", "is"), ("ws", "is")
_FIGURES = (
    _Figure(
        "cycles without stalls (total_cycles - stall_cycles + 1)",
        ("total_cycles", "stall_cycles"),
        lambda theirs: theirs["total_cycles"] - theirs["stall_cycles"] + 1,
        lambda row: row["stall_free_cycles"],
        _ALL,
    ),
    _Figure(
        "mapping efficiency",
        ("mapping_efficiency_pct",),
        lambda theirs: theirs["mapping_efficiency_pct"],
        lambda row: 100 * row["mapping_efficiency"],
        _ALL,
    ),
    _column("sram_ifmap_reads", _ALL, True, "SRAM ifmap reads"),
    _column("sram_filter_reads", _ALL, True, "SRAM filter reads"),
    _column("sram_ofmap_writes", _STATIONARY, True, "SRAM ofmap writes, ws and is"),
    _column("sram_ofmap_writes", ("os",), False, "SRAM ofmap writes, os"),
    _column("stall_cycles", _ALL, False, "stall cycles"),
    _column("dram_ifmap_reads", _ALL, False, "DRAM ifmap reads"),
    _column("dram_filter_reads", _ALL, False, "DRAM filter reads"),
    _column("dram_ofmap_writes", _ALL, False, "DRAM ofmap writes"),
)


def agreement(path: Path, rows: Sequence[Row]) -> list[Agreement]:
    """Compare *rows*, made from the table at *path*, with the results in it; nothing for columns that it lacks.

    Raises SpecError with file, line and column for a result that is no number.
    """
    theirs = _results(path)
    found = []
    for figure in _FIGURES:
        pairs = [
            (figure.theirs(one), figure.ours(row))
            for one, row in zip(theirs, rows, strict=True)
            if row["dataflow"] in figure.dataflows and one.keys() >= set(figure.needs)
        ]
        if pairs:
            # They print six digits.
            equal = sum(math.isclose(their, our, rel_tol=5e-6) for their, our in pairs)
            found.append(Agreement(figure.what, equal, len(pairs), figure.sound))
    return found


def _results(path: Path) -> list[_Theirs]:
    """Return for each row the figures that are not empty."""
    lines = csv_rows(path)
    _, header = next(lines)
    wanted = {plain(name): name for figure in _FIGURES for name in figure.needs}
    columns = [(at, wanted[plain(title)], title) for at, title in enumerate(header) if plain(title) in wanted]
    found = []
    for place, row in lines:
        figures: _Theirs = {}
        for at, name, title in columns:
            text = row[at].strip() if at < len(row) else ""
            if not text:
                continue
            try:
                figures[name] = float(text)
            except ValueError:
                figures[name] = math.nan
            if not math.isfinite(figures[name]):
                raise place.fault(f"{short(text)!r} is not a number", at + 1, title.strip())
        found.append(figures)
    return found
