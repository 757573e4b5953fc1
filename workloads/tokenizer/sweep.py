"""The sweep over vocabularies on one chip or on every chip of the library, as tables and as data."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from hw_models import chip_names, load_chip
from simulator.dtypes import DType
from simulator.hardware import Chip
from simulator.units import decimal
from workloads.gpt.config import Config
from workloads.gpt.presets import preset
from workloads.lab import LabTable
from workloads.tokenizer.compression import Curve
from workloads.tokenizer.cost import Cost, Use, best, optimum

MODELS = ("gpt2", "llama-1b", "llama-8b")
_SIZE_COLUMNS = (
    ">vocabulary", ">tokens/B", ">embedding", ">head FLOP/char", ">traffic/char", ">head share", ">us/char", ">to best",
)  # fmt: skip


def uses(dtype: DType = DType.BF16, characters: int = 2000) -> tuple[Use, ...]:
    """Return the uses that an optimum is shown for."""
    return tuple(
        Use(phase=phase, batch=batch, characters=characters, dtype=dtype)
        for phase, batch in (("decode", 1), ("decode", 64), ("prefill", 1), ("train", 8))
    )


def sizes_table(config: Config, chip: Chip, curve: Curve, use: Use, found: Sequence[Cost]) -> LabTable:
    """Every size on one chip, the best marked."""
    least = best(found)
    rows = [_row(cost, least) for cost in found]
    title = f"{config.name} on {chip.name}, {use}, {use.characters:,} characters, {use.dtype}"
    return LabTable(title, _SIZE_COLUMNS, rows, f"~: {extrapolation(curve)}; times are floors of the data sheet")


def _row(cost: Cost, least: Cost) -> tuple[str, ...]:
    mark = "" if cost.measured else "~"
    slower = "best" if cost.size == least.size else f"+{cost.seconds / least.seconds - 1:.1%}"
    return (
        f"{cost.size:,}", f"{mark}{cost.tokens_per_byte:.4f}", decimal(cost.embedding, "B"),
        decimal(cost.head_flops, ""), decimal(cost.nbytes, "B"), f"{cost.head_share:.1%}",
        f"{cost.seconds * 1e6:,.4g}", slower if cost.fits else "does not fit",
    )  # fmt: skip


def extrapolation(curve: Curve) -> str:
    """Say how the sizes that the text does not support come about."""
    law = curve.law
    return (
        f"beyond the {curve.largest:,} tokens that the text supports, extrapolated by {law.floor:.3f} + "
        f"{law.scale:.1f} V^-{law.power:.2f} (fitted to V <= {law.fitted_to:,}; off by {law.error:+.1%} at "
        f"{law.checked_at:,})"
    )


Optimum = tuple[Cost, tuple[int, int]]


def optima(config: Config, chip: Chip, curve: Curve, asked: Iterable[Use]) -> list[Optimum]:
    """Return the best vocabulary for each use, and the sizes that are as good within 1 %."""
    return [optimum(config, chip, curve, _fitting(config, curve, use)) for use in asked]


def _fitting(config: Config, curve: Curve, use: Use) -> Use:
    """Return *use* with texts no longer than the model can look back on with the smallest vocabulary."""
    most = int(config.context / curve.tokens_per_character(min(curve.measured)))
    return use if use.characters <= most else replace(use, characters=most)


def chips_with(dtype: DType, first: Chip | None = None) -> list[Chip]:
    """Return *first*, and the chips of the library but for its namesake, that have *dtype* in their matrix units."""
    chips = [load_chip(name) for name in chip_names()]
    if first is not None:
        chips = [first, *(chip for chip in chips if chip.name != first.name)]
    return [chip for chip in chips if dtype in chip.matrix.dtypes]


def chips_table(config: Config, chips: Sequence[Chip], curve: Curve, asked: Sequence[Use]) -> LabTable:
    """The best vocabulary of each chip in each use."""
    rows = [(chip.name, *map(_cell, optima(config, chip, curve, asked))) for chip in chips]
    return LabTable(f"Best vocabulary of {config.name}, chip by chip", ("chip", *_titles(asked)), rows, _NOTE)


def models_table(chip: Chip, curve: Curve, asked: Sequence[Use]) -> LabTable:
    """The best vocabulary of each of MODELS on one chip."""
    rows = [(name, *map(_cell, optima(preset(name), chip, curve, asked))) for name in MODELS]
    return LabTable(f"Best vocabulary on {chip.name}, model by model", ("model", *_titles(asked)), rows, _NOTE)


_NOTE = (
    "least time per character (sizes within 1 % of it); B: bandwidth binds, C: compute; ~: beyond what was measured; "
    "none: fits at no size"
)


def _titles(asked: Iterable[Use]) -> list[str]:
    return [f">{use}" for use in asked]


def _cell(found: Optimum) -> str:
    cost, (low, high) = found
    if not cost.fits:
        return "none: capacity"
    return f"{'' if cost.measured else '~'}{_k(cost.size)} ({_k(low)}-{_k(high)}) {str(cost.bound)[0].upper()}"


def _k(size: int) -> str:
    return f"{size / 1024:.0f}k" if size >= 1024 else str(size)


def as_data(found: Iterable[Cost]) -> list[dict[str, Any]]:
    """Return costs as plain data for JSON."""
    return [asdict(cost) | {"bound": str(cost.bound)} for cost in found]


def curve_data(curve: Curve) -> dict[str, Any]:
    """Return the curve as plain data for JSON."""
    return asdict(curve) | {"split": str(curve.split)}
