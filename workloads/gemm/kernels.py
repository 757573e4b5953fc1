# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call, misc, no-any-return, import-untyped"
"""Matrix products C = A B in Triton; loads Triton, which only Linux has.

All matrices are row-major with elements of a row side by side; *stride* is the distance of rows in elements.  Sums are
fp32.  `even` promises that tiles divide all three sizes, so that no load or store needs a mask.
"""

import triton
import triton.language as tl


@triton.jit
def gemm_elements(
    a, b, c, m, n, k, stride_a, stride_b, stride_c, block_m: tl.constexpr, block_n: tl.constexpr
):  # fmt: skip
    """One element a thread, one of the block's sides is 1; blocks follow one another along the longer side."""
    block = tl.program_id(0)
    down = (m + block_m - 1) // block_m
    across = (n + block_n - 1) // block_n
    if block_n == 1:
        row, column = block % down, block // down
    else:
        row, column = block // across, block % across
    rows = row.to(tl.int64) * block_m + tl.arange(0, block_m)[:, None]
    columns = column.to(tl.int64) * block_n + tl.arange(0, block_n)[None, :]
    left, right = a + rows * stride_a, b + columns
    total = tl.full((block_m, block_n), 0.0, tl.float32)
    for _ in range(k):
        x = tl.load(left, mask=rows < m, other=0.0)
        y = tl.load(right, mask=columns < n, other=0.0)
        total += x.to(tl.float32) * y.to(tl.float32)
        left += 1
        right += stride_b
    tl.store(c + rows * stride_c + columns, total.to(c.dtype.element_ty), mask=(rows < m) & (columns < n))


@triton.jit
def _place(tile, m, n, block_m: tl.constexpr, block_n: tl.constexpr, group: tl.constexpr):
    """Row and column of a tile: bands of *group* rows of tiles, each walked column by column."""
    down = (m + block_m - 1) // block_m
    across = (n + block_n - 1) // block_n
    band = tile // (group * across)
    height = min(down - band * group, group)
    inside = tile % (group * across)
    return band * group + inside % height, inside // height


@triton.jit
def _dot(x, y, total, precision: tl.constexpr, widen: tl.constexpr):
    """total + x y; *widen* for the interpreter, which multiplies the bits of bf16 as if they were integers."""
    if widen:
        return tl.dot(x.to(tl.float32), y.to(tl.float32), total, input_precision="ieee")
    return tl.dot(x, y, total, input_precision=precision)


@triton.jit
def _sum(
    a, b, row, column, m, n, k, stride_a, stride_b,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr,
    even: tl.constexpr, precision: tl.constexpr, widen: tl.constexpr,
):  # fmt: skip
    """Sums of one tile, slice by slice; the compiler fetches slices ahead as num_stages says."""
    rows = row.to(tl.int64) * block_m + tl.arange(0, block_m)[:, None]
    columns = column.to(tl.int64) * block_n + tl.arange(0, block_n)[None, :]
    depth = tl.arange(0, block_k)
    left = a + rows * stride_a + depth[None, :]
    right = b + depth[:, None].to(tl.int64) * stride_b + columns
    total = tl.full((block_m, block_n), 0.0, tl.float32)
    for step in range((k + block_k - 1) // block_k):
        if even:
            x = tl.load(left)
            y = tl.load(right)
        else:
            rest = k - step * block_k
            x = tl.load(left, mask=(rows < m) & (depth[None, :] < rest), other=0.0)
            y = tl.load(right, mask=(depth[:, None] < rest) & (columns < n), other=0.0)
        total = _dot(x, y, total, precision, widen)
        left += block_k
        right += block_k * stride_b
    return total


@triton.jit
def _write(
    c, total, row, column, m, n, stride_c, block_m: tl.constexpr, block_n: tl.constexpr, even: tl.constexpr
):  # fmt: skip
    rows = row.to(tl.int64) * block_m + tl.arange(0, block_m)[:, None]
    columns = column.to(tl.int64) * block_n + tl.arange(0, block_n)[None, :]
    where = c + rows * stride_c + columns
    if even:
        tl.store(where, total.to(c.dtype.element_ty))
    else:
        tl.store(where, total.to(c.dtype.element_ty), mask=(rows < m) & (columns < n))


@triton.jit
def gemm_tiled(
    a, b, c, m, n, k, stride_a, stride_b, stride_c,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, group: tl.constexpr,
    even: tl.constexpr, precision: tl.constexpr, widen: tl.constexpr,
):  # fmt: skip
    """One tile of the result a program."""
    row, column = _place(tl.program_id(0), m, n, block_m, block_n, group)
    total = _sum(a, b, row, column, m, n, k, stride_a, stride_b, block_m, block_n, block_k, even, precision, widen)
    _write(c, total, row, column, m, n, stride_c, block_m, block_n, even)


@triton.jit
def gemm_persistent(
    a, b, c, m, n, k, stride_a, stride_b, stride_c,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, group: tl.constexpr,
    even: tl.constexpr, precision: tl.constexpr, widen: tl.constexpr,
):  # fmt: skip
    """As many programs as run at once; each takes every so-many-th tile."""
    tiles = ((m + block_m - 1) // block_m) * ((n + block_n - 1) // block_n)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        row, column = _place(tile, m, n, block_m, block_n, group)
        total = _sum(a, b, row, column, m, n, k, stride_a, stride_b, block_m, block_n, block_k, even, precision, widen)
        _write(c, total, row, column, m, n, stride_c, block_m, block_n, even)


@triton.jit
def gemm_descriptor(
    a, b, c, m, n, k,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, group: tl.constexpr,
    halves: tl.constexpr, out: tl.constexpr, precision: tl.constexpr, widen: tl.constexpr,
):  # fmt: skip
    """The same with a, b and c as tensor descriptors: the copy unit works out addresses and edges."""
    tiles = ((m + block_m - 1) // block_m) * ((n + block_n - 1) // block_n)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        row, column = _place(tile, m, n, block_m, block_n, group)
        total = tl.full((block_m, block_n), 0.0, tl.float32)
        for step in range((k + block_k - 1) // block_k):
            x = a.load([row * block_m, step * block_k])
            y = b.load([step * block_k, column * block_n])
            total = _dot(x, y, total, precision, widen)
        if halves:
            pair = tl.permute(tl.reshape(total, (block_m, 2, block_n // 2)), (0, 2, 1))
            first, second = tl.split(pair)
            c.store([row * block_m, column * block_n], first.to(out))
            c.store([row * block_m, column * block_n + block_n // 2], second.to(out))
        else:
            c.store([row * block_m, column * block_n], total.to(out))
