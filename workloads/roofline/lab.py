"""Lab 5: the ceiling of decode from a chip's peak and bandwidth, for every model and chip that there is."""

from typing import Any

from hw_models import chip_names, load_chip
from simulator.dtypes import DType
from simulator.hardware import Chip
from simulator.units import decimal
from simulator.variants import Resource
from workloads.gpt.presets import preset, preset_names
from workloads.lab import LabAnswer, LabTable
from workloads.roofline.analysis import Analysis, Point, analyse

MODEL = "llama-8b"
CONTEXT = 1024


def answer(chip: Chip) -> LabAnswer:
    """Work out decode of MODEL on *chip*, then the other models on it, and MODEL on the other chips."""
    main = _analyse(MODEL, chip)
    models = [_analyse(name, chip) for name in preset_names()]
    others = [chip if name == chip.name else load_chip(name) for name in chip_names()]
    chips = [_analyse(MODEL, each) for each in others if DType.BF16 in each.matrix.dtypes]
    one = main.decode[0]
    return LabAnswer(
        question="what is the ceiling of decode, from peak and bandwidth alone?",
        sentence=_sentence(main, one),
        tables=(
            _table(f"bf16 at {CONTEXT:,} positions on {chip.name}", {each.model.name: each for each in models}),
            _table(f"{MODEL} on every chip with bf16", {each.chip.name: each for each in chips}, _NOTE),
        ),
        bound=_bound(main),
        verdict=_verdict(main, one),
        data={
            "context": CONTEXT,
            "models": [_data(each) for each in models],
            "chips": [_data(each) for each in chips],
        },
    )


_COLUMNS = (">weights", ">tokens/s, batch 1", ">FLOP/B", ">ridge", ">turns at batch", ">fit", ">tokens/s, full")
_NOTE = "floors of the data sheet: every weight, key and value moved once; turns: batch from which arithmetic binds"


def _analyse(name: str, chip: Chip) -> Analysis:
    return analyse(preset(name), chip, context=min(CONTEXT, preset(name).context))


def _bound(found: Analysis) -> Resource:
    if found.capacity < 1:
        return Resource.CAPACITY
    return Resource.COMPUTE if found.decode[0].compute_bound else Resource.BANDWIDTH


def _sentence(found: Analysis, one: Point) -> str:
    start = f"{MODEL} decodes at most {one.tokens_per_second:,.0f} tokens/s a sequence on {found.chip.name}"
    because = f"{decimal(one.nbytes, 'B')} cross a memory of {decimal(found.machine.bandwidth, 'B/s')} for each"
    best = found.best
    if best is None:
        return f"{start} ({because}), if it fitted: its weights alone fill {found.chips:.1f} such chips."
    return f"{start} ({because}), and at most {best.tokens_per_second:,.0f} with the {best.batch:,} that fit."


def _verdict(found: Analysis, one: Point) -> str:
    ridge = found.machine.ridge
    start = f"At batch 1 arithmetic is busy {one.flops / found.machine.peak / one.seconds:.1%} of the time"
    if found.crossover is None:
        return f"{start}, and no batch changes that: a sequence's keys and values take longer to read than to use."
    reach = "which fit" if found.capacity >= found.crossover else f"of which {found.capacity:,} fit"
    return (
        f"{start}; {found.crossover:,.0f} sequences ({reach}) would keep it busy. More bandwidth raises the ceiling "
        f"one for one until then, more TOPS does not; above a ridge of {ridge:,.0f} FLOP/B peak serves prefill only."
    )


def _table(title: str, found: dict[str, Analysis], note: str = "") -> LabTable:
    return LabTable(title, ("", *_COLUMNS), [_row(name, each) for name, each in found.items()], note)


def _row(name: str, found: Analysis) -> tuple[str, ...]:
    one, best = found.decode[0], found.best
    turn = f"{found.crossover:,.0f}" if found.crossover is not None else "never"
    full = f"{best.tokens_per_second:,.0f}" if best is not None else "does not fit"
    return (
        name, decimal(found.weights, "B"), f"{one.tokens_per_second:,.1f}", f"{one.intensity:.2f}",
        f"{found.machine.ridge:,.0f}", turn, f"{found.capacity:,}", full,
    )  # fmt: skip


def _data(found: Analysis) -> dict[str, Any]:
    one, best = found.decode[0], found.best
    return {
        "model": found.model.name,
        "chip": found.chip.name,
        "context": found.context,
        "weights_bytes": found.weights,
        "tokens_per_second_batch_1": one.tokens_per_second,
        "intensity_flop_per_byte": one.intensity,
        "ridge_flop_per_byte": found.machine.ridge,
        "compute_bound_from_batch": found.crossover,
        "sequences_that_fit": found.capacity,
        "tokens_per_second_full": best.tokens_per_second if best is not None else None,
    }
