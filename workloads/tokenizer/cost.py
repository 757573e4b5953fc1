"""What a vocabulary costs on a chip, per character of text: the unit in which vocabularies can be compared.

A larger vocabulary makes fewer tokens of the same text, so that weights, keys and values cross memory less often; its
price is a larger head, read at every step, and a larger embedding, kept in memory.  Times are floors: each operator of
`workloads.gpt.table` takes the longer of its arithmetic and its traffic by the chip's data sheet, one after another.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from simulator.dtypes import DType
from simulator.errors import UsageError
from simulator.hardware import Chip
from simulator.variants import Resource
from workloads.gpt.config import Config
from workloads.gpt.estimates import kv_bytes_per_token
from workloads.gpt.parameters import parameters
from workloads.gpt.table import Row, Step, step, table
from workloads.roofline.machine import Machine, machine
from workloads.tokenizer.compression import FINE, SIZES, Curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What the model is used for: *phase* of *batch* texts, each *characters* long, in *dtype*.

    decode   one step for each text; *characters* stand in the cache.
    prefill  all texts in one step, logits for the last token of each.
    train    the forward pass over all texts, logits for every token; backward costs twice that at any vocabulary.
    """

    phase: str = "decode"
    batch: int = 1
    characters: int = 4096
    dtype: DType = DType.BF16

    def __str__(self) -> str:
        return f"{self.phase}, batch {self.batch}"


@dataclass(frozen=True, slots=True)
class Cost:
    """One vocabulary in one use.

    embedding   bytes of the table, and of the head if it is another.
    head_flops, nbytes, seconds   per character: of the head; of all traffic; of the whole step.
    head_share  of the traffic.
    resident    bytes of weights, keys and values; *fits* if the chip's memory holds them.
    bound       what most of the time is spent on, or capacity if it does not fit.
    """

    size: int
    tokens_per_byte: float
    measured: bool
    embedding: int
    head_flops: float
    nbytes: float
    head_share: float
    seconds: float
    resident: int
    fits: bool
    bound: Resource


def costs(config: Config, chip: Chip, curve: Curve, use: Use, sizes: Iterable[int]) -> list[Cost]:
    """Return the cost of each vocabulary size; UsageError if the model cannot look back on so many characters."""
    _check(config, curve, use)
    return [_cost(replace(config, vocab=size), machine(chip, use.dtype), curve, use) for size in sizes]


def shown_costs(config: Config, chip: Chip, curve: Curve, use: Use) -> list[Cost]:
    """Return the cost of each of SIZES, and of the best of FINE among them."""
    least, _ = optimum(config, chip, curve, use)
    return costs(config, chip, curve, use, sorted({*SIZES, least.size}))


def best(found: Iterable[Cost]) -> Cost:
    """Return the vocabulary of least time per character: of those that fit, if any does."""
    listed = list(found)
    return min([cost for cost in listed if cost.fits] or listed, key=lambda cost: cost.seconds)


def near(found: Iterable[Cost], least: Cost) -> tuple[int, int]:
    """Return the smallest and the largest size that take at most 1 % longer than *least*: optima are flat."""
    close = [cost.size for cost in found if cost.seconds <= 1.01 * least.seconds]
    return min(close), max(close)


def optimum(config: Config, chip: Chip, curve: Curve, use: Use) -> tuple[Cost, tuple[int, int]]:
    """Return the best of FINE sizes, and the range of sizes within 1 % of it."""
    found = costs(config, chip, curve, use, FINE)
    least = best(found)
    return least, near(found, least)


def _cost(config: Config, at: Machine, curve: Curve, use: Use) -> Cost:
    each = curve.tokens_per_character(config.vocab)
    length = max(1, round(use.characters * each))
    taken = step(use.phase, use.batch, length, use.dtype)
    rows = table(config, taken)
    characters = use.batch / each if use.phase == "decode" else use.batch * use.characters
    head = rows[-1]
    nbytes = sum(row.count * _moved(row) for row in rows)
    compute = sum(_seconds(row, at) for row in rows if row.flops / at.peak > _moved(row) / at.bandwidth)
    seconds = sum(_seconds(row, at) for row in rows)
    resident = _resident(config, taken, use)
    fits = resident <= at.capacity
    return Cost(
        size=config.vocab,
        tokens_per_byte=curve.tokens_per_byte(config.vocab),
        measured=curve.is_measured(config.vocab),
        embedding=(1 if config.tied else 2) * taken.size(config.vocab * config.width),
        head_flops=head.flops / characters,
        nbytes=nbytes / characters,
        head_share=_moved(head) / nbytes,
        seconds=seconds / characters,
        resident=resident,
        fits=fits,
        bound=_bound(fits, compute, seconds),
    )


def _moved(row: Row) -> int:
    return row.reads + row.writes


def _seconds(row: Row, at: Machine) -> float:
    return row.count * at.seconds(row.flops, _moved(row))


def _resident(config: Config, taken: Step, use: Use) -> int:
    """Weights, and the keys and values that stay after the step: none do in training."""
    kept = 0 if use.phase == "train" else taken.batch * taken.keys * kv_bytes_per_token(config, use.dtype)
    return taken.size(parameters(config).total) + kept


def _bound(fits: bool, compute: float, seconds: float) -> Resource:
    if not fits:
        return Resource.CAPACITY
    return Resource.COMPUTE if compute > seconds / 2 else Resource.BANDWIDTH


def _check(config: Config, curve: Curve, use: Use) -> None:
    for label, value in (("batch", use.batch), ("characters", use.characters)):
        if value < 1:
            raise UsageError(f"{label} is {value}, needs at least 1")
    smallest = min(curve.measured)
    tokens = round(use.characters * curve.tokens_per_character(smallest))
    if tokens > config.context:
        raise UsageError(
            f"{config.name}: {use.characters:,} characters are {tokens:,} tokens of a vocabulary of {smallest}, "
            f"more than the model's context of {config.context:,}"
        )
