"""FlashAttention forward in Triton: one program a block of queries, keys and values streamed past it.

The algorithm is that of Dao, "FlashAttention-2" (arXiv:2307.08691), section 3.1: scores never leave the chip; each row
keeps its maximum, the sum of its exponentials and the unnormalised output, and is rescaled when the maximum grows.
Exponentials are powers of two (one instruction on a GPU), so that scores are scaled by log2(e) with the same
multiplication that scales them anyway.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803  compile-time constants are written in capitals, as everywhere in Triton

import triton
import triton.language as tl

# Lengths and numbers of heads do not choose the code: one compiled kernel serves prompts of every length.
_ANY = ["heads", "group", "q_len", "kv_len"]


@triton.jit
def _visit(
    acc, total, top, q, k_rows, v_rows, k_row, v_row, rows, first, last, kv_len, shift, scale,
    HEAD: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Take the keys [first, last) into the running softmax; only MASKED visits compare positions."""
    keys = tl.arange(0, BLOCK_N)
    columns = tl.arange(0, BLOCK_D)
    for start in tl.range(first, last, BLOCK_N):
        k_at = k_rows + start * k_row.to(tl.int64) + keys[:, None] * k_row + columns[None, :]
        v_at = v_rows + start * v_row.to(tl.int64) + keys[:, None] * v_row + columns[None, :]
        if MASKED:
            inside = (start + keys < kv_len)[:, None] & (columns < HEAD)[None, :]
            k = tl.load(k_at, mask=inside, other=0.0)
        elif HEAD != BLOCK_D:
            k = tl.load(k_at, mask=(columns < HEAD)[None, :], other=0.0)
        else:
            k = tl.load(k_at)
        scores = tl.dot(q, tl.trans(k))
        if MASKED:
            seen = (start + keys)[None, :] < kv_len
            if CAUSAL:
                seen = seen & ((start + keys)[None, :] <= rows[:, None] + shift)
            scores = tl.where(seen, scores, -1.0e30)  # not -inf: the difference of two of them is no number
        highest = tl.maximum(top, tl.max(scores, 1) * scale)
        weights = tl.exp2(scores * scale - highest[:, None])
        rescale = tl.exp2(top - highest)
        total = total * rescale + tl.sum(weights, 1)
        acc = acc * rescale[:, None]
        if MASKED:
            v = tl.load(v_at, mask=inside, other=0.0)
        elif HEAD != BLOCK_D:
            v = tl.load(v_at, mask=(columns < HEAD)[None, :], other=0.0)
        else:
            v = tl.load(v_at)
        acc = tl.dot(weights.to(v.dtype), v, acc)
        top = highest
    return acc, total, top


@triton.jit(do_not_specialize=_ANY)
def forward(
    q_ptr, k_ptr, v_ptr, out_ptr, logsum_ptr,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, out_batch, out_head, out_row,
    heads, group, q_len, kv_len, scale,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Output [batch, head, row, HEAD] and log-sum-exp [batch, head, row] of BLOCK_M queries of one head.

    *scale* is that of the scores times log2(e); strides count elements; *group* query heads share a key head.
    Under a causal mask the last query stands on the last key.
    """
    # The programs of one head run together and share its keys in the L2; under a mask the longest start first.
    block = tl.program_id(0)
    if CAUSAL:
        block = tl.num_programs(0) - 1 - block
    batch = (tl.program_id(1) // heads).to(tl.int64)
    head = (tl.program_id(1) % heads).to(tl.int64)
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_D)
    inside = (rows < q_len)[:, None] & (columns < HEAD)[None, :]
    q_at = q_ptr + batch * q_batch + head * q_head + rows.to(tl.int64)[:, None] * q_row + columns[None, :]
    q = tl.load(q_at, mask=inside, other=0.0)
    k_rows = k_ptr + batch * k_batch + head // group * k_head
    v_rows = v_ptr + batch * v_batch + head // group * v_head

    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    top = tl.full([BLOCK_M], -1.0e30, dtype=tl.float32)
    shift = kv_len - q_len
    if CAUSAL:
        whole = (block * BLOCK_M + shift + 1) // BLOCK_N * BLOCK_N  # blocks of keys that every query here sees
        end = tl.minimum(kv_len, (block + 1) * BLOCK_M + shift)
    else:
        whole = kv_len // BLOCK_N * BLOCK_N
        end = kv_len
    whole = tl.minimum(whole, kv_len // BLOCK_N * BLOCK_N)
    acc, total, top = _visit(
        acc, total, top, q, k_rows, v_rows, k_row, v_row, rows, 0, whole, kv_len, shift, scale,
        HEAD, BLOCK_N, BLOCK_D, CAUSAL, False,
    )  # fmt: skip
    acc, total, top = _visit(
        acc, total, top, q, k_rows, v_rows, k_row, v_row, rows, whole, end, kv_len, shift, scale,
        HEAD, BLOCK_N, BLOCK_D, CAUSAL, True,
    )  # fmt: skip

    out_at = out_ptr + batch * out_batch + head * out_head + rows.to(tl.int64)[:, None] * out_row + columns[None, :]
    tl.store(out_at, (acc / total[:, None]).to(out_ptr.dtype.element_ty), mask=inside)
    logsum = (top + tl.log2(total)) * 0.6931471805599453  # ln 2: from powers of two to natural logarithms
    tl.store(logsum_ptr + tl.program_id(1).to(tl.int64) * q_len + rows, logsum, mask=rows < q_len)
