"""The chip that the run was made on, as a table: every figure with where it comes from."""

from collections.abc import Iterator

from simulator.calibration import Calibration
from simulator.hardware import Chip, MemoryLevel
from simulator.headline import percent
from simulator.report.markup import Markup, join, tag
from simulator.units import binary, decimal, seconds

_Line = tuple[str, str, str]  # what, value, source
_SCOPES = {"core": "in each core", "chip": "on the die", "device": "off the chip"}


def chip_table(chip: Chip) -> Markup:
    """Units and their peaks, memory levels, fixed times, links and power."""
    lines = [*_compute(chip), *_memory(chip), *_around(chip)]
    head = tag("tr", *(tag("th", title, scope="col") for title in ("part", "figure", "source")))
    rows, before = [], ""
    for what, value, source in lines:
        shown = "as above" if source == before else source
        rows.append(tag("tr", tag("th", what, scope="row"), tag("td", value), tag("td", shown, class_="source")))
        before = source
    return tag("table", tag("thead", head), tag("tbody", join(rows)), class_="chip")


def _compute(chip: Chip) -> Iterator[_Line]:
    die = [f"{chip.cores} core{'s' if chip.cores > 1 else ''}"]
    die += [str(each) for each in (chip.process, chip.year) if each]
    if chip.area:
        die.append(f"{chip.area} mm2")
    yield "chip", f"{chip.description}: {', '.join(die)}", chip.source
    clock = decimal(chip.matrix.clock, "Hz")
    array = chip.matrix.array
    if array is not None:
        shape = f"{array.count} x {array.rows}x{array.columns} cells a core, {array.dataflow}"
        yield "matrix unit", f"{shape}, {clock}", chip.matrix.source
    for dtype in chip.matrix.dtypes:
        macs = chip.matrix.macs(dtype) or 0
        peak = decimal(2 * macs * chip.matrix.clock * chip.cores, "FLOP/s")
        source = chip.matrix.source if array is None else "derived from the array"
        yield f"matrix, {dtype}", f"{peak} dense = {chip.cores} x 2 x {macs:,} multiply-adds a cycle x {clock}", source
    for dtype, rate in chip.vector.flops_per_cycle.items():
        how = f"{chip.cores} x {rate:,} FLOP a cycle x {decimal(chip.vector.clock, 'Hz')}"
        yield f"vector, {dtype}", f"{decimal(chip.vector_peak(dtype), 'FLOP/s')} = {how}", chip.vector.source


def _memory(chip: Chip) -> Iterator[_Line]:
    for name, level in chip.memory.items():
        yield name, _level(level), level.source


def _level(level: MemoryLevel) -> str:
    write = decimal if level.scope == "device" else binary
    text = (
        write(level.capacity, "B")
        + {"core": " in each core", "chip": " on the die", "device": " off the chip"}[level.scope]
    )
    if level.bandwidth:
        text += f", {decimal(level.bandwidth, 'B/s')}"
    if level.latency:
        text += f", {seconds(level.latency)} latency"
    return text


def _around(chip: Chip) -> Iterator[_Line]:
    fixed = chip.overheads
    named = (
        ("launch", fixed.launch),
        ("between operators", fixed.gap),
        ("host, each call", fixed.host_dispatch),
        ("host, each graph", fixed.host_submit),
        ("host, each compiled kernel", fixed.host_launch or 0),
    )
    known = [f"{name} {seconds(time)}" for name, time in named if time]
    yield "fixed times", ", ".join(known) or "none", fixed.source
    for name, link in (("host link", chip.host_link), ("links", chip.links)):
        if link is not None:
            count = f"{link.count} x " if link.count > 1 else ""
            yield name, f"{count}{decimal(link.bandwidth, 'B/s')} each way", link.source
    if chip.power is not None:
        idle = f", {chip.power.idle} W idle" if chip.power.idle else ""
        yield "power", f"{chip.power.cap} W cap{idle}", chip.power.source
    fitted = chip.calibration or Calibration()
    sustained = (
        f"{percent(fitted.dram)} of the off-chip bandwidth, {percent(fitted.matmul.efficiency)} of the matrix peak in "
        f"products, {percent(fitted.attention.efficiency)} in attention"
    )
    yield "tile model sustains", sustained, fitted.source
