"""Lab 2: how the size of a vocabulary moves the cost of embedding and output, per character of text."""

from simulator.hardware import Chip
from simulator.units import decimal
from workloads.gpt.presets import preset
from workloads.lab import LabAnswer
from workloads.tokenizer.compression import Curve, python_curve
from workloads.tokenizer.cost import Cost, Use, best, shown_costs
from workloads.tokenizer.patterns import Split
from workloads.tokenizer.sweep import (
    MODELS,
    as_data,
    chips_table,
    chips_with,
    curve_data,
    models_table,
    optima,
    sizes_table,
    uses,
)

MODEL = "llama-1b"
SPLIT = Split.CL100K


def answer(chip: Chip) -> LabAnswer:
    """Train on the Python library, sweep vocabularies of MODEL on *chip*, and find the best of every chip."""
    curve, config, use, asked = python_curve(SPLIT), preset(MODEL), uses()[0], uses()
    found = shown_costs(config, chip, curve, use)
    chips = chips_with(use.dtype, chip)
    return LabAnswer(
        question="how does the size of the vocabulary move the cost of embedding and output?",
        sentence=_sentence(found, chip),
        tables=(
            sizes_table(config, chip, curve, use, found),
            models_table(chip, curve, asked),
            chips_table(config, chips, curve, asked),
        ),
        bound=best(found).bound,
        verdict=_verdict(chip, curve, found, asked),
        data={
            "model": MODEL,
            "characters": use.characters,
            "dtype": str(use.dtype),
            "curve": curve_data(curve),
            "sizes": as_data(found),
            "chips": {each.name: _optima(MODEL, each, curve, asked) for each in chips},
            "models": {name: _optima(name, chip, curve, asked) for name in MODELS},
        },
    )


def _optima(model: str, chip: Chip, curve: Curve, asked: tuple[Use, ...]) -> dict[str, dict[str, object]]:
    found = optima(preset(model), chip, curve, asked)
    rows = as_data(cost for cost, _ in found)
    ranges = [{"within_1_percent": list(near)} for _, near in found]
    return {str(use): row | near for use, row, near in zip(asked, rows, ranges, strict=True)}


def _sentence(found: list[Cost], chip: Chip) -> str:
    least, first, last = best(found), found[0], found[-1]
    saved, longer = 1 - least.tokens_per_byte / first.tokens_per_byte, last.seconds / least.seconds - 1
    return (
        f"{MODEL}, decoding alone on {chip.name}, is fastest per character with {least.size:,} tokens: against "
        f"{first.size:,} it makes {saved:.0%} fewer tokens of a text for a head of {least.head_share:.1%} of the "
        f"traffic; with {last.size:,} the head is {last.head_share:.0%} of it, the embedding "
        f"{decimal(last.embedding, 'B')}, and a character takes {longer:.0%} longer."
    )


def _verdict(chip: Chip, curve: Curve, found: list[Cost], asked: tuple[Use, ...]) -> str:
    least = best(found)
    if not least.fits:
        return f"The model does not fit on {chip.name} with any vocabulary: {decimal(least.resident, 'B')} at the best."
    alone, many = (cost.size for cost, _ in optima(preset(MODEL), chip, curve, asked[:2]))
    small, large = (optima(preset(name), chip, curve, asked[:1])[0][0].size for name in (MODELS[0], MODELS[-1]))
    return (
        "Doubling the vocabulary pays while it saves a larger share of the tokens than the head adds to a step. What "
        f"is read beside the head decides that: alone, {small:,} tokens are best for {MODELS[0]}, {alone:,} for "
        f"{MODEL} and {large:,} for {MODELS[-1]}; at batch 64, {many:,} for {MODEL}. The chip moves the best only "
        f"where it changes what binds. A SoC pays for a vocabulary in capacity ({decimal(least.embedding, 'B')} here) "
        "and in bandwidth for the head."
    )
