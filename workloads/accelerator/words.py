"""A recommendation in words: the sizes, why not larger, why not smaller, and what binds."""

from hw_models.array_model import Axis, Binds, Choice, Point, Program, Recommendation
from simulator.graph import Workload
from simulator.units import binary, decimal, seconds
from simulator.variants import Resource

CONVENTIONS = (
    "operators one after another, each with the best plan found; multiply-add = 2 FLOP; utilisation: FLOP of products "
    "over time x peak of the arrays; SRAM: of each core; vector unit and SRAM port grow with the array"
)
_RESOURCE = {
    Binds.ARRAY: Resource.COMPUTE,
    Binds.VECTOR: Resource.COMPUTE,
    Binds.BANDWIDTH: Resource.BANDWIDTH,
    Binds.CAPACITY: Resource.CAPACITY,
    Binds.LAUNCH: Resource.LAUNCH,
}
_NOUN = {
    Binds.ARRAY: "the arrays",
    Binds.VECTOR: "the vector unit",
    Binds.BANDWIDTH: "the DRAM",
    Binds.CAPACITY: "data that come again because the SRAM is small",
    Binds.LAUNCH: "launches",
}


def resource(point: Point) -> Resource:
    """The bound of *point* in the terms of all other reports."""
    return _RESOURCE[point.bound]


def name_of(workload: Workload) -> str:
    """Say what runs: ``llama-8b prefill, 512 tokens, bf16``."""
    if workload.phase == "decode":
        size = f"batch {workload.batch:,} at {workload.context:,} positions"
    else:
        size = f"{workload.tokens:,} tokens" if workload.tokens else f"batch {workload.batch:,}"
    return f"{workload.name} {workload.phase}, {size}, {workload.dtype}"


def sizes(point: Point) -> str:
    """Say the three sizes: ``128x128 cells (ws), 4 MiB of SRAM, 51.2 GB/s``."""
    where = f"{point.size} cells ({point.dataflow}), {binary(point.sram)} of SRAM"
    return f"{where}, {decimal(point.bandwidth, 'B/s')}"


def outcome(point: Point) -> str:
    """Say what the sizes give: time, utilisation, and what most of the time goes to."""
    return (
        f"{seconds(point.time)}, arrays {percent(point.utilisation)} used; "
        f"{percent(point.share(point.bound))} of the time goes to {_NOUN[point.bound]}"
    )


def reason(choice: Choice, found: Recommendation, program: Program) -> str:
    """Say for one axis what a step less costs, what a step more gains, and why it is no more."""
    value, after = _value(choice.axis, choice.point), _value(choice.axis, choice.after)
    parts = [f"{choice.axis} {value}:"]
    if choice.loss is not None and choice.before is not None:
        parts.append(f"{_value(choice.axis, choice.before)} would take {percent(choice.loss)} longer;")
    elif choice.axis is not Axis.BANDWIDTH:
        parts.append("the smallest swept that works;")
    step = f"{after} would save {percent(max(0.0, choice.gain))}"
    parts.append(f"{step}{_WHY[choice.axis](choice, found, program)}")
    return " ".join(parts)


def percent(part: float) -> str:
    """Write a part of one in percent, with a digit more where it is small.

    >>> percent(0.374), percent(0.004), percent(0)
    ('37 %', '0.4 %', '0 %')
    """
    return f"{100 * part:.1f} %" if 0 < abs(part) < 0.01 else f"{100 * part:.0f} %"


def _value(axis: Axis, point: Point) -> str:
    match axis:
        case Axis.ARRAY:
            return str(point.size)
        case Axis.SRAM:
            return binary(point.sram)
        case _:
            return decimal(point.bandwidth, "B/s")


def _why_array(choice: Choice, found: Recommendation, program: Program) -> str:
    point, after = choice.point, choice.after
    if choice.gain >= found.threshold:
        return "" if choice.swept else ", but the sweep ends here: a larger array is worth a look"
    waits = point.share(Binds.BANDWIDTH, Binds.CAPACITY)
    if waits >= 0.5:
        return f", because {percent(waits)} of the time waits for the DRAM{_columns(point, program)}"
    if point.share(Binds.ARRAY) < 0.5:
        return f", because the arrays work in only {percent(point.share(Binds.ARRAY))} of the time"
    return (
        f", because cells that are busy {percent(point.cells_busy)} of the arrays' time now would be busy "
        f"{percent(after.cells_busy)} then{_rows(after, program)}"
    )


def _rows(after: Point, program: Program) -> str:
    rows = getattr(program.largest.dims, "m", after.size.rows)
    if rows >= after.size.rows:
        return ""
    return f": the weights of a tile load for {after.size.rows} cycles and serve {rows:,} rows"


def _columns(point: Point, program: Program) -> str:
    """With one row each weight serves once, so what counts is how fast weights enter: one for each column a cycle."""
    if getattr(program.largest.dims, "m", 0) != 1:
        return ""
    return f"; with one row of activations the cells are {percent(point.cells_busy)} busy at best"


def _why_sram(choice: Choice, found: Recommendation, program: Program) -> str:
    point, after = choice.point, choice.after
    if choice.gain >= found.threshold and not choice.swept:
        return ", but the sweep ends here: more SRAM is worth a look"
    if point.again < 1.05:
        return f", because already {point.again:.2f} x the least bytes cross the DRAM"
    change = f"traffic falls only from {point.again:.2f} to {after.again:.2f} x the least"
    hidden = point.share(Binds.BANDWIDTH, Binds.CAPACITY) < 0.5
    return f", because {change}" + (" and hides behind the arithmetic" if hidden else "")


def _why_bandwidth(choice: Choice, found: Recommendation, program: Program) -> str:
    point = choice.point
    waits = percent(point.share(Binds.BANDWIDTH, Binds.CAPACITY))
    used = f"{decimal(point.achieved, 'B/s')} are used and {waits} of the time waits for them"
    if found.following is not None:
        return f" by itself and {percent(1 - found.following)} with array and SRAM to match: {used}"
    if choice.gain >= found.threshold:
        return f", and the sweep ends here: {used}"
    return f": {used}"


_WHY = {Axis.ARRAY: _why_array, Axis.SRAM: _why_sram, Axis.BANDWIDTH: _why_bandwidth}
