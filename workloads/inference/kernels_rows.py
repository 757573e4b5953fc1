"""The small kernels between the products in Triton: norm with its sum, rotation with the cache, SwiGLU."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803  compile-time constants are written in capitals, as everywhere in Triton

import triton
import triton.language as tl


@triton.jit
def add_norm(
    x_ptr, y_ptr, weight_ptr, sum_ptr, out_ptr, width, eps, BLOCK: tl.constexpr, ADDED: tl.constexpr
):  # fmt: skip
    """sum = x + y, out = sum / rms(sum) x weight, one row a program; without ADDED the sum is x."""
    row = tl.program_id(0).to(tl.int64) * width
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    x = tl.load(x_ptr + row + columns, mask=inside, other=0.0)
    if ADDED:
        x = x + tl.load(y_ptr + row + columns, mask=inside, other=0.0)
        tl.store(sum_ptr + row + columns, x, mask=inside)
    wide = x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / width + eps)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row + columns, (wide * scale * weight).to(x.dtype), mask=inside)


@triton.jit
def place(
    qkv_ptr, q_ptr, k_ptr, keys_ptr, values_ptr, cos_ptr, sin_ptr, position_ptr, slot_ptr, q_norm_ptr, k_norm_ptr,
    heads, kv_heads, eps,
    HEAD: tl.constexpr, HALF: tl.constexpr, HEADS: tl.constexpr, ROTATED: tl.constexpr, NORMED: tl.constexpr,
):  # fmt: skip
    """HEADS heads of one token: queries to q, keys to k and the cache, values to the cache.

    Queries and keys are normed and rotated on the way.  A token whose slot is negative is padding and leaves no trace
    in the cache.
    """
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    columns = tl.arange(0, HALF)
    inside = (columns < HEAD // 2)[None, :]
    is_query = (head < heads)[:, None]
    is_key = ((head >= heads) & (head < heads + kv_heads))[:, None]
    is_value = ((head >= heads + kv_heads) & (head < heads + 2 * kv_heads))[:, None]
    at = qkv_ptr + token * (heads + 2 * kv_heads) * HEAD + head[:, None] * HEAD + columns[None, :]
    real = inside & (head < heads + 2 * kv_heads)[:, None]
    raw_a = tl.load(at, mask=real, other=0.0)
    raw_b = tl.load(at + HEAD // 2, mask=real, other=0.0)
    a = raw_a.to(tl.float32)
    b = raw_b.to(tl.float32)
    if NORMED:
        scale = tl.rsqrt((tl.sum(a * a, 1) + tl.sum(b * b, 1)) / HEAD + eps)[:, None]
        gain_at = columns[None, :] + tl.zeros([HEADS, HALF], dtype=tl.int32)
        a_gain = tl.load(tl.where(is_query, q_norm_ptr + gain_at, k_norm_ptr + gain_at), mask=inside, other=0.0)
        b_gain = tl.load(
            tl.where(is_query, q_norm_ptr + gain_at, k_norm_ptr + gain_at) + HEAD // 2, mask=inside, other=0.0
        )
        a = (a * scale * a_gain.to(tl.float32)).to(raw_a.dtype).to(tl.float32)
        b = (b * scale * b_gain.to(tl.float32)).to(raw_a.dtype).to(tl.float32)
    if ROTATED:
        angle = tl.load(position_ptr + token) * (HEAD // 2) + columns
        cos = tl.load(cos_ptr + angle, mask=columns < HEAD // 2, other=0.0)[None, :]
        sin = tl.load(sin_ptr + angle, mask=columns < HEAD // 2, other=0.0)[None, :]
        turned = a * cos - b * sin
        b = a * sin + b * cos
        a = turned
    first = a.to(raw_a.dtype)
    second = b.to(raw_a.dtype)
    q_at = q_ptr + (token * heads + head[:, None]) * HEAD + columns[None, :]
    tl.store(q_at, first, mask=inside & is_query)
    tl.store(q_at + HEAD // 2, second, mask=inside & is_query)
    k_at = k_ptr + (token * kv_heads + head[:, None] - heads) * HEAD + columns[None, :]
    tl.store(k_at, first, mask=inside & is_key)
    tl.store(k_at + HEAD // 2, second, mask=inside & is_key)
    slot = tl.load(slot_ptr + token).to(tl.int64)
    kept = inside & (slot + tl.zeros([1, HALF], dtype=tl.int64) >= 0)
    keys_at = keys_ptr + (slot * kv_heads + head[:, None] - heads) * HEAD + columns[None, :]
    tl.store(keys_at, first, mask=kept & is_key)
    tl.store(keys_at + HEAD // 2, second, mask=kept & is_key)
    values_at = values_ptr + (slot * kv_heads + head[:, None] - heads - kv_heads) * HEAD + columns[None, :]
    tl.store(values_at, raw_a, mask=kept & is_value)
    tl.store(values_at + HEAD // 2, raw_b, mask=kept & is_value)


@triton.jit
def gate(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    """out [tokens, width] = silu(first half) x second half of x [tokens, 2 width]."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    first = tl.load(x_ptr + row * 2 * width + columns, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(x_ptr + (row * 2 + 1) * width + columns, mask=inside, other=0.0).to(tl.float32)
    out = first / (1 + tl.exp(-first)) * second
    tl.store(out_ptr + row * width + columns, out.to(out_ptr.dtype.element_ty), mask=inside)
