"""The curve of decode in words: table, errors beside measurements, and what binds at both ends."""

from collections.abc import Sequence

from simulator.headline import percent
from simulator.units import PS_PER_SECOND, decimal, seconds
from simulator.variants import Resource
from workloads.inference.curve import Curve, Point, Settings
from workloads.inference.measured import MeasuredPoint
from workloads.lab import LabTable


def title(model: str, settings: Settings) -> str:
    """What is shown, in one line."""
    cache = f", KV cache in {settings.cache}" if settings.cache else ""
    context = f"context {settings.context:,}"
    return f"decode of {model} on {settings.chip.name}, {context}, {settings.mode} mode{cache}"


def tables(settings: Settings, curves: Sequence[Curve], measured: Sequence[MeasuredPoint]) -> list[LabTable]:
    """Rates against batch, knee and limit, and errors where there are measurements."""
    found = [_rates(curves), _bounds(curves), _ends(settings, curves)]
    if measured:
        found.append(_errors(curves, measured))
    return found


def _rates(curves: Sequence[Curve]) -> LabTable:
    columns = [">batch"]
    for each in curves:
        columns += [f">{each.name}, tokens/s", ">ms/step"]
    rows = []
    for index, point in enumerate(curves[0].points):
        row = [f"{point.batch:,}"]
        for each in curves:
            row += _cells(each.points[index])
        rows.append(row)
    note = "A step gives every sequence its next token, so ms/step is also TPOT."
    if not all(point.fits for each in curves for point in each.points):
        note += " *: the KV cache of that batch does not fit."
    return LabTable("Rate against batch", columns, rows, note)


def three_digits(rate: float) -> str:
    """Three significant digits of *rate*, and none lost before the point.

    >>> three_digits(0.4321), three_digits(2.5), three_digits(98.76), three_digits(3984.2)
    ('0.432', '2.50', '98.8', '3,984')
    """
    if rate >= 999.5:
        return f"{rate:,.0f}"
    return f"{rate:#.3g}".removesuffix(".")


def _cells(point: Point) -> list[str]:
    rate = three_digits(point.tokens_per_second)
    return [f"{rate}{'' if point.fits else '*'}", f"{point.step / PS_PER_SECOND * 1000:.3f}"]


def _bounds(curves: Sequence[Curve]) -> LabTable:
    rows = [
        [f"{point.batch:,}", *(_bound(each.points[index]) for each in curves)]
        for index, point in enumerate(curves[0].points)
    ]
    note = "Part of the step in operators that this resource binds, found by replay."
    return LabTable("What binds the step", [">batch", *(f">{each.name}" for each in curves)], rows, note)


def _bound(point: Point) -> str:
    return f"{point.bound} {percent(point.share)}"


def _ends(settings: Settings, curves: Sequence[Curve]) -> LabTable:
    rows = []
    for each in curves:
        best = each.best
        fastest = f"{three_digits(best.tokens_per_second)} at {best.batch}" if best else "nothing fits"
        rows.append([each.name, decimal(each.weights, "B"), f"{each.knee:.0f}", f"{each.limit:,}", fastest])
    note = (
        "Knee: the batch at which reading the weights and multiplying with them take equally long at data-sheet rates; "
        "attention and launches come on top."
    )
    columns = ("weights", ">read a step", ">knee, batch", ">largest batch that fits", ">best that fits, tokens/s")
    return LabTable(f"Knee and capacity at a context of {settings.context:,}", columns, rows, note)


def errors(curves: Sequence[Curve], measured: Sequence[MeasuredPoint]) -> list[tuple[str, MeasuredPoint, int, float]]:
    """Each measured point that was simulated too: its weights, the point, simulated picoseconds, relative error."""
    known = {(each.quant, point.batch): (each.name, point.step) for each in curves for point in each.points}
    found = []
    for point in measured:
        if (point.quant, point.batch) in known:
            name, step = known[point.quant, point.batch]
            found.append((name, point, step, step / point.step - 1))
    return found


def _errors(curves: Sequence[Curve], measured: Sequence[MeasuredPoint]) -> LabTable:
    found = errors(curves, measured)
    rows = [
        [name, f"{point.batch:,}", seconds(point.step), seconds(step), f"{error:+.1%}"]
        for name, point, step, error in found
    ]
    sizes = [abs(error) for *_, error in found]
    mean = sum(sizes) / max(1, len(sizes))
    note = f"Mean absolute error {mean:.1%} over {len(found)} points, worst {max(sizes, default=0.0):.1%}."
    return LabTable("Beside the measurements", ("weights", ">batch", ">measured", ">simulated", ">error"), rows, note)


def verdict(settings: Settings, curves: Sequence[Curve]) -> tuple[Resource, str]:
    """What binds the smallest batch of the first curve, and why batching and quantisation speed up."""
    first = curves[0]
    one, best = first.points[0], first.best
    if best is None:
        return Resource.CAPACITY, f"Not one sequence of {settings.context:,} positions fits beside the weights."
    more = best.tokens_per_second / one.tokens_per_second
    words = [
        f"One step reads {decimal(first.weights, 'B')} of weights for a batch of {one.batch} as for one of "
        f"{best.batch}: batching makes {more:.3g} times as many tokens/s of it."
    ]
    for each in curves[1:]:
        start, end = each.points[0], each.points[-1]
        words.append(
            f"{each.name} reads {first.weights / each.weights:.3g} times less and is "
            f"{one.step / start.step:.3g} times as fast at batch {start.batch}, "
            f"{first.points[-1].step / end.step:.3g} times at {end.batch}."
        )
    words.append(_limit(first))
    return one.bound, " ".join(words)


def _limit(first: Curve) -> str:
    """What ends the gain of batching."""
    best = first.best
    assert best is not None
    if first.limit < first.knee:
        return (
            f"The KV cache fills the memory at {first.limit:,} sequences, before the knee at {first.knee:.0f}: "
            "more capacity or a smaller cache would gain more than arithmetic."
        )
    return (
        f"The knee at {first.knee:.0f} lies below the {first.limit:,} sequences that fit; at {best.batch} {best.bound} "
        "binds."
    )
