"""What measurements of a real chip, or of its generation, add to its data sheet: a handful of named constants.

All are fractions of a data-sheet figure, multiples of the chip's launch latency, or cycles of its clock, so that they
stay true when a chip is changed (``--set``, a sweep, a replay with one resource infinite) and carry over to chips
that nobody has measured.  A chip without a ``calibration`` section gets the values written here as defaults; where
each of them comes from stands in ``docs`` and in the section of the chip that it was fitted on (h200).
"""

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import ConfigDict, Field

Fraction = Annotated[float, Field(gt=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]

_CLOSED = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulCalibration:
    """Matrix products as waves of tiles.

    launch           fixed time, in launch latencies: prologue of the pipeline and tail included.
    efficiency       part of the matrix peak that a full tile sustains at the data-sheet clock.
    step_cycles      shortest time between two steps of 128 B along K of one tile: memory latency over stages.
    stream           bytes per cycle that one core can draw from the off-chip memory, however idle the others are.
    overlap          how well arithmetic hides traffic: (arithmetic ** overlap + traffic ** overlap) ** (1 / overlap).
    split            adding up the parts of a product whose K was split, in launch latencies.
    multicast        cores that share one fetch of an operand from the cache.
    store            part of the streaming bandwidth at which tiles write their results.
    unaligned        times slower where rows are multiples of 2 B only, not of 16 B, so that no wide or bulk copy can be
                     used; its power of 1/3 or 2/3 for multiples of 8 and 4 B.
    vector           part of the vector peak that a product reaches for which the matrix units have no mode.
    dequantise       lane operations that unpacking one quantised weight takes in each tile that uses it: mask, shift,
                     convert, multiply-add in a plain kernel.
    packed_row       part of that more for each row of such a tile: registers that its results take hide less latency.
    packed_rows      most rows of such a tile: the registers hold unpacked weights too, so it is lower than a dense one.
    unpacked         part of the streaming bandwidth at which a kernel writes all weights unpacked, for a dense product.
    """

    __pydantic_config__ = _CLOSED
    launch: Positive = 2.0
    efficiency: Fraction = 0.9
    step_cycles: NotNegative = 260.0
    stream: Positive = 32.0
    overlap: Annotated[float, Field(ge=1)] = 4.0
    split: NotNegative = 2.0
    multicast: Annotated[float, Field(ge=1)] = 2.0
    store: Fraction = 0.8
    unaligned: Positive = 7.0
    vector: Fraction = 0.75
    dequantise: NotNegative = 2.7
    packed_row: NotNegative = 0.07
    packed_rows: Positive = 128.0
    unpacked: Fraction = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCalibration:
    """Fused attention: blocks of 128 query rows, two at a time on a core; with few queries, streams of keys.

    launch         fixed time, in launch latencies.
    efficiency     part of the matrix peak that its products reach between the exponentials.
    exponentials   exponentials per cycle and core.
    alone          times that a block runs slower by having no second one beside it on its core, to hide latency.
    tail           part of the longest block's time by which the last blocks of a causal mask finish late.
    block_cycles   fixed cycles of one block of queries: load, normalise, store.
    backward       part of *efficiency* that the five products of the gradient reach.
    stream         bytes per cycle that one block of a decode kernel draws when it is not split.
    split_stream   the same when the keys are split over blocks.
    split          adding up the parts, in launch latencies; *part_cycles* more for each part.
    """

    __pydantic_config__ = _CLOSED
    launch: Positive = 3.3
    efficiency: Fraction = 0.6
    exponentials: Positive = 20.0
    alone: Positive = 1.3
    tail: NotNegative = 0.5
    block_cycles: NotNegative = 1000.0
    backward: Positive = 0.8
    stream: Positive = 5.0
    split_stream: Positive = 10.0
    split: NotNegative = 2.0
    part_cycles: NotNegative = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedCalibration:
    """Attention of single tokens over paged keys and values, which a block looks up 64 at a time.

    launch        fixed time, in launch latencies.
    block_cycles  from the start of a block to its first keys, and from its last ones to its end.
    tile_cycles   cycles in which a block takes 64 keys and values, however many others run.
    combine       launch of the kernel that adds parts up, in launch latencies; *part_cycles* more for each part, and
                  *row_cycles* of a core for each head of each token.
    """

    __pydantic_config__ = _CLOSED
    launch: Positive = 1.13
    block_cycles: NotNegative = 5000.0
    tile_cycles: NotNegative = 2700.0
    combine: NotNegative = 1.6
    part_cycles: NotNegative = 94.0
    row_cycles: NotNegative = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCalibration:
    """A kernel that works along rows, a block of threads for each.

    passes       times that what it reads goes through the memory path.
    latency      cycles that one block takes for a row, however short; *element_latency* more for each element.
    span         elements of a row above which 32 times as many threads work on it.
    cycles       cycles of a core for each element, with many rows; *row_cycles* more for each row.
    held         elements up to which a block keeps its row in registers: it is read once, but so few blocks fit on a
                 core that an element takes *held_cycles*.
    """

    __pydantic_config__ = _CLOSED
    passes: Annotated[float, Field(ge=1)] = 1.5
    latency: NotNegative = 2000.0
    element_latency: NotNegative = 1.5
    span: Positive = 1e6
    cycles: NotNegative = 0.2
    row_cycles: NotNegative = 150.0
    held: NotNegative = 0.0
    held_cycles: NotNegative = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorCalibration:
    """Everything that is no matrix product.

    launch      fixed time of a pointwise or row kernel, in launch latencies.
    first_byte  cycles until data flows; hidden by the rest of the traffic where there is much.
    strided     part of the bandwidth that a copy across rows reaches (a transpose made contiguous).
    addressed   elements per cycle and core of a kernel that works out each one's address (broadcast, permuted).
    converted   elements per cycle and core of a kernel that converts each one it loads (operands of several types).
    converting  cycles more until the first of them is there.
    columns     bytes per cycle that one block draws which sums down 32 columns: a norm's gain and bias backwards.
    optimizer   parameters per cycle and core that a fused AdamW updates.
    unaligned   times slower a norm is whose rows are no multiple of 16 B.
    block_norm  a norm whose row stays in the registers of one block, as short kernels are written by hand.
    """

    __pydantic_config__ = _CLOSED
    launch: Positive = 0.8
    first_byte: NotNegative = 900.0
    strided: Fraction = 0.14
    addressed: Positive = 1.0
    converted: Positive = 1.5
    converting: NotNegative = 1500.0
    columns: Positive = 25.0
    optimizer: Positive = 0.5
    unaligned: Positive = 2.0
    norm: RowCalibration = field(default_factory=RowCalibration)
    rms_norm: RowCalibration = field(default_factory=RowCalibration)
    block_norm: RowCalibration = field(
        default_factory=lambda: RowCalibration(passes=1.0, latency=0.0, element_latency=0.3)
    )
    softmax: RowCalibration = field(default_factory=RowCalibration)
    reduction: RowCalibration = field(default_factory=RowCalibration)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCalibration:
    """How the clock falls when matrix units would draw more (``power.energy.matrix``) than the cap leaves.

    exponent   time grows with (power wanted / power allowed) ** exponent: 1 if energy for one operation is fixed,
               less because voltage falls with the clock.
    averaging  how far the controller looks at the mean power of a run and not at that of each kernel: 0 to 1.
    """

    __pydantic_config__ = _CLOSED
    exponent: Fraction = 0.7
    averaging: Annotated[float, Field(ge=0, le=1)] = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Constants of one chip or generation, and where they were measured.

    dram     part of the data-sheet bandwidth that streams reach.
    cache    bandwidth of the last cache level as a multiple of the data-sheet bandwidth of the memory behind it;
             used where the description gives the level none of its own.
    resident part of the last cache level's capacity in which data survives until it is used again.

    *attention* is the kernel that the framework takes by itself (cuDNN's on Hopper), *flash* the one that a program
    asks for by name (FlashAttention 2) and that runs of tokens over a paged cache are taken for; *paged* is for single
    tokens.
    """

    __pydantic_config__ = _CLOSED
    source: Annotated[str, Field(min_length=10)] = "defaults of the tile model: no measurements of this chip"
    dram: Fraction = 0.87
    cache: Positive = 2.3
    resident: Fraction = 0.6
    matmul: MatmulCalibration = field(default_factory=MatmulCalibration)
    attention: AttentionCalibration = field(default_factory=AttentionCalibration)
    flash: AttentionCalibration = field(default_factory=AttentionCalibration)
    paged: PagedCalibration = field(default_factory=PagedCalibration)
    vector: VectorCalibration = field(default_factory=VectorCalibration)
    power: PowerCalibration = field(default_factory=PowerCalibration)
