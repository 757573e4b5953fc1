"""Decode in Triton: few queries, many keys.  The keys are split over programs, so that one sequence fills the chip.

All query heads of a key head, and all queries, are the rows of one block: keys and values are read once for them.
A second kernel puts the parts together by their log-sums (Dao et al., "Flash-Decoding", 2023).
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803  compile-time constants are written in capitals, as everywhere in Triton

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["kv_heads", "group", "q_len", "kv_len", "part", "parts"])
def decode(
    q_ptr, k_ptr, v_ptr, out_ptr, logsum_ptr,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    kv_heads, group, q_len, kv_len, part, parts, scale,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Output and log-sum (base 2) of BLOCK_M (head, query) rows over *part* keys, a multiple of BLOCK_N.

    Partial results are fp32: out [batch, kv head, row, part, HEAD], log-sums [batch, kv head, row, part]; a row is
    query head in its group x q_len + query.
    """
    batch = (tl.program_id(1) // kv_heads).to(tl.int64)
    kv_head = (tl.program_id(1) % kv_heads).to(tl.int64)
    rows = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_D)
    keys = tl.arange(0, BLOCK_N)
    count = group * q_len
    inside = (rows < count)[:, None] & (columns < HEAD)[None, :]
    position = rows % q_len
    head = kv_head * group + rows // q_len
    q_at = q_ptr + batch * q_batch + head[:, None] * q_head + position[:, None] * q_row + columns[None, :]
    q = tl.load(q_at, mask=inside, other=0.0)
    k_rows = k_ptr + batch * k_batch + kv_head * k_head
    v_rows = v_ptr + batch * v_batch + kv_head * v_head

    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    top = tl.full([BLOCK_M], -1.0e30, dtype=tl.float32)
    first = tl.program_id(0) * part
    last = tl.minimum(first + part, kv_len)
    for start in tl.range(first, last, BLOCK_N):
        real = (start + keys < kv_len)[:, None] & (columns < HEAD)[None, :]
        k_at = k_rows + start * k_row.to(tl.int64) + keys[:, None] * k_row + columns[None, :]
        v_at = v_rows + start * v_row.to(tl.int64) + keys[:, None] * v_row + columns[None, :]
        k = tl.load(k_at, mask=real, other=0.0)
        v = tl.load(v_at, mask=real, other=0.0)
        scores = tl.dot(q, tl.trans(k))
        seen = (start + keys)[None, :] < kv_len
        if CAUSAL:
            seen = seen & ((start + keys)[None, :] <= position[:, None] + kv_len - q_len)
        # A row that sees none of these keys keeps -1e30 as its maximum: its part weighs nothing in the end.
        scores = tl.where(seen, scores * scale, -1.0e30)
        highest = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - highest[:, None])
        rescale = tl.exp2(top - highest)
        total = total * rescale + tl.sum(weights, 1)
        acc = tl.dot(weights.to(v.dtype), v, acc * rescale[:, None])
        top = highest

    row = (tl.program_id(1).to(tl.int64) * count + rows) * parts + tl.program_id(0)
    tl.store(out_ptr + row[:, None] * HEAD + columns[None, :], acc / total[:, None], mask=inside)
    tl.store(logsum_ptr + row, top + tl.log2(total), mask=rows < count)


@triton.jit(do_not_specialize=["heads", "q_len", "parts"])
def combine(
    part_ptr, part_logsum_ptr, out_ptr, logsum_ptr, out_batch, out_head, out_row, heads, q_len, parts,
    HEAD: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Weighted sum of the parts of one row, and its log-sum-exp (natural logarithm); BLOCK_P parts at a time."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_D)
    acc = tl.zeros([BLOCK_D], dtype=tl.float32)
    total = 0.0
    top = -1.0e30
    for start in range(0, parts, BLOCK_P):
        part = start + tl.arange(0, BLOCK_P)
        logsum = tl.load(part_logsum_ptr + row * parts + part, mask=part < parts, other=-1.0e30)
        highest = tl.maximum(top, tl.max(logsum, 0))
        weights = tl.where(part < parts, tl.exp2(logsum - highest), 0.0)
        at = part_ptr + (row * parts + part)[:, None] * HEAD + columns[None, :]
        found = tl.load(at, mask=(part < parts)[:, None] & (columns < HEAD)[None, :], other=0.0)
        rescale = tl.exp2(top - highest)
        total = total * rescale + tl.sum(weights, 0)
        acc = acc * rescale + tl.sum(found * weights[:, None], 0)
        top = highest
    batch, head, position = row // (heads * q_len), row // q_len % heads, row % q_len
    out_at = out_ptr + batch * out_batch + head * out_head + position * out_row + columns
    tl.store(out_at, (acc / total).to(out_ptr.dtype.element_ty), mask=columns < HEAD)
    tl.store(logsum_ptr + row, (top + tl.log2(total)) * 0.6931471805599453)
