"""How a step of the ladder lies on a core: programs at once, slices in flight, lines and operands read."""

from dataclasses import dataclass
from math import sqrt

from workloads.gemm.steps import Config, Step

WARP = 32
LINE = 128  # bytes of a cache line, the most that the on-chip port gives in a cycle
SECTOR = 32  # bytes, the least that moves between the cache levels
_ACCUMULATOR = 4  # bytes of an fp32 sum
_WORKING_REGISTERS = 40  # a thread's addresses and loop, besides sums and loads: what ptxas gives the tiled kernels
_ELEMENT_REGISTERS = 32  # of a thread of the element kernels
_REGISTERS = 65536  # of a core, of 32 bits
_WARPS = 64  # that a core of Nvidia's since Volta holds at most
_SHARED = 227 * 1024  # bytes of shared memory that programs of one core can have on Hopper
_GROUP_ROWS = 64  # of a tile that four warps multiply together and read the right operand once for


@dataclass(frozen=True, slots=True)
class Residence:
    """What of a step is on one core at a time.

    programs     that run at once on a core.
    shared       bytes of shared memory of one program.
    registers    32-bit registers of one thread.
    in_flight    slices of K of all programs that are on their way or being worked on at once.
    """

    programs: int
    shared: int
    registers: int
    in_flight: int


def residence(step: Step, item: int) -> Residence:
    """Return what of *step* a core of Hopper's size holds, elements of *item* bytes.

    Limits are those of compute capability 9.0 (CUDA C++ programming guide, table of technical specifications).
    """
    cut = step.config
    threads = cut.warps * WARP
    if step.kernel == "elements":
        shared, registers = 0, _ELEMENT_REGISTERS
    else:
        waiting = cut.slice_bytes(item) // 4 // threads if cut.stages == 1 else 0  # loads pass through registers
        registers = cut.block_m * cut.block_n // threads + waiting + _WORKING_REGISTERS
        shared = cut.stages * cut.slice_bytes(item)
        if step.kernel == "descriptor":  # a tile is written from shared memory
            shared += cut.block_m * cut.block_n * item // (2 if cut.split_store else 1)
    fits = [_WARPS // cut.warps, _REGISTERS // (min(registers, 255) * threads)]
    if shared:
        fits.append(_SHARED // shared)
    programs = max(1, min(fits))
    return Residence(programs, shared, registers, programs * cut.stages)


def reads_of_operands(cut: Config) -> tuple[int, int]:
    """Return how often one slice of the left and of the right operand is read from shared memory.

    Four warps multiply 64 rows by all columns at once where the tile has them; else each warp has its own rectangle.

    >>> reads_of_operands(Config(128, 256, 64, warps=8)), reads_of_operands(Config(32, 32, 32))
    ((1, 2), (2, 2))
    """
    if cut.block_m >= _GROUP_ROWS and cut.warps % 4 == 0:
        return 1, cut.block_m // _GROUP_ROWS
    side = max(1, round(sqrt(cut.warps)))
    return side, max(1, cut.warps // side)


def lines_a_step(cut: Config) -> int:
    """Return the lines that one warp of the element kernels touches for one k: what its port is busy for.

    Neighbours a row apart touch a line each for the left operand; neighbours a column apart share one.

    >>> lines_a_step(Config(128, 1, 1)), lines_a_step(Config(1, 128, 1))
    (33, 2)
    """
    return WARP + 1 if cut.block_n == 1 else 2
