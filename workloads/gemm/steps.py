"""The steps of the GPU ladder: which kernel, cut how.  Plain data: loads neither torch nor Triton."""

from dataclasses import dataclass, replace

SIXTEEN_BIT = ("bf16", "fp16")
DTYPES = (*SIXTEEN_BIT, "fp32")
ITEM_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
_FMA_TILE, _FMA_DEPTH = 64, 32


@dataclass(frozen=True, slots=True)
class Config:
    """How a kernel cuts a product.

    block_m, block_n  rows and columns of the result that one program accumulates in registers.
    block_k           depth of one slice of the operands.
    warps             of 32 threads, in one program.
    stages            slices that are in shared memory or on their way at once; 1: nothing is fetched ahead.
    group             rows of tiles that are walked column by column, so that programs that run at once share operands
                      in the L2; 1: row by row.
    split_store       write the tile in two halves, which needs half the shared memory to do so.
    """

    block_m: int
    block_n: int
    block_k: int
    warps: int = 4
    stages: int = 1
    group: int = 1
    split_store: bool = False

    def fitting(self, dtype: str) -> "Config":
        """Return the same with smaller tiles for fp32, whose products run on the vector lanes out of registers."""
        if dtype in SIXTEEN_BIT:
            return self
        return replace(
            self,
            block_m=min(self.block_m, _FMA_TILE),
            block_n=min(self.block_n, _FMA_TILE),
            block_k=min(self.block_k, _FMA_DEPTH),
        )

    def slice_bytes(self, item: int) -> int:
        """Bytes of one slice of both operands, elements of *item* bytes."""
        return (self.block_m + self.block_n) * self.block_k * item


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the ladder.

    kernel  function in `workloads.gemm.kernels`, without its ``gemm_``.
    adds    what is new in it, in a few words.
    """

    name: str
    kernel: str
    config: Config
    adds: str


_TILE = Config(128, 256, 64, warps=8)
LADDER = (
    Step("naive", "elements", Config(128, 1, 1), "a thread an element, neighbours a row apart"),
    Step("coalesced", "elements", Config(1, 128, 1), "neighbours a column apart: a line serves 32 threads"),
    Step("shared", "tiled", Config(32, 32, 32), "slices of 32 x 32 in shared memory, matrix unit"),
    Step("registers", "tiled", _TILE, "128 x 256 sums in the registers of a program"),
    Step("pipelined", "tiled", replace(_TILE, stages=3), "three slices on their way at once"),
    Step("grouped", "tiled", replace(_TILE, stages=3, group=8), "tiles in bands of 8 rows, for the L2"),
    Step("persistent", "persistent", replace(_TILE, stages=3, group=8), "one program a core takes tile after tile"),
    Step("descriptor", "descriptor", replace(_TILE, stages=3, group=8), "tiles copied by hardware from a descriptor"),
)


def step(name: str) -> Step:
    """Return the step *name* of the ladder.

    Raises ValueError if there is none.
    """
    for each in LADDER:
        if each.name == name:
            return each
    raise ValueError(f"there is no step {name!r}; steps: {', '.join(each.name for each in LADDER)}")
