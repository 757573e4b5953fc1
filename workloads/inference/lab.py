"""Lab 6: why batching and quantisation speed up decode, where each of them ends, and what that asks of a chip."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from simulator.hardware import Chip
from simulator.headline import percent
from simulator.units import decimal
from simulator.variants import Resource
from workloads.inference.compare import load
from workloads.inference.curve import Curve, Settings, as_data, curve
from workloads.inference.curve_words import errors, tables, three_digits
from workloads.inference.families import engine_family, packed
from workloads.inference.measured import MeasuredPoint, read_measured
from workloads.lab import LabAnswer, LabTable

MODEL = "llama-8b"
CONTEXT = 2048
SCHEMES = ("none", "w8", "w4")
MEASURED = Path(__file__).parents[2] / "docs" / "data" / "lab06_h200.json"
QUESTION = "why do batching and quantisation speed up decode, and where does that end?"


def answer(chip: Chip) -> LabAnswer:
    """Simulate decode of MODEL on *chip* in bf16, w8 and w4, beside the measurements if it is the chip measured."""
    settings = Settings(chip, CONTEXT)
    curves = curves_of(settings)
    ideal = unpacked_for_nothing(settings)
    measured = measured_on(chip)
    shown = tables(settings, curves, ())
    if measured:
        shown[0] = _beside(curves, measured)
    if ideal is not None:
        shown.append(_ideal(curves, ideal))
    bound, verdict = _verdict(curves, ideal)
    return LabAnswer(
        question=QUESTION,
        sentence=_sentence(curves, measured),
        tables=tuple(shown),
        bound=bound,
        verdict=verdict,
        data=as_data(MODEL, settings, curves, measured),
    )


def curves_of(settings: Settings, schemes: Sequence[str] = SCHEMES) -> list[Curve]:
    """The curve of each kind of weights."""
    family = engine_family(MODEL)
    return [curve(packed(family, scheme), scheme, settings) for scheme in schemes]


def unpacked_for_nothing(settings: Settings) -> Curve | None:
    """The curve of the narrowest weights if lanes had no work with them; None where they have none anyway."""
    chip = settings.chip
    if chip.calibration is None or not chip.calibration.matmul.dequantise:
        return None
    matmul = replace(chip.calibration.matmul, dequantise=0.0)
    free = replace(chip, calibration=replace(chip.calibration, matmul=matmul))
    (found,) = curves_of(replace(settings, chip=free), SCHEMES[-1:])
    return replace(found, quant="ideal", name=f"{found.name}, unpacking free")


def measured_on(chip: Chip) -> list[MeasuredPoint]:
    """What the engine took on that chip, from docs/data; nothing for chips that were not measured, or without docs."""
    if chip.name != "h200" or not MEASURED.exists():
        return []
    load(MEASURED)
    return read_measured(MEASURED, MODEL, CONTEXT)


def _beside(curves: Sequence[Curve], measured: Sequence[MeasuredPoint]) -> LabTable:
    """Rates against batch, measured ones in front of the simulated ones."""
    found = {(point.quant, point.batch): (point, error) for _, point, _, error in errors(curves, measured)}
    rows = []
    for index, first in enumerate(curves[0].points):
        row = [f"{first.batch:,}"]
        for each in curves:
            point = each.points[index]
            known = found.get((each.quant, point.batch))
            rate = f"{three_digits(point.tokens_per_second)}{'' if point.fits else '*'}"
            real = three_digits(point.batch / known[0].step * 1e12) if known else ""
            row += [real, rate, f"{known[1]:+.1%}" if known else ""]
        rows.append(row)
    columns = [">batch", *(each for one in curves for each in (f">{one.name} measured", ">simul.", ">error of time"))]
    sizes = [abs(error) for _, error in found.values()]
    note = (
        f"tokens/s. Mean absolute error {sum(sizes) / len(sizes):.1%}; measured: the engine's captured graphs on one "
        "H200, constants of its kernels fitted to other rows (docs/lab06.md)."
    )
    return LabTable(f"{MODEL}, {CONTEXT:,} positions: rate against batch", columns, rows, note)


def _ideal(curves: Sequence[Curve], ideal: Curve) -> LabTable:
    """What is lost by unpacking on the vector lanes."""
    first, last = curves[0], curves[-1]
    rows = []
    for one, two, free in zip(first.points, last.points, ideal.points, strict=True):
        rates = [three_digits(each.tokens_per_second) for each in (one, two, free)]
        rows.append([f"{one.batch:,}", *rates, f"{free.tokens_per_second / one.tokens_per_second:.2f}x"])
    columns = (">batch", f">{first.name}", f">{last.name}", f">{ideal.name}", f">of {first.name}")
    return LabTable("If unpacking cost nothing: tokens/s", columns, rows, "--set calibration.matmul.dequantise=0")


def _rate(found: Curve, batch: int) -> float:
    return next(point.tokens_per_second for point in found.points if point.batch == batch)


def _sentence(curves: Sequence[Curve], measured: Sequence[MeasuredPoint]) -> str:
    """What batching and fewer bits bring, in numbers."""
    first, last = curves[0], curves[-1]
    start = f"a step reads its {decimal(first.weights, 'B')} of weights once, however many sequences share them,"
    fits = next((each for each in curves if each.best is not None), None)
    if fits is None:
        return f"Not one sequence of {CONTEXT:,} positions of {MODEL} fits, not even in {last.name}."
    best = fits.best
    assert best is not None
    one, most = (three_digits(rate) for rate in (_rate(fits, 1), best.tokens_per_second))
    many = f"{one} tokens/s at batch 1 become {most} at {best.batch}"
    inside = f" in {fits.name} (in {first.name} nothing fits)" if fits is not first else ""
    gain = first.points[0].step / last.points[0].step
    fewer = (
        f"{last.name} reads {first.weights / last.weights:.2g} times less and makes batch 1 {gain:.2g} times as fast"
    )
    return f"Because {start} {many}{inside}; {fewer}, {_end(first, last, measured)}."


def _end(first: Curve, last: Curve, measured: Sequence[MeasuredPoint]) -> str:
    """Where fewer bits stop helping."""
    pairs = [(one, two) for one, two in zip(first.points, last.points, strict=True) if two.fits]
    slower = next((one.batch for one, two in pairs if one.step < 0.99 * two.step), 0)
    if slower:
        kind = "simulated, and measured" if measured else "simulated"
        return f"but from batch {slower} on it is the slower one ({kind}): unpacking costs more than reading saves"
    equal = next((one.batch for one, two in pairs if one.step < 1.02 * two.step), 0)
    if equal:
        return f"and from batch {equal} on no faster: arithmetic takes as long with few bits as with many"
    return f"and the largest batch that fits {pairs[-1][0].step / pairs[-1][1].step:.2g} times"


def _verdict(curves: Sequence[Curve], ideal: Curve | None) -> tuple[Resource, str]:
    """What binds the fastest batch that fits, and what a SoC should have for it."""
    first, last = curves[0], curves[-1]
    best = last.best
    if best is None:
        return Resource.CAPACITY, f"The weights alone leave no room at {CONTEXT:,} positions: capacity comes first."
    words = [
        f"Decode in {last.name} fits {last.limit:,} sequences of {CONTEXT:,} positions ({first.limit:,} in "
        f"{first.name}); at {best.batch} {best.bound} binds {percent(best.share)} of the step."
    ]
    if ideal is not None:
        words.append(
            f"Unpacked on the way to the matrix units, {last.name} would make {three_digits(_rate(ideal, best.batch))} "
            f"tokens/s of {three_digits(best.tokens_per_second)} there: a SoC should take packed weights as they are."
        )
    if best.bound is Resource.COMPUTE:
        words.append(
            f"Its arithmetic is full from a knee of {last.knee:.0f} sequences on: more of it, or narrower products; "
            "bandwidth serves smaller batches only."
        )
    elif last.limit < last.knee:
        words.append(
            f"The cache fills the memory before the knee at {last.knee:.0f}: more capacity would be shared by more "
            "sequences, and until then every byte of bandwidth counts."
        )
    else:
        words.append(
            f"Beyond the knee at {last.knee:.0f} the weights are shared enough, and each sequence's own keys and "
            "values are what is read: bandwidth, or a smaller cache (fewer key heads, fewer bits)."
        )
    return best.bound, " ".join(words)
