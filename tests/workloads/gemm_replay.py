"""A brute-force replay of tiled products, element by element, that the closed forms of lab 7 are held against."""

from collections import OrderedDict

from workloads.gemm.steps import Config
from workloads.gemm.traffic import Sizes


def tiles_in_order(cut: Config, sizes: Sizes) -> list[tuple[int, int]]:
    """The order of tiles, worked out as the kernel does from the number of a program."""
    m, n, _ = sizes
    down, across = -(-m // cut.block_m), -(-n // cut.block_n)
    found = []
    for tile in range(down * across):
        band = tile // (cut.group * across)
        height = min(down - band * cut.group, cut.group)
        inside = tile % (cut.group * across)
        found.append((band * cut.group + inside % height, inside // height))
    return found


def elements_asked(cut: Config, sizes: Sizes) -> int:
    """Elements that all programs load and store, counted one by one under the masks of the kernel."""
    m, n, k = sizes
    count = 0
    for row, column in tiles_in_order(cut, sizes):
        rows = [i for i in range(row * cut.block_m, (row + 1) * cut.block_m) if i < m]
        columns = [j for j in range(column * cut.block_n, (column + 1) * cut.block_n) if j < n]
        for start in range(0, k, cut.block_k):
            depth = [p for p in range(start, start + cut.block_k) if p < k]
            count += sum(1 for _ in rows for _ in depth) + sum(1 for _ in depth for _ in columns)
        count += len(rows) * len(columns)
    return count


def dram_elements(cut: Config, sizes: Sizes, resident: int, cache: int) -> int:
    """Elements that miss a least-recently-used cache of *cache* elements, waves of programs in step; and the result."""
    m, n, k = sizes
    held: OrderedDict[tuple[str, int, int], None] = OrderedDict()
    missed = 0
    order = tiles_in_order(cut, sizes)
    for first in range(0, len(order), resident):
        wave = order[first : first + resident]
        for start in range(0, k, cut.block_k):
            depth = range(start, min(k, start + cut.block_k))
            for row, column in wave:
                touched = [
                    ("a", i, p) for i in range(row * cut.block_m, min(m, (row + 1) * cut.block_m)) for p in depth
                ]
                touched += [
                    ("b", p, j) for p in depth for j in range(column * cut.block_n, min(n, (column + 1) * cut.block_n))
                ]
                for key in touched:
                    if key not in held:
                        missed += 1
                    held[key] = None
                    held.move_to_end(key)
                while len(held) > cache:
                    held.popitem(last=False)
    return missed + m * n
