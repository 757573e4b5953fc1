"""What a pass did, in figures."""

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.units import PS_PER_SECOND


@dataclass(frozen=True, slots=True)
class State:
    """A graph in figures: *kernels*, *nbytes* read and written, *time* in picoseconds and what *bound* it.

    resident  bytes of weights, buffers, caches and inputs that it uses, which are held all the time.
    """

    kernels: int
    nbytes: int
    time: int
    bound: str
    resident: int = 0


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass did: the graph *before* and *after*.

    made  operators that only the new graph has and how many, those of repeated layers together, most frequent first.
    gone  likewise those that only the old graph has, of a pass that makes none.
    """

    name: str
    before: State
    after: State
    made: tuple[tuple[str, int], ...]
    gone: tuple[tuple[str, int], ...]


def as_rows(reports: Sequence[PassReport]) -> list[dict[str, object]]:
    """One object for each pass, as ``--json`` has it under ``passes``."""
    return [
        {
            "name": report.name,
            "kernels_before": report.before.kernels,
            "kernels_after": report.after.kernels,
            "bytes_before": report.before.nbytes,
            "bytes_after": report.after.nbytes,
            "seconds_before": report.before.time / PS_PER_SECOND,
            "seconds_after": report.after.time / PS_PER_SECOND,
            "bound_before": report.before.bound,
            "bound_after": report.after.bound,
            "resident_bytes_before": report.before.resident,
            "resident_bytes_after": report.after.resident,
            "made": [{"what": what, "count": count} for what, count in report.made],
            "gone": [{"what": what, "count": count} for what, count in report.gone],
        }
        for report in reports
    ]
