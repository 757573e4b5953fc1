"""FlashAttention backward in Triton: scores are computed again from Q, K and the log-sums of the forward pass.

With P = exp(S - logsum), dP = dO V^T and delta = rowsum(dO x O) (Dao et al., arXiv:2205.14135, appendix B.2):
dV = P^T dO, dS = P x (dP - delta), dQ = dS K, dK = dS^T Q.  One kernel owns rows of dQ, another rows of dK and dV and
goes over all query heads of its group, so that nothing is added up in memory and results repeat bit by bit.  The price
is that S and dP are computed twice: seven products instead of five.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803  compile-time constants are written in capitals, as everywhere in Triton

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["heads", "q_len"])
def row_sums(
    out_ptr, grad_ptr, delta_ptr, out_batch, out_head, out_row, grad_batch, grad_head, grad_row, heads, q_len,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """delta [batch, head, row]: the sum of dO x O along each row, in fp32."""
    batch = (tl.program_id(1) // heads).to(tl.int64)
    head = (tl.program_id(1) % heads).to(tl.int64)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_D)
    inside = (rows < q_len)[:, None] & (columns < HEAD)[None, :]
    far = rows.to(tl.int64)[:, None]
    out = tl.load(out_ptr + batch * out_batch + head * out_head + far * out_row + columns[None, :], inside, 0.0)
    grad = tl.load(grad_ptr + batch * grad_batch + head * grad_head + far * grad_row + columns[None, :], inside, 0.0)
    delta = tl.sum(out.to(tl.float32) * grad.to(tl.float32), 1)
    tl.store(delta_ptr + tl.program_id(1).to(tl.int64) * q_len + rows, delta, mask=rows < q_len)


@triton.jit
def _query_step(
    dq, q, grad, logsum, delta, k_rows, v_rows, k_row, v_row, rows, first, last, kv_len, shift, scale,
    HEAD: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add what the keys [first, last) give to the rows *dq*."""
    keys = tl.arange(0, BLOCK_N)
    columns = tl.arange(0, BLOCK_D)
    for start in tl.range(first, last, BLOCK_N):
        real = (start + keys < kv_len)[:, None] & (columns < HEAD)[None, :]
        k_at = k_rows + start * k_row.to(tl.int64) + keys[:, None] * k_row + columns[None, :]
        v_at = v_rows + start * v_row.to(tl.int64) + keys[:, None] * v_row + columns[None, :]
        k = tl.load(k_at, mask=real, other=0.0)
        v = tl.load(v_at, mask=real, other=0.0)
        weights = tl.exp2(tl.dot(q, tl.trans(k)) * scale - logsum[:, None])
        if MASKED:
            seen = (start + keys)[None, :] < kv_len
            if CAUSAL:
                seen = seen & ((start + keys)[None, :] <= rows[:, None] + shift)
            weights = tl.where(seen, weights, 0.0)
        d_scores = weights * (tl.dot(grad, tl.trans(v)) - delta[:, None])
        dq = tl.dot(d_scores.to(k.dtype), k, dq)
    return dq


@triton.jit(do_not_specialize=["heads", "group", "q_len", "kv_len"])
def query_gradient(
    q_ptr, k_ptr, v_ptr, grad_ptr, logsum_ptr, delta_ptr, dq_ptr,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, grad_batch, grad_head, grad_row,
    dq_batch, dq_head, dq_row, heads, group, q_len, kv_len, scale,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """dQ of BLOCK_M queries of one head; *scale* is that of the scores, in natural units."""
    block = tl.program_id(0)
    if CAUSAL:
        block = tl.num_programs(0) - 1 - block
    batch = (tl.program_id(1) // heads).to(tl.int64)
    head = (tl.program_id(1) % heads).to(tl.int64)
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_D)
    inside = (rows < q_len)[:, None] & (columns < HEAD)[None, :]
    far = rows.to(tl.int64)[:, None]
    q = tl.load(q_ptr + batch * q_batch + head * q_head + far * q_row + columns[None, :], inside, 0.0)
    grad = tl.load(grad_ptr + batch * grad_batch + head * grad_head + far * grad_row + columns[None, :], inside, 0.0)
    line = tl.program_id(1).to(tl.int64) * q_len + rows
    logsum = tl.load(logsum_ptr + line, mask=rows < q_len, other=0.0) * 1.4426950408889634
    delta = tl.load(delta_ptr + line, mask=rows < q_len, other=0.0)
    k_rows = k_ptr + batch * k_batch + head // group * k_head
    v_rows = v_ptr + batch * v_batch + head // group * v_head
    shift = kv_len - q_len
    whole, end = kv_len // BLOCK_N * BLOCK_N, kv_len
    if CAUSAL:
        whole = tl.minimum(whole, (block * BLOCK_M + shift + 1) // BLOCK_N * BLOCK_N)
        end = tl.minimum(kv_len, (block + 1) * BLOCK_M + shift)
    dq = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    power = scale * 1.4426950408889634  # log2(e)
    dq = _query_step(
        dq, q, grad, logsum, delta, k_rows, v_rows, k_row, v_row, rows, 0, whole, kv_len, shift, power,
        HEAD, BLOCK_N, BLOCK_D, CAUSAL, False,
    )  # fmt: skip
    dq = _query_step(
        dq, q, grad, logsum, delta, k_rows, v_rows, k_row, v_row, rows, whole, end, kv_len, shift, power,
        HEAD, BLOCK_N, BLOCK_D, CAUSAL, True,
    )  # fmt: skip
    dq_at = dq_ptr + batch * dq_batch + head * dq_head + far * dq_row + columns[None, :]
    tl.store(dq_at, (dq * scale).to(dq_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _key_step(
    dk, dv, k, v, q_rows, grad_rows, logsums, deltas, q_row, grad_row, keys, first, last, q_len, shift, scale,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add what the queries [first, last) of one head give to the rows *dk* and *dv*.

    Queries beyond the last have dO = 0 and delta = 0 and so add nothing; their scores need no mask.
    """
    block = tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_D)
    for start in tl.range(first, last, BLOCK_M):
        rows = start + block
        inside = (rows < q_len)[:, None] & (columns < HEAD)[None, :]
        q_at = q_rows + start * q_row.to(tl.int64) + block[:, None] * q_row + columns[None, :]
        grad_at = grad_rows + start * grad_row.to(tl.int64) + block[:, None] * grad_row + columns[None, :]
        q = tl.load(q_at, mask=inside, other=0.0)
        grad = tl.load(grad_at, mask=inside, other=0.0)
        logsum = tl.load(logsums + rows, mask=rows < q_len, other=0.0) * 1.4426950408889634
        delta = tl.load(deltas + rows, mask=rows < q_len, other=0.0)
        weights = tl.exp2(tl.dot(k, tl.trans(q)) * scale - logsum[None, :])  # keys down, queries across
        if MASKED:
            weights = tl.where(keys[:, None] <= rows[None, :] + shift, weights, 0.0)
        dv = tl.dot(weights.to(grad.dtype), grad, dv)
        d_scores = weights * (tl.dot(v, tl.trans(grad)) - delta[None, :])
        dk = tl.dot(d_scores.to(q.dtype), q, dk)
    return dk, dv


@triton.jit(do_not_specialize=["kv_heads", "group", "q_len", "kv_len"])
def key_gradient(
    q_ptr, k_ptr, v_ptr, grad_ptr, logsum_ptr, delta_ptr, dk_ptr, dv_ptr,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, grad_batch, grad_head, grad_row,
    dk_batch, dk_head, dk_row, dv_batch, dv_head, dv_row, kv_heads, group, q_len, kv_len, scale,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """dK and dV of BLOCK_N keys of one key head, over all query heads that share it."""
    block = tl.program_id(0)  # under a causal mask the first keys are seen by most queries: the longest start first
    batch = (tl.program_id(1) // kv_heads).to(tl.int64)
    kv_head = (tl.program_id(1) % kv_heads).to(tl.int64)
    keys = block * BLOCK_N + tl.arange(0, BLOCK_N)
    columns = tl.arange(0, BLOCK_D)
    inside = (keys < kv_len)[:, None] & (columns < HEAD)[None, :]
    far = keys.to(tl.int64)[:, None]
    k = tl.load(k_ptr + batch * k_batch + kv_head * k_head + far * k_row + columns[None, :], inside, 0.0)
    v = tl.load(v_ptr + batch * v_batch + kv_head * v_head + far * v_row + columns[None, :], inside, 0.0)
    dk = tl.zeros([BLOCK_N, BLOCK_D], dtype=tl.float32)
    dv = tl.zeros([BLOCK_N, BLOCK_D], dtype=tl.float32)
    shift = kv_len - q_len
    power = scale * 1.4426950408889634  # log2(e)
    first, whole = 0, 0
    if CAUSAL:
        first = tl.maximum(block * BLOCK_N - shift, 0) // BLOCK_M * BLOCK_M
        whole = (tl.maximum((block + 1) * BLOCK_N - 1 - shift, 0) + BLOCK_M - 1) // BLOCK_M * BLOCK_M
    masked_end = tl.minimum(whole, q_len)
    for member in range(group):
        head = kv_head * group + member
        q_rows = q_ptr + batch * q_batch + head * q_head
        grad_rows = grad_ptr + batch * grad_batch + head * grad_head
        line = (batch * kv_heads * group + head) * q_len
        if CAUSAL:
            dk, dv = _key_step(
                dk, dv, k, v, q_rows, grad_rows, logsum_ptr + line, delta_ptr + line, q_row, grad_row, keys,
                first, masked_end, q_len, shift, power, HEAD, BLOCK_M, BLOCK_D, True,
            )  # fmt: skip
        dk, dv = _key_step(
            dk, dv, k, v, q_rows, grad_rows, logsum_ptr + line, delta_ptr + line, q_row, grad_row, keys,
            whole, q_len, q_len, shift, power, HEAD, BLOCK_M, BLOCK_D, False,
        )  # fmt: skip
    dk_at = dk_ptr + batch * dk_batch + kv_head * dk_head + far * dk_row + columns[None, :]
    dv_at = dv_ptr + batch * dv_batch + kv_head * dv_head + far * dv_row + columns[None, :]
    tl.store(dk_at, (dk * scale).to(dk_ptr.dtype.element_ty), mask=inside)
    tl.store(dv_at, dv.to(dv_ptr.dtype.element_ty), mask=inside)
