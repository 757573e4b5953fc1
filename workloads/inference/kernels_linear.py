"""Products with packed weights in Triton: bytes stay packed until they are in registers.

Weights are the left operand, so that Hopper's tensor cores take them out of registers, where they are unpacked.  Codes
of four bits become bf16 without a conversion: the bits 0x4300 | q are 128 + q.  Where a matrix has too few rows to fill
the chip, its groups are split over programs; the one that finishes last adds up the parts, always in the same order.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803  compile-time constants are written in capitals, as everywhere in Triton

import triton
import triton.language as tl

_ANY = ["m", "n", "k", "groups", "per_part"]


@triton.jit
def _weights(packed, scale, zero, FAST: tl.constexpr, DTYPE: tl.constexpr):
    """Low and high halves of *packed* bytes as weights; *scale* and *zero* are [outputs, 1]."""
    if FAST:
        wide_scale = tl.broadcast_to(scale.to(tl.bfloat16), packed.shape)
        wide_zero = tl.broadcast_to(zero.to(tl.bfloat16), packed.shape)
        low, high = tl.inline_asm_elementwise(
            """{
            .reg .b32 up, a, b, c, d, off;
            mov.b32 off, 0x43004300;
            shr.u32 up, $4, 4;
            prmt.b32 a, $4, 0, 0x4140;
            prmt.b32 b, $4, 0, 0x4342;
            prmt.b32 c, up, 0, 0x4140;
            prmt.b32 d, up, 0, 0x4342;
            lop3.b32 a, a, 0x000F000F, off, 0xEA;
            lop3.b32 b, b, 0x000F000F, off, 0xEA;
            lop3.b32 c, c, 0x000F000F, off, 0xEA;
            lop3.b32 d, d, 0x000F000F, off, 0xEA;
            sub.rn.bf16x2 a, a, off;
            sub.rn.bf16x2 b, b, off;
            sub.rn.bf16x2 c, c, off;
            sub.rn.bf16x2 d, d, off;
            fma.rn.bf16x2 $0, a, $5, $7;
            fma.rn.bf16x2 $1, b, $6, $8;
            fma.rn.bf16x2 $2, c, $5, $7;
            fma.rn.bf16x2 $3, d, $6, $8;
            }""",
            "=r,=r,=r,=r,r,r,r,r,r",
            [packed, wide_scale, wide_zero],
            dtype=(tl.bfloat16, tl.bfloat16),
            is_pure=True,
            pack=4,
        )
    else:
        low = ((packed & 15).to(tl.float32) * scale + zero).to(DTYPE)
        high = ((packed >> 4).to(tl.float32) * scale + zero).to(DTYPE)
    return low, high


@triton.jit
def _bytes(codes, scale, zero, FAST: tl.constexpr, DTYPE: tl.constexpr):
    """*codes* of eight bits as weights: the bits 0x4B000000 | q are the fp32 number 2^23 + q."""
    if FAST:
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 w, x, y, z;
            .reg .f32 a, b, c, d;
            prmt.b32 w, $2, 0x4B000000, 0x7440;
            prmt.b32 x, $2, 0x4B000000, 0x7441;
            prmt.b32 y, $2, 0x4B000000, 0x7442;
            prmt.b32 z, $2, 0x4B000000, 0x7443;
            mov.b32 a, w;
            mov.b32 b, x;
            mov.b32 c, y;
            mov.b32 d, z;
            sub.rn.f32 a, a, 0f4B000000;
            sub.rn.f32 b, b, 0f4B000000;
            sub.rn.f32 c, c, 0f4B000000;
            sub.rn.f32 d, d, 0f4B000000;
            fma.rn.f32 a, a, $3, $7;
            fma.rn.f32 b, b, $4, $8;
            fma.rn.f32 c, c, $5, $9;
            fma.rn.f32 d, d, $6, $10;
            cvt.rn.bf16x2.f32 $0, b, a;
            cvt.rn.bf16x2.f32 $1, d, c;
            }""",
            "=r,=r,r,r,r,r,r,r,r,r,r",
            [codes, tl.broadcast_to(scale, codes.shape), tl.broadcast_to(zero, codes.shape)],
            dtype=tl.bfloat16,
            is_pure=True,
            pack=4,
        )
    return (codes.to(tl.float32) * scale + zero).to(DTYPE)


@triton.jit
def _finish(
    acc, at, inside, out_ptr, part_ptr, count_ptr, tile, size,
    SPLIT: tl.constexpr,
):  # fmt: skip
    """Write the sum of all parts of a tile; *at* are its places in the output, and *size* elements make one part."""
    if not SPLIT:
        tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        tl.store(part_ptr + tl.program_id(1).to(tl.int64) * size + at, acc, mask=inside)
        tl.debug_barrier()  # all threads have written before one of them says so
        arrived = tl.atomic_add(count_ptr + tile, 1, sem="acq_rel")
        parts = tl.num_programs(1)
        if arrived == parts - 1:
            total = tl.zeros_like(acc)
            for part in range(parts):  # .cg: the first-level cache does not see other programs' writes
                total += tl.load(part_ptr + part * size.to(tl.int64) + at, mask=inside, other=0.0, cache_modifier=".cg")
            tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=inside)
            tl.store(count_ptr + tile, 0)


@triton.jit(do_not_specialize=_ANY)
def gemm(
    x_ptr, data_ptr, scale_ptr, zero_ptr, out_ptr, part_ptr, count_ptr, m, n, k, groups, per_part,
    x_row, data_row,
    BITS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr, EVEN: tl.constexpr,
    FAST: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """out [m, n] = x [m, k] W^T over *per_part* groups of inputs; the tile is [BLOCK_N, BLOCK_M]."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = (columns < n)[:, None] & (rows < m)[None, :]
    known = columns < n
    half = tl.arange(0, 64)
    data_at = data_ptr + columns.to(tl.int64)[:, None] * data_row
    x_at = x_ptr + tl.minimum(rows, m - 1).to(tl.int64)[None, :] * x_row  # rows too many are not written
    acc = tl.zeros([BLOCK_N, BLOCK_M], dtype=tl.float32)
    first = tl.program_id(1) * per_part
    last = tl.minimum(first + per_part, groups)
    if AHEAD:
        next_scale = tl.load(scale_ptr + first * n + columns, mask=known, other=0.0)
        next_zero = tl.load(zero_ptr + first * n + columns, mask=known, other=0.0)
    for group in tl.range(first, last):
        if AHEAD:  # scales are too narrow for the asynchronous copies that bring the rest: ask one round before
            scale = next_scale.to(tl.float32)[:, None]
            zero = next_zero.to(tl.float32)[:, None]
            at = tl.minimum(group + 1, groups - 1) * n + columns
            next_scale = tl.load(scale_ptr + at, mask=known, other=0.0)
            next_zero = tl.load(zero_ptr + at, mask=known, other=0.0)
        else:
            scale = tl.load(scale_ptr + group * n + columns, mask=known, other=0.0).to(tl.float32)[:, None]
            zero = tl.load(zero_ptr + group * n + columns, mask=known, other=0.0).to(tl.float32)[:, None]
        if BITS == 4:
            packed = tl.load(data_at + group * 64 + half[None, :], mask=known[:, None], other=0)
            low, high = _weights(packed, scale, zero, FAST, x_ptr.dtype.element_ty)
        else:
            codes = tl.load(data_at + group * 128 + half[None, :], mask=known[:, None], other=0)
            low = _bytes(codes, scale, zero, FAST, x_ptr.dtype.element_ty)
            codes = tl.load(data_at + group * 128 + 64 + half[None, :], mask=known[:, None], other=0)
            high = _bytes(codes, scale, zero, FAST, x_ptr.dtype.element_ty)
        inputs = group * 128 + half[:, None]
        if EVEN:  # no mask: with one along k the compiler would load two bytes at a time
            x_low = tl.load(x_at + inputs)
            x_high = tl.load(x_at + inputs + 64)
        else:
            x_low = tl.load(x_at + inputs, mask=inputs < k, other=0.0)
            x_high = tl.load(x_at + inputs + 64, mask=inputs + 64 < k, other=0.0)
        acc = tl.dot(low, x_low, acc, input_precision="ieee")
        acc = tl.dot(high, x_high, acc, input_precision="ieee")
    places = rows.to(tl.int64)[None, :] * n + columns[:, None]
    tile = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
    _finish(acc, places, inside, out_ptr, part_ptr, count_ptr, tile, m * n, SPLIT)


@triton.jit
def _halves(data_at, group, known, BITS: tl.constexpr):
    """Codes of a group in fp32 without a conversion, 128 (256) too large: their bits below those of that number."""
    half = tl.arange(0, 64)
    if BITS == 4:
        packed = tl.load(data_at + group * 64 + half[None, :], mask=known, other=0).to(tl.int32)
        low = (((packed << 16) & 0x000F0000) | 0x43000000).to(tl.float32, bitcast=True)
        high = (((packed << 12) & 0x000F0000) | 0x43000000).to(tl.float32, bitcast=True)
    else:
        codes = tl.load(data_at + group * 128 + half[None, :], mask=known, other=0).to(tl.int32)
        low = ((codes << 15) | 0x43800000).to(tl.float32, bitcast=True)
        codes = tl.load(data_at + group * 128 + 64 + half[None, :], mask=known, other=0).to(tl.int32)
        high = ((codes << 15) | 0x43800000).to(tl.float32, bitcast=True)
    return low, high


@triton.jit
def _with_row(acc, low, high, scale, zero, x_at, group, k, EVEN: tl.constexpr):
    """*acc* and the products of one group with one row of x, which begins at *x_at* and has *k* elements."""
    at = group * 128 + tl.arange(0, 64)
    if EVEN:
        x_low = tl.load(x_at + at).to(tl.float32)[None, :]
        x_high = tl.load(x_at + at + 64).to(tl.float32)[None, :]
    else:
        x_low = tl.load(x_at + at, mask=at < k, other=0.0).to(tl.float32)[None, :]
        x_high = tl.load(x_at + at + 64, mask=at + 64 < k, other=0.0).to(tl.float32)[None, :]
    return acc + (low * x_low + high * x_high) * scale + zero * (x_low + x_high)


@triton.jit(do_not_specialize=_ANY)
def matvec(
    x_ptr, data_ptr, scale_ptr, zero_ptr, out_ptr, part_ptr, count_ptr, m, n, k, groups, per_part,
    x_row, data_row,
    BITS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr, EVEN: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """As `gemm` for up to four rows of x a program, by multiply-adds in fp32; sums along inputs come last."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    row = tl.program_id(2).to(tl.int64) * BLOCK_M
    known = columns < n
    data_at = data_ptr + columns.to(tl.int64)[:, None] * data_row
    x_at = x_ptr + row * x_row
    second_at = x_ptr + tl.minimum(row + 1, m - 1) * x_row  # rows too many are not written
    third_at = x_ptr + tl.minimum(row + 2, m - 1) * x_row
    fourth_at = x_ptr + tl.minimum(row + 3, m - 1) * x_row
    acc = tl.zeros([BLOCK_N, 64], dtype=tl.float32)
    second, third, fourth = acc, acc, acc
    above: tl.constexpr = 128 if BITS == 4 else 256
    first = tl.program_id(1) * per_part
    for group in tl.range(first, tl.minimum(first + per_part, groups), num_stages=STAGES):
        low, high = _halves(data_at, group, known[:, None], BITS)
        scale = tl.load(scale_ptr + group * n + columns, mask=known, other=0.0).to(tl.float32)[:, None]
        zero = tl.load(zero_ptr + group * n + columns, mask=known, other=0.0).to(tl.float32)[:, None] - above * scale
        acc = _with_row(acc, low, high, scale, zero, x_at, group, k, EVEN)
        if BLOCK_M > 1:
            second = _with_row(second, low, high, scale, zero, second_at, group, k, EVEN)
        if BLOCK_M > 2:
            third = _with_row(third, low, high, scale, zero, third_at, group, k, EVEN)
            fourth = _with_row(fourth, low, high, scale, zero, fourth_at, group, k, EVEN)
    tile = row.to(tl.int32) * tl.num_programs(0) + tl.program_id(0)
    size = m * n
    _finish(tl.sum(acc, 1), row * n + columns, known, out_ptr, part_ptr, count_ptr, tile, size, SPLIT)
    if BLOCK_M > 1:
        known = columns < tl.where(row + 1 < m, n, 0)
        tile += tl.num_programs(0)
        _finish(tl.sum(second, 1), (row + 1) * n + columns, known, out_ptr, part_ptr, count_ptr, tile, size, SPLIT)
    if BLOCK_M > 2:
        known = columns < tl.where(row + 2 < m, n, 0)
        tile += tl.num_programs(0)
        _finish(tl.sum(third, 1), (row + 2) * n + columns, known, out_ptr, part_ptr, count_ptr, tile, size, SPLIT)
        known = columns < tl.where(row + 3 < m, n, 0)
        tile += tl.num_programs(0)
        _finish(tl.sum(fourth, 1), (row + 3) * n + columns, known, out_ptr, part_ptr, count_ptr, tile, size, SPLIT)


@triton.jit(do_not_specialize=["n"])
def dequantise(
    data_ptr, scale_ptr, zero_ptr, out_ptr, n, k, data_row,
    BITS: tl.constexpr, BLOCK_N: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """out [n, k]: the matrix itself, one group of BLOCK_N outputs a program; for products that are bound by compute."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    group = tl.program_id(1).to(tl.int64)
    known = (columns < n)[:, None]
    data_at = data_ptr + columns.to(tl.int64)[:, None] * data_row
    scale = tl.load(scale_ptr + group * n + columns, mask=columns < n, other=0.0).to(tl.float32)[:, None]
    zero = tl.load(zero_ptr + group * n + columns, mask=columns < n, other=0.0).to(tl.float32)[:, None]
    low, high = _halves(data_at, group, known, BITS)
    above: tl.constexpr = 128 if BITS == 4 else 256
    low, high = (low - above) * scale + zero, (high - above) * scale + zero
    at = group * 128 + tl.arange(0, 64)[None, :]
    out_at = out_ptr + columns.to(tl.int64)[:, None] * k + at
    low_fits, high_fits = known, known
    if not EVEN:
        low_fits, high_fits = known & (at < k), known & (at + 64 < k)
    tl.store(out_at, low.to(out_ptr.dtype.element_ty), mask=low_fits)
    tl.store(out_at + 64, high.to(out_ptr.dtype.element_ty), mask=high_fits)
