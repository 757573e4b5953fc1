"""How many KV blocks fit on a chip beside the weights and what a step needs."""

from dataclasses import dataclass
from math import floor

from simulator.dims import AttentionDims
from simulator.dtypes import DType
from simulator.errors import UsageError
from simulator.graph import Role
from simulator.hardware import Chip
from simulator.memory import library_workspace, memory_timeline
from simulator.serving.composed import Rows, StepShape, compose
from simulator.serving.family import Family
from simulator.units import decimal


@dataclass(frozen=True, slots=True)
class Capacity:
    """Bytes of the device memory by use; *block* bytes of one KV block, of which there are *blocks*."""

    usable: int
    weights: int
    activations: int
    workspace: int
    block: int
    blocks: int

    @property
    def cache(self) -> int:
        """Bytes of all KV blocks."""
        return self.block * self.blocks


def position_bytes(family: Family, cache: DType | None = None) -> int:
    """Bytes of the keys and values of one position in all layers.

    2 x layers x KV heads x head size x bytes, if keys and values are alike.
    """
    bits = 0
    for id in family.attention:
        op = family.first.operators[id]
        assert isinstance(op.dims, AttentionDims)
        key, value = op.inputs[1:3]
        one = op.dims.head_dim * (cache or key.dtype).bits + op.dims.value_dim * (cache or value.dtype).bits
        bits += op.dims.kv_heads * one
    return bits // 8


def weights_bytes(family: Family) -> int:
    """Bytes of weights and buffers."""
    return family.first.bytes_of(Role.WEIGHT) + family.first.bytes_of(Role.BUFFER)


def capacity(
    family: Family,
    chip: Chip,
    block_size: int,
    tokens: int,
    batch: int,
    fraction: float = 0.9,
    cache: DType | None = None,
    blocks: int | None = None,
    draft: Family | None = None,
) -> Capacity:
    """Share out *fraction* of the memory of *chip*; UsageError says by how much something does not fit.

    tokens, batch  of the largest step, whose activations are live beside everything else.
    blocks         take that many and leave the rest empty.
    draft          a model that proposes tokens: its weights and its cache are there as well.
    """
    families = [family] if draft is None else [family, draft]
    usable = floor(chip.dram.capacity * fraction)
    weights = sum(weights_bytes(each) for each in families)
    name = family.first.workload.name + ("" if draft is None else f" and {draft.first.workload.name}")
    of = f"the {decimal(usable, 'B')} that may be used of {chip.name}'s {decimal(chip.dram.capacity, 'B')}"
    if weights > usable:
        raise UsageError(
            f"the weights of {name} do not fit: {decimal(weights, 'B')}, "
            f"{decimal(weights - usable, 'B')} more than {of}"
        )
    shape = StepShape(tokens, min(batch, tokens), None, Rows(1, tokens, tokens))
    graph = compose(family, shape, sized=True)
    live = memory_timeline(graph, range(len(graph)), allocation=chip.overheads.allocation).live
    activations = int(live[Role.ACTIVATION].max()) if Role.ACTIVATION in live else 0
    workspace = library_workspace(graph, chip, captured=True)
    block = block_size * sum(position_bytes(each, cache) for each in families)
    left = usable - weights - activations - workspace
    most = left // block if left > 0 else 0
    wanted = most if blocks is None else blocks
    if wanted < 1 and blocks is None:
        raise UsageError(
            f"no KV block of {name} fits: weights {decimal(weights, 'B')}, activations {decimal(activations, 'B')} "
            f"and workspace {decimal(workspace, 'B')} leave {decimal(max(0, left), 'B')} of {of}; "
            f"a block of {block_size} positions takes {decimal(block, 'B')}"
        )
    if wanted > most:
        raise UsageError(
            f"--blocks {wanted}: {decimal((wanted - most) * block, 'B')} more than fit; {most:,} blocks do in {of}"
        )
    if wanted < 1:
        raise UsageError(f"--blocks {wanted}: must be at least 1")
    return Capacity(usable, weights, activations, workspace, block, wanted)
