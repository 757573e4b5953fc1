"""Bytes that a step of the ladder moves between DRAM, L2 and the memory of a core, from its tile sizes.

What the cores ask of the L2 is a closed form: every tile fetches its rows of the left operand and its columns of the
right one once, edges as far as they exist.  Of programs that run in step, one to a core, neighbours ask for the same
panel at the same time, and the requests are merged before they reach the L2.  What crosses from the DRAM depends on
which tiles run at once: the programs that are resident form a wave that walks K together, so a panel of an operand is
fetched once a wave, and not at all if so little was touched since its last use that it is still in the L2 (least
recently used goes first).
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from workloads.gemm.geometry import LINE, SECTOR, WARP, lines_a_step, reads_of_operands
from workloads.gemm.steps import Config, Step

Sizes = tuple[int, int, int]
# Programs next to each other whose requests to the L2 are merged: read off the sectors that an H200 counted for
# 'pipelined' and 'grouped' (docs/data/lab07_h200.json), which are 0.73 and 0.49 of what the tiles ask for
NEIGHBOURS = 4


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one product.

    dram     to and from the off-chip memory; *l2* between L2 and cores; *port* at the cores' own memories.
    asked    what the cores ask of the L2 before requests are merged.
    least    each operand once and the result once: nothing moves less off-chip.
    """

    dram: int
    l2: int
    asked: int
    port: int
    least: int


def compulsory(sizes: Sizes, item: int) -> int:
    """Return the bytes of both operands and the result, elements of *item* bytes.

    >>> compulsory((4, 5, 6), 2)
    148
    """
    m, n, k = sizes
    return (m * k + k * n + m * n) * item


def traffic(step: Step, sizes: Sizes, item: int, cores: int, l2: float, programs: int) -> Traffic:
    """Return the bytes that *step* moves for m, n, k = *sizes* on *cores* with *l2* bytes of shared cache.

    programs  that are on a core at a time; see `workloads.gemm.geometry.residence`.
    """
    m, n, _ = sizes
    resident = cores * programs
    fetched = sum(panel_bytes for _, panel_bytes in _fetched(step, sizes, item, resident, l2))
    asked = l2_bytes(step, sizes, item)
    return Traffic(
        dram=fetched + m * n * item,
        l2=merged(step, sizes, item, asked) if resident == cores else asked,
        asked=asked,
        port=port_bytes(step, sizes, item),
        least=compulsory(sizes, item),
    )


def l2_bytes(step: Step, sizes: Sizes, item: int) -> int:
    """Return the bytes between L2 and cores: operands once a tile, the result once.

    The element kernels fetch at least a sector for each k of an operand whose neighbours are a row apart.

    >>> from workloads.gemm.steps import Config
    >>> l2_bytes(Step("", "tiled", Config(16, 32, 16), ""), (48, 64, 10), 2)  # left 2 x, right 3 x, result
    11904
    """
    m, n, k = sizes
    across, down = -(-n // step.config.block_n), -(-m // step.config.block_m)
    wide = max(item, SECTOR) if step.kernel == "elements" and step.config.block_n == 1 else item
    return m * k * item * across + k * n * wide * down + m * n * item


def merged(step: Step, sizes: Sizes, item: int, asked: int) -> int:
    """Return what is left of *asked* bytes when each four neighbouring programs fetch what they share once.

    >>> from workloads.gemm.steps import Config
    >>> one = Step("", "tiled", Config(16, 32, 16), "")  # 2 rows of 4 tiles, 8 x 16 B each: a row's left panel once
    >>> merged(one, (32, 128, 10), 2, l2_bytes(one, (32, 128, 10), 2))
    13952
    """
    m, n, k = sizes
    cut = step.config
    tiles = list(order(cut, sizes))
    saved = 0
    for start in range(0, len(tiles), NEIGHBOURS):
        four = tiles[start : start + NEIGHBOURS]
        for row, times in Counter(row for row, _ in four).items():
            saved += (times - 1) * min(cut.block_m, m - row * cut.block_m)
        for column, times in Counter(column for _, column in four).items():
            saved += (times - 1) * min(cut.block_n, n - column * cut.block_n)
    return asked - saved * k * item


def port_bytes(step: Step, sizes: Sizes, item: int) -> int:
    """Return the bytes at the ports of the cores' own memories; an element kernel takes a whole line each time."""
    m, n, k = sizes
    cut = step.config
    across, down = -(-n // cut.block_n), -(-m // cut.block_m)
    if step.kernel == "elements":
        return down * across * cut.warps * k * lines_a_step(cut) * LINE
    slices = -(-k // cut.block_k)
    left, right = reads_of_operands(cut)
    read = (left * cut.block_m + right * cut.block_n) * cut.block_k * item
    return down * across * slices * (cut.slice_bytes(item) + read)


def order(cut: Config, sizes: Sizes) -> Iterator[tuple[int, int]]:
    """Yield row and column of every tile in the order in which programs take them.

    >>> list(order(Config(16, 16, 16, group=2), (48, 32, 1)))
    [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    """
    m, n, _ = sizes
    down, across = -(-m // cut.block_m), -(-n // cut.block_n)
    group = down if cut.block_n == 1 else cut.group
    for first in range(0, down, group):
        height = min(group, down - first)
        for inside in range(height * across):
            yield first + inside % height, inside // height


def _fetched(step: Step, sizes: Sizes, item: int, resident: int, l2: float) -> Iterator[tuple[str, int]]:
    """Yield side and bytes of every panel that a wave has to fetch from the DRAM."""
    m, n, k = sizes
    cut = step.config
    held: OrderedDict[tuple[str, int], int] = OrderedDict()
    tiles = list(order(cut, sizes))
    for start in range(0, len(tiles), resident):
        wave = tiles[start : start + resident]
        panels = {("left", row): min(cut.block_m, m - row * cut.block_m) * k * item for row in {row for row, _ in wave}}
        for column in {_panel(cut, column, item) for _, column in wave}:
            width = _width(cut, item)
            panels["right", column] = min(width, n - column * width) * k * item
        yield from ((key[0], size) for key, size in panels.items() if key not in held)
        if sum(panels.values()) > l2:  # its slices push each other out: the next wave finds none of their beginnings
            held.clear()
            continue
        for key, size in panels.items():
            held.pop(key, None)
            held[key] = size
        total = sum(held.values())
        while total > l2:
            total -= held.popitem(last=False)[1]


def _width(cut: Config, item: int) -> int:
    """Columns of the right operand that come together: a tile's, but no fewer than a sector."""
    return max(cut.block_n, SECTOR // item)


def _panel(cut: Config, column: int, item: int) -> int:
    return column * cut.block_n // _width(cut, item)


def intensity(sizes: Sizes, nbytes: float) -> float:
    """Return FLOP per byte, a multiply-add counted as two."""
    m, n, k = sizes
    return 2 * m * n * k / nbytes


def threads(step: Step, sizes: Sizes) -> int:
    """Threads of an element kernel, one for each element of the result, edges of blocks included."""
    m, n, _ = sizes
    return -(-m // step.config.block_m) * -(-n // step.config.block_n) * step.config.warps * WARP
