"""Collective algorithms as rounds.

Sizes follow NCCL's tests: *size* is the buffer of one rank for all-reduce and broadcast, what each rank ends with for
all-gather, and what each begins with for reduce-scatter and all-to-all.  Shares are rounded up to whole bytes.
"""

from collections.abc import Callable, Sequence

from hw_models.interconnect.fabric import Axis
from hw_models.interconnect.plans import Lane, Peer, Plan, Round

PATTERNS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv")


def share(size: int, parts: int) -> int:
    """One of *parts* of *size* bytes, rounded up."""
    return -(-size // parts)


def ring(pattern: str, size: int, axis: int | None, n: int) -> Lane:
    """Every rank passes on to the next what came from the one before: (n - 1) steps, twice for all-reduce.

    All-to-all passes on in each step what has further to go, so that step k carries n - k shares.
    """
    on, block = Peer(1, axis), share(size, n)
    if pattern == "all_to_all":
        return tuple(Round(((on, block * (n - k)),)) for k in range(1, n))
    return (Round(((on, block),), (n - 1) * (2 if pattern == "all_reduce" else 1)),)


def bidirectional(pattern: str, size: int, axis: int | None, n: int) -> Lane:
    """Both ways round at once, so that no block goes further than half way: half the steps of a ring, half the time.

    With an even number the block from opposite comes in halves, one from either side.
    """
    if pattern == "all_to_all":
        return _both_ways_all_to_all(size, axis, n)
    block, both = share(size, n), (Peer(1, axis), Peer(-1, axis))
    if n == 2:
        gather: Lane = (Round(((both[0], block),)),)
    else:
        whole = Round(tuple((peer, block) for peer in both), (n - 1) // 2)
        gather = (whole,) if n % 2 else (whole, Round(tuple((peer, share(block, 2)) for peer in both)))
    return _of_gather(pattern, gather)


def _both_ways_all_to_all(size: int, axis: int | None, n: int) -> Lane:
    """Step k carries the shares that have k hops or more to go; what lies opposite goes half and half."""
    halves = [2 * min(1, n - 2 * distance) if n - 2 * distance > 0 else 1 for distance in range(1, n // 2 + 1)]
    block = share(size, 2 * n)
    return tuple(
        Round(tuple((Peer(way, axis), block * sum(halves[k:])) for way in ((1, -1) if n > 2 else (1, 1))))
        for k in range(len(halves))
    )


def line(pattern: str, size: int, axis: int | None, n: int) -> Lane:
    """As ``bidirectional`` where the ends are not joined: every block goes to both ends, (n - 1) steps."""
    block, rounds = share(size, n), []
    for step in range(1, n):
        up = Peer(1, axis, low=step - 1, high=n - 2, wraps=False)
        down = Peer(-1, axis, low=1, high=n - step, wraps=False)
        rounds.append(Round(((up, block), (down, block))))
    if pattern == "all_gather":
        return tuple(rounds)
    scatter = tuple(Round(tuple((_turned(peer), block) for peer, _ in each.sends)) for each in reversed(rounds))
    return scatter if pattern == "reduce_scatter" else (*scatter, *rounds)


def _turned(peer: Peer) -> Peer:
    """The message back: from where *peer* leads to where it comes from."""
    assert peer.high is not None
    return Peer(-peer.offset, peer.axis, low=peer.low + peer.offset, high=peer.high + peer.offset, wraps=False)


def direct(pattern: str, size: int, axis: int | None, n: int) -> Lane:
    """Every rank sends its share to every other at once, nearest position first; twice for all-reduce."""
    once = Round(tuple((Peer(k, axis), share(size, n)) for k in range(1, n)))
    return (once, once) if pattern == "all_reduce" else (once,)


def halving_doubling(pattern: str, size: int, axis: int | None, n: int) -> Lane:
    """Exchanges with partners at distance 1, 2, 4 ..., of half as much each time; back the other way to gather."""
    bits = n.bit_length() - 1
    scatter = tuple(Round(((Peer(1 << bit, axis, exclusive=True), share(size, 2 << bit)),)) for bit in range(bits))
    return _of_gather(pattern, scatter[::-1])


def _of_gather(pattern: str, gather: Lane) -> Lane:
    """The rounds of *pattern*, given those of all-gather: a reduce-scatter is an all-gather played backwards."""
    return {"all_gather": gather, "reduce_scatter": gather[::-1], "all_reduce": (*gather[::-1], *gather)}[pattern]


def in_network(pattern: str, size: int, axis: int | None, n: int) -> Lane:
    """The switch adds: every rank sends all it has up, and gets the sum down."""
    del pattern, n
    return (Round(((Peer(0, axis), size),)),)


def binomial(pattern: str, size: int, axis: int | None, n: int) -> Lane:
    """Broadcast: whoever has the data sends it on, to 1, 2, 4 ... ranks."""
    del pattern
    return tuple(
        Round(((Peer(1 << bit, axis, high=min((1 << bit) - 1, n - 1 - (1 << bit)), wraps=False), size),))
        for bit in range((n - 1).bit_length())
    )


def chain(size: int, n: int, chunks: int) -> Plan:
    """Broadcast along a chain, chunk after chunk."""
    piece = share(size, chunks)
    lane = tuple(Round(((Peer(1, low=at, high=at, wraps=False), piece),)) for at in range(n - 1))
    return Plan((n,), (lane,) * chunks, pipelined=True)


Algorithm = Callable[[str, int, int | None, int], Lane]
FLAT: dict[str, tuple[Algorithm, tuple[str, ...]]] = {
    "ring": (ring, ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")),
    "bidirectional": (bidirectional, ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")),
    "line": (line, ("all_reduce", "all_gather", "reduce_scatter")),
    "direct": (direct, ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")),
    "halving_doubling": (halving_doubling, ("all_reduce", "all_gather", "reduce_scatter")),
    "in_network": (in_network, ("all_reduce",)),
    "tree": (binomial, ("broadcast",)),
}


def send_recv(size: int) -> Plan:
    """One message, from the first of two ranks to the second."""
    return Plan((2,), ((Round(((Peer(1, high=0, wraps=False), size),)),),))


Chooser = Callable[[str, int, int], Lane]  # (pattern, bytes, axis) to rounds along that axis


def hierarchical(pattern: str, size: int, axes: Sequence[Axis], order: Sequence[int], choose: Chooser) -> list[Lane]:
    """Phases, one axis after the other: scatter from the inside out, gather back in, for what is scattered is less.

    order   of the axes, the first being that which carries most.
    choose  gives the rounds of one axis.
    """
    if pattern == "all_to_all":
        return [choose(pattern, size, axis) for axis in order]
    left, scatter, gather = size, [], []
    for axis in order:
        scatter.append(choose("reduce_scatter", left, axis))
        gather.append(choose("all_gather", left, axis))
        left = share(left, axes[axis].length)
    gather.reverse()
    return {"reduce_scatter": scatter, "all_gather": gather, "all_reduce": [*scatter, *gather]}[pattern]


def in_turn(phases: Sequence[Lane]) -> Lane:
    """The rounds of all *phases*, one after the other."""
    return tuple(each for phase in phases for each in phase)


def multi_axis(pattern: str, size: int, axes: Sequence[Axis], choose: Chooser) -> tuple[Lane, ...]:
    """As many parts as axes, each taking the axes in another order, so that all links are in use at once."""
    count = len(axes)
    part = share(size, count)
    orders = [tuple((first + step) % count for step in range(count)) for first in range(count)]
    return tuple(in_turn(hierarchical(pattern, part, axes, order, choose)) for order in orders)
