"""A sweep as tables of text: what will do at each bandwidth, and two cuts through the grid."""

from collections.abc import Callable, Sequence

from hw_models.array_model import Point, Recommendation, Sweep
from simulator.units import binary, decimal, seconds
from workloads.accelerator.words import percent, resource
from workloads.lab import LabTable


def by_bandwidth(every: Sequence[Recommendation]) -> LabTable:
    """The smallest array and scratchpad that will do at each bandwidth."""
    return LabTable(
        title=f"What is enough at each bandwidth: a step more saves less than {percent(every[0].threshold)}",
        columns=(
            ">bandwidth", ">array", ">SRAM", ">time", ">used", ">DRAM bytes", ">x least", ">reached", "bound by",
            ">share", ">next saves",
        ),
        rows=[_row(each) for each in every],
        note=(
            "used: of the arrays' peak; reached: bandwidth; share: of the time that goes to the bound; next saves: the "
            "next bandwidth, with array and SRAM to match"
        ),
    )  # fmt: skip


def array_by_sram(sweep: Sweep, at: Point) -> LabTable:
    """Times over arrays and scratchpads, at the bandwidth of *at*."""
    depth = sweep.axes.bandwidths.index(at.bandwidth)
    return _grid(
        f"Time at {decimal(at.bandwidth, 'B/s')}",
        "array \\ SRAM",
        [binary(sram) for sram in sweep.axes.srams],
        sweep,
        lambda row, column: sweep.at.get((row, column, depth)),
        lambda point: seconds(point.time, 3),
    )


def array_by_bandwidth(sweep: Sweep, at: Point) -> LabTable:
    """Use of the arrays over their size and the bandwidth, with the scratchpad of *at*."""
    column = sweep.axes.srams.index(at.sram)
    return _grid(
        f"Share of the arrays' peak that is used with {binary(at.sram)} of SRAM",
        "array \\ bandwidth",
        [decimal(bandwidth, "B/s") for bandwidth in sweep.axes.bandwidths],
        sweep,
        lambda row, depth: sweep.at.get((row, column, depth)),
        lambda point: percent(point.utilisation),
    )


def _row(found: Recommendation) -> tuple[str, ...]:
    point = found.point
    return (
        decimal(point.bandwidth, "B/s"), f"{point.size} {point.dataflow}", binary(point.sram), seconds(point.time),
        percent(point.utilisation), decimal(point.traffic, "B"), f"{point.again:.2f}",
        decimal(point.achieved, "B/s"), str(resource(point)), percent(point.share(point.bound)),
        "" if found.following is None else percent(1 - found.following),
    )  # fmt: skip


def _grid(
    title: str,
    corner: str,
    columns: Sequence[str],
    sweep: Sweep,
    pick: Callable[[int, int], Point | None],
    show: Callable[[Point], str],
) -> LabTable:
    rows = []
    for row, size in enumerate(sweep.axes.sizes):
        points = [pick(row, column) for column in range(len(columns))]
        rows.append((str(size), *("no fold" if point is None else show(point) for point in points)))
    return LabTable(title, (corner, *(f">{name}" for name in columns)), rows)
