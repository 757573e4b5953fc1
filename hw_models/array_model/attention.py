"""Fused attention on arrays: its products beside the softmax on the vector unit, the scores kept on the chip."""

from dataclasses import dataclass

from hw_models.array_model.place import SUM_BYTES, Place, word_bytes
from hw_models.array_model.plan import Plan
from simulator.dims import AttentionDims
from simulator.dtypes import DType

SOFTMAX_FLOPS = 5
"""Vector operations of one query-key pair: maximum, subtract, exponential, sum, divide."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Steps of the arrays, FLOP of the vector unit, off-chip bytes beyond the least, and words on how."""

    steps: float
    softmax: int
    again: float
    detail: str


def attention(dims: AttentionDims, dtype: DType, plans: tuple[Plan, ...], place: Place) -> Attention:
    """Put the *plans* of its products together; *place* is where its queries, keys and values wait."""
    share = covered(dims, max(place.array.rows, place.array.columns))
    steps = share * sum(each.busy for each in plans)
    blocks, missing = _blocks(dims, dtype, place)
    passes = 2 if dims.backward else 1
    detail = f"{sum(each.folds for each in plans)} folds" + (f", {share:.0%} of the pairs" if share < 1 else "")
    return Attention(
        steps=steps,
        softmax=SOFTMAX_FLOPS * dims.batch * dims.heads * dims.pairs,
        again=passes * share * dims.batch * dims.kv_heads * (blocks - 1) * missing,
        detail=f"{detail}, {blocks} blocks of queries" if blocks > 1 else detail,
    )


def covered(dims: AttentionDims, tile: int) -> float:
    """Return the share of all query-key pairs that the arrays work on: masked ones are left out by whole tiles of keys.

    >>> covered(AttentionDims(1, 1, 1, 512, 512, 64, 64, causal=True), tile=128)
    0.625
    """
    pairs = dims.q_len * dims.kv_len
    if not pairs or dims.pairs >= pairs:
        return 1.0
    return min(1.0, (dims.pairs + dims.q_len * (tile - 1) / 2) / pairs)


def _blocks(dims: AttentionDims, dtype: DType, place: Place) -> tuple[int, float]:
    """Return the blocks that the queries of one key head run in, and the bytes of its keys and values that come again.

    Half of the scratchpad holds keys and values, the other half queries, scores of one fold and outputs.
    """
    size = word_bytes(dtype)
    row = (dims.head_dim + place.array.columns) * size + dims.value_dim * SUM_BYTES
    rows = dims.heads // max(1, dims.kv_heads) * dims.q_len
    block = max(1, int(place.sram / 2 / row))
    return -(-rows // block), max(0.0, dims.kv_len * (dims.head_dim + dims.value_dim) * size - place.sram / 2)
