"""The ladder as tables, on a terminal and in the chapter."""

import re
from collections.abc import Sequence
from pathlib import Path

from simulator.errors import OutputError, SpecError
from simulator.units import decimal, seconds
from workloads.gemm.compare import Row, mape, order
from workloads.gemm.curve import KIB, Point
from workloads.gemm.traffic import intensity
from workloads.lab import LabTable

_BEGIN, _END = "<!-- ladder: written by 'python -m workloads.gemm compare' -->", "<!-- end of ladder -->"


def signed(error: float | None) -> str:
    """Return a relative error with its sign, or nothing.

    >>> signed(-0.234), signed(None)
    ('-23 %', '')
    """
    return "" if error is None else f"{100 * error:+.0f} %"


def ladder_table(size: int, found: Sequence[Row], chip: str) -> LabTable:
    """Return one line a step: predicted and measured time, bytes of each level, what binds."""
    measured = any(row.seconds is not None for row in found)
    lines = []
    for row in found:
        own, moved = row.prediction, row.prediction.traffic
        lines.append([
            own.step.name, seconds(own.time, 3),
            *([seconds((row.seconds or 0) * 1e12, 3), signed(row.error)] if measured else []),
            f"{own.flops_per_second / 1e12:.3g}", decimal(moved.dram, "B"),
            *([signed(row.dram_error)] if measured else []),
            decimal(moved.l2, "B"), *([signed(row.l2_error)] if measured else []),
            decimal(moved.port, "B"), f"{intensity(own.sizes, moved.dram):.0f}", str(own.bound),
        ])  # fmt: skip
    some = (">measured", ">error") if measured else ()
    columns = (
        "step", ">predicted", *some, ">TFLOP/s", ">DRAM", *(some[1:]), ">L2", *(some[1:]), ">on chip", ">FLOP/B",
        "bound by",
    )  # fmt: skip
    note = "predicted; FLOP/B: of DRAM"
    if measured:
        error = 100 * mape([row.error for row in found])
        note += f"; error: over measured; mean of time {error:.1f} %, rank correlation {order(found):.2f}"
    return LabTable(f"{size} x {size} x {size}, bf16, {chip}", columns, lines, note)


def curve_table(points: Sequence[Point]) -> LabTable:
    """Return one line a capacity: best tile, bytes, time."""
    lines = []
    for point in points:
        own = point.prediction
        cut = point.config
        lines.append([
            f"{point.capacity // KIB}", f"{cut.block_m} x {cut.block_n} x {cut.block_k}",
            decimal(own.traffic.asked, "B"), decimal(own.traffic.dram, "B"), seconds(own.time, 3), str(own.bound),
        ])  # fmt: skip
    return LabTable(
        "Bytes on a core -> best tile -> traffic -> time",
        (">KiB", "tile", ">to the cores", ">DRAM", ">time", "bound by"),
        lines,
        "KiB of one core for three slices of both operands and fp32 sums; one tile at a time on a core",
    )


def markdown(table: LabTable) -> str:
    """Return *table* for a chapter."""
    titles = [column.removeprefix(">") for column in table.columns]
    rule = ["--:" if column.startswith(">") else "---" for column in table.columns]
    lines = [f"**{table.title}**", "", *(f"| {' | '.join(each)} |" for each in (titles, rule, *table.rows))]
    return "\n".join([*lines, "", table.note])


def write_chapter(path: Path, tables: Sequence[LabTable]) -> None:
    """Put *tables* between the two marks in the chapter.

    Raises SpecError if the marks are not there, OutputError if the file cannot be written.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror}") from None
    if text.count(_BEGIN) != 1 or text.count(_END) != 1:
        raise SpecError(f"{path}: wanted the lines {_BEGIN!r} and {_END!r} once each")
    body = "\n\n".join(markdown(table) for table in tables)
    pattern = re.escape(_BEGIN) + ".*?" + re.escape(_END)
    try:
        path.write_text(re.sub(pattern, lambda _: f"{_BEGIN}\n\n{body}\n\n{_END}", text, flags=re.DOTALL))
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from None
