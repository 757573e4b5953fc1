"""Kind-specific sizes of an operator: small frozen classes, one for each way of being timed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MatmulDims:
    """``batch`` independent products [m, k] x [k, n]; with batch 1 a plain GEMM.

    groups  products that share one launch but not one size (mixture of experts: *m* rows are spread over
            *groups* weight matrices; 1 otherwise).
    """

    m: int
    n: int
    k: int
    batch: int = 1
    groups: int = 1

    @property
    def flops(self) -> int:
        """Multiply and add count as two.

        >>> MatmulDims(m=4, n=8, k=16).flops
        1024
        """
        return 2 * self.batch * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class AttentionDims:
    """Fused scaled dot-product attention: softmax(Q K^T) V without the score matrix in memory.

    heads, kv_heads  query heads and key/value heads (fewer with GQA, one with MQA).
    q_len, kv_len    rows of Q and of K; the last q_len positions of a causal mask (decode: q_len = 1).
    head_dim         columns of Q and K; *value_dim* columns of V and of the output.
    window           keys that one query sees at most; 0 means all.
    backward         the gradient kernel: five products instead of two (S recomputed, dV, dP, dQ, dK).
    """

    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    value_dim: int
    causal: bool = False
    window: int = 0
    backward: bool = False

    @property
    def pairs(self) -> int:
        """Query-key pairs of one head that the mask leaves.

        >>> AttentionDims(1, 1, 1, 4, 4, 8, 8, causal=True).pairs  # 1 + 2 + 3 + 4
        10
        >>> AttentionDims(1, 1, 1, 4, 4, 8, 8, causal=True, window=2).pairs  # 1 + 2 + 2 + 2
        7
        """
        full = self.q_len * self.kv_len
        if not self.causal:
            return min(full, self.q_len * self.window) if self.window else full
        first = max(0, self.kv_len - self.q_len)  # keys before the one that query 0 stands on
        seen = _triangle(first + self.q_len, self.window) - _triangle(first, self.window)
        return min(seen, full)

    @property
    def flops(self) -> int:
        """FLOP of the products over the pairs that the mask leaves; the softmax is not counted.

        >>> AttentionDims(1, 2, 2, 1, 10, 8, 8).flops  # 2 heads x 10 pairs x (2 x 8 + 2 x 8)
        640
        """
        scores, values = 2 * self.head_dim, 2 * self.value_dim
        per_pair = 3 * scores + 2 * values if self.backward else scores + values
        return self.batch * self.heads * self.pairs * per_pair


def _triangle(rows: int, window: int) -> int:
    """Pairs of the first *rows* queries under a causal mask, each seeing at most *window* keys (0: all)."""
    if not window or rows <= window:
        return rows * (rows + 1) // 2
    return window * (window + 1) // 2 + (rows - window) * window


@dataclass(frozen=True, slots=True)
class ConvolutionDims:
    """Convolution over 1 to 3 spatial axes as the GEMM that it is.

    positions     batch x output positions; *in_channels* and *out_channels* of one group; *taps* of the filter.
    groups        independent groups (depthwise: one per channel).
    """

    positions: int
    in_channels: int
    out_channels: int
    taps: int
    groups: int = 1

    @property
    def flops(self) -> int:
        """Multiply and add count as two; padding is counted as if it were data.

        >>> ConvolutionDims(positions=4, in_channels=3, out_channels=8, taps=9).flops
        1728
        """
        return 2 * self.groups * self.positions * self.in_channels * self.out_channels * self.taps


@dataclass(frozen=True, slots=True)
class RowDims:
    """Work along rows: *rows* rows of *columns* elements (norm, softmax, reduction, gather).

    inner  elements between two neighbours of one row in memory (1: a row is contiguous).
    """

    rows: int
    columns: int
    inner: int = 1


@dataclass(frozen=True, slots=True)
class CollectiveDims:
    """A collective over the ranks of the operator's group; of a send or recv the group is (sender, receiver).

    pattern  all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send or recv.
    nbytes   payload, as the NCCL tests count it: the buffer of an all-reduce, broadcast, send or recv; the whole output
             of an all-gather; the whole input of a reduce-scatter; what one rank hands in of an all-to-all.  What the
             operator reads and writes is its own rank's memory, not the links.
    """

    pattern: str
    nbytes: int


Dims = MatmulDims | AttentionDims | ConvolutionDims | RowDims | CollectiveDims
