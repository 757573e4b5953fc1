"""The roofline of a language model on a chip: what binds prefill, what binds decode, and from which batch on.

Traffic is the least that a step can do with: every weight once, every key and value once; activations stay on the
chip.  Times are floors: the peak and the bandwidth of the data sheet, arithmetic and memory fully overlapped.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from simulator.dtypes import DType
from simulator.errors import UsageError
from simulator.hardware import Chip
from workloads.gpt.config import Config
from workloads.gpt.estimates import kv_bytes, kv_bytes_per_token
from workloads.gpt.parameters import parameters
from workloads.gpt.table import step, table
from workloads.roofline.inference import capacity_batch, chips_needed, crossover_batch
from workloads.roofline.machine import Machine, machine, math_dtype

BATCHES = (1, 8, 64, 512)


@dataclass(frozen=True, slots=True)
class Point:
    """One step of *batch* sequences: its work, its least traffic, its least time, and what it keeps in memory."""

    batch: int
    tokens: int
    flops: int
    nbytes: int
    resident: int
    seconds: float
    compute_bound: bool
    fits: bool

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.nbytes

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def flops_per_second(self) -> float:
        return self.flops / self.seconds

    @property
    def bound(self) -> str:
        return "compute" if self.compute_bound else "bandwidth"


@dataclass(frozen=True, slots=True)
class Analysis:
    """What there is to say about one model on *count* chips.

    ridges           FLOP per byte at which each type of the chip turns from bandwidth to compute bound.
    math             type in which weights stored as *dtype* are multiplied.
    weights          bytes of all weights; *kv_each* bytes of one sequence's keys and values at *context*.
    prefill_turn     prompt length from which prefill is compute bound; None if not within the model's context.
    crossover        batch from which decode is compute bound; None if traffic grows as fast as the arithmetic.
    crossover_limit  context above which there is no such batch; None if there is one at any context.
    capacity         sequences that fit at *context*; *chips* that the weights alone fill.
    """

    model: Config
    chip: Chip
    count: int
    machine: Machine
    dtype: DType
    kv_dtype: DType
    math: DType
    context: int
    ridges: Mapping[DType, float]
    weights: int
    kv_each: int
    prefill: Point
    prefill_turn: int | None
    decode: tuple[Point, ...]
    crossover: float | None
    crossover_limit: float | None
    capacity: int
    chips: float

    @property
    def best(self) -> Point | None:
        """Decode at the largest batch that fits; None if nothing does."""
        return max((point for point in self.decode if point.fits), key=lambda point: point.batch, default=None)


@dataclass(frozen=True, slots=True)
class _Question:
    """A model at a context, with its types, on a machine."""

    config: Config
    at: Machine
    dtype: DType
    kv_dtype: DType

    def prefill(self, batch: int, seq: int) -> Point:
        written = batch * seq * kv_bytes_per_token(self.config, self.kv_dtype)
        return self._point("prefill", batch, seq, written, written)

    def decode(self, batch: int, context: int) -> Point:
        cache = batch * context * kv_bytes_per_token(self.config, self.kv_dtype)
        return self._point("decode", batch, context, kv_bytes(self.config, batch, context, self.kv_dtype), cache)

    def _point(self, phase: str, batch: int, length: int, moved: int, cache: int) -> Point:
        shape = step(phase, batch, length, self.dtype)
        flops = sum(row.count * row.flops for row in table(self.config, shape))
        nbytes = self.read_weights(shape.tokens) + moved
        resident = self.stored_weights() + cache
        compute_bound = flops / self.at.peak >= nbytes / self.at.bandwidth
        seconds = self.at.seconds(flops, nbytes)
        return Point(batch, shape.tokens, flops, nbytes, resident, seconds, compute_bound, resident <= self.at.capacity)

    def stored_weights(self) -> int:
        return _bytes(parameters(self.config).total, self.dtype)

    def read_weights(self, tokens: int) -> int:
        """Bytes of the weights that a step reads: a look-up in the embedding is no pass over it, and a few tokens
        do not visit all experts."""
        p, c = parameters(self.config), self.config
        passed = p.total - p.embedding + (c.vocab * c.width if c.tied else 0)
        if c.experts:
            visited = min(c.experts.count, tokens * c.experts.active)
            passed += p.ffn // c.experts.count * visited - p.ffn
        return _bytes(passed, self.dtype)

    def prefill_turn(self) -> int | None:
        """Return the shortest prompt that is compute bound: intensity only grows with the length."""
        low, high = 1, self.config.context
        if not self.prefill(1, high).compute_bound:
            return None
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.prefill(1, middle).compute_bound else (middle + 1, high)
        return low

    def crossover(self, context: int) -> float | None:
        """Return the batch from which decode is compute bound, if there is one."""
        one = self.decode(1, context)
        all_weights = self.read_weights(tokens=self.config.experts.count if self.config.experts else 1)
        return crossover_batch(self.at, all_weights, kv_bytes(self.config, 1, context, self.kv_dtype), one.flops)

    def crossover_limit(self) -> float | None:
        """Return the context at which one more sequence brings as much traffic as arithmetic.

        FLOP are a + b T and bytes c T, so that T = a / (ridge c - b); b comes from two contexts.
        """
        short, long = (self.decode(1, context).flops for context in (1, 2))
        per_key = long - short
        surplus = self.at.ridge * kv_bytes_per_token(self.config, self.kv_dtype) - per_key
        return (short - per_key) / surplus if surplus > 0 else None


def _bytes(elements: int, dtype: DType) -> int:
    return elements * dtype.bits // 8


def analyse(
    config: Config,
    chip: Chip,
    dtype: DType = DType.BF16,
    context: int = 1024,
    seq: int = 512,
    batch: int = 1,
    kv_dtype: DType | None = None,
    count: int = 1,
    batches: Iterable[int] = BATCHES,
) -> Analysis:
    """Return the roofline of *config* on *count* of *chip*, split evenly with nothing lost between them.

    dtype     of the weights, and *kv_dtype* of the cache (the same if not given).
    context   positions that a decode step looks back on; *seq* tokens of a prompt, *batch* prompts at once.
    batches   for which decode is worked out, besides *batch* and the largest that fits.
    """
    for label, value in (("context", context), ("sequence", seq)):
        if value > config.context:
            raise UsageError(f"{config.name}: {label} is {value}, longer than the model's context {config.context}")
    at = machine(chip, dtype, count)
    asked = _Question(config, at, dtype, kv_dtype or dtype)
    kv_each = context * kv_bytes_per_token(config, asked.kv_dtype)
    capacity = capacity_batch(at, asked.stored_weights(), kv_each)
    shown = sorted({*batches, batch} | ({capacity} if capacity else set()))
    full_attention = config.window == (0,)
    return Analysis(
        model=config, chip=chip, count=count, machine=at, dtype=dtype, kv_dtype=asked.kv_dtype,
        math=math_dtype(chip, dtype), context=context, ridges=ridge_points(chip), weights=asked.stored_weights(),
        kv_each=kv_each, prefill=asked.prefill(batch, seq), prefill_turn=asked.prefill_turn(),
        decode=tuple(asked.decode(each, context) for each in shown), crossover=asked.crossover(context),
        crossover_limit=asked.crossover_limit() if full_attention else None, capacity=capacity,
        chips=chips_needed(machine(chip, dtype), asked.stored_weights()),
    )  # fmt: skip


def ridge_points(chip: Chip) -> dict[DType, float]:
    """Return FLOP per byte at the ridge for every type that the matrix units take."""
    return {dtype: chip.peak(dtype) / chip.dram_bandwidth for dtype in chip.matrix.dtypes}
