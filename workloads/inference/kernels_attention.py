"""Attention over paged keys and values in Triton: one kernel for single new tokens, one for runs of them.

Keys of a sequence lie in blocks of PAGE positions anywhere in the cache, and its table says where; a program looks the
block of each key up, and the rest is flash attention with its online softmax (Dao, arXiv:2307.08691, section 3.1).
Single tokens: all query heads of a key head are the rows of one block, and the keys are split over programs, so that
few sequences fill the chip ("Flash-Decoding", Dao et al., 2023).
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803  compile-time constants are written in capitals, as everywhere in Triton

import triton
import triton.language as tl


@triton.jit
def _visit(
    acc, total, top, q, k_ptr, v_ptr, table, positions, first, last, scale, window, block, row,
    HEAD: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, PAGE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Take the keys [first, last) into the running softmax; *positions* [rows] are those of the queries.

    *block* and *row* are elements between two blocks and two keys of the cache; *window* 0 sees everything.
    """
    columns = tl.arange(0, BLOCK_D)
    inside = (columns < HEAD)[None, :]
    for start in tl.range(first, last, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        real = keys < last
        page = tl.load(table + keys // PAGE, mask=real, other=0).to(tl.int64)
        at = (page * block + (keys % PAGE) * row)[:, None] + columns[None, :]
        wanted = real[:, None] & inside
        k = tl.load(k_ptr + at, mask=wanted, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        seen = real[None, :]
        if MASKED:
            behind = positions[:, None] - keys[None, :]
            seen = seen & (behind >= 0)
            if window > 0:
                seen = seen & (behind < window)
        scores = tl.where(seen, scores, -1.0e30)  # not -inf: the difference of two of them is no number
        highest = tl.maximum(top, tl.max(scores, 1))
        weights = tl.where(seen, tl.exp2(scores - highest[:, None]), 0.0)
        rescale = tl.exp2(top - highest)
        total = total * rescale + tl.sum(weights, 1)
        v = tl.load(v_ptr + at, mask=wanted, other=0.0)
        acc = tl.dot(weights.to(v.dtype), v, acc * rescale[:, None], input_precision="ieee")
        top = highest
    return acc, total, top


@triton.jit(do_not_specialize=["kv_heads", "group", "table_row", "window", "parts"])
def decode(
    q_ptr, k_ptr, v_ptr, table_ptr, length_ptr, out_ptr, sum_ptr,
    q_row, block, row, table_row, kv_heads, group, window, parts, scale,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """One part of the keys of one key head for one new token of a sequence.

    Partial results are fp32: out [token, head, part, HEAD] and log-sums (base 2) [token, head, part].
    """
    part = tl.program_id(0)
    token = (tl.program_id(1) // kv_heads).to(tl.int64)
    kv_head = tl.program_id(1) % kv_heads
    member = tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_D)
    inside = (member < group)[:, None] & (columns < HEAD)[None, :]
    head = kv_head * group + member
    q = tl.load(q_ptr + token * q_row + head[:, None] * HEAD + columns[None, :], mask=inside, other=0.0)
    length = tl.load(length_ptr + token)
    oldest = 0
    if window > 0:
        oldest = tl.maximum(0, length - window)
    span = tl.cdiv(tl.cdiv(length - oldest, parts), BLOCK_N) * BLOCK_N
    first = oldest + part * span
    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    top = tl.full([BLOCK_M], -1.0e30, dtype=tl.float32)
    start = kv_head * HEAD
    acc, total, top = _visit(
        acc, total, top, q, k_ptr + start, v_ptr + start, table_ptr + token * table_row, member,
        first, tl.minimum(first + span, length), scale, 0, block, row, HEAD, BLOCK_N, BLOCK_D, PAGE, False,
    )  # fmt: skip
    at = (token * kv_heads * group + head) * parts + part
    weight = tl.where(total > 0, total, 1.0)  # a part without keys gets no weight in the end: -1e30 stays in its top
    tl.store(out_ptr + at[:, None] * HEAD + columns[None, :], acc / weight[:, None], mask=inside)
    tl.store(sum_ptr + at, top + tl.log2(weight), mask=member < group)


@triton.jit(do_not_specialize=["parts"])
def combine(
    part_ptr, sum_ptr, out_ptr, parts, HEAD: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Sum of the parts of one head of one token, weighted by their log-sums."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_D)
    acc = tl.zeros([BLOCK_D], dtype=tl.float32)
    total = 0.0
    top = -1.0e30
    for start in range(0, parts, BLOCK_P):
        part = start + tl.arange(0, BLOCK_P)
        logsum = tl.load(sum_ptr + row * parts + part, mask=part < parts, other=-1.0e30)
        highest = tl.maximum(top, tl.max(logsum, 0))
        weights = tl.where(logsum > -1.0e29, tl.exp2(logsum - highest), 0.0)
        at = part_ptr + (row * parts + part)[:, None] * HEAD + columns[None, :]
        found = tl.load(at, mask=(part < parts)[:, None] & (columns < HEAD)[None, :], other=0.0)
        rescale = tl.exp2(top - highest)
        total = total * rescale + tl.sum(weights, 0)
        acc = acc * rescale + tl.sum(found * weights[:, None], 0)
        top = highest
    out = acc / tl.where(total > 0, total, 1.0)  # a padded token has no keys: zeros
    tl.store(out_ptr + row * HEAD + columns, out.to(out_ptr.dtype.element_ty), mask=columns < HEAD)


@triton.jit(do_not_specialize=["heads", "group", "table_row", "window"])
def prefill(
    q_ptr, k_ptr, v_ptr, table_ptr, start_ptr, length_ptr, out_ptr,
    q_row, block, row, table_row, heads, group, window, scale,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """BLOCK_M queries of one head of one sequence, over its keys in the cache; the queries are the last of the keys.

    The tokens of sequence s are start[s] .. start[s + 1] of *q* [tokens, heads, HEAD].
    """
    sequence = tl.program_id(2)
    begin = tl.load(start_ptr + sequence)
    count = tl.load(start_ptr + sequence + 1) - begin
    number = tl.num_programs(0) - 1 - tl.program_id(0)  # the blocks with most keys start first
    if number * BLOCK_M < count:
        length = tl.load(length_ptr + sequence)
        head = tl.program_id(1)
        rows = number * BLOCK_M + tl.arange(0, BLOCK_M)
        columns = tl.arange(0, BLOCK_D)
        inside = (rows < count)[:, None] & (columns < HEAD)[None, :]
        at = (begin + rows).to(tl.int64)[:, None] * q_row + head * HEAD + columns[None, :]
        q = tl.load(q_ptr + at, mask=inside, other=0.0)
        offset = length - count
        positions = offset + rows
        end = tl.minimum(length, offset + (number + 1) * BLOCK_M)
        oldest = 0
        if window > 0:
            oldest = tl.maximum(0, (offset + number * BLOCK_M - window + 1) // BLOCK_N * BLOCK_N)
            whole = oldest
        else:
            whole = tl.minimum((offset + number * BLOCK_M + 1) // BLOCK_N * BLOCK_N, end)  # seen by every query here
        acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
        total = tl.zeros([BLOCK_M], dtype=tl.float32)
        top = tl.full([BLOCK_M], -1.0e30, dtype=tl.float32)
        k_rows = k_ptr + head // group * HEAD
        v_rows = v_ptr + head // group * HEAD
        table = table_ptr + sequence * table_row
        acc, total, top = _visit(
            acc, total, top, q, k_rows, v_rows, table, positions, oldest, whole, scale, window, block, row,
            HEAD, BLOCK_N, BLOCK_D, PAGE, False,
        )  # fmt: skip
        acc, total, top = _visit(
            acc, total, top, q, k_rows, v_rows, table, positions, whole, end, scale, window, block, row,
            HEAD, BLOCK_N, BLOCK_D, PAGE, True,
        )  # fmt: skip
        out = acc / tl.where(total > 0, total, 1.0)[:, None]
        tl.store(out_ptr + at, out.to(out_ptr.dtype.element_ty), mask=inside)
