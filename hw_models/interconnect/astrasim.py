"""Collectives as ASTRA-sim's analytical backends count them: their units, their rounding and their omissions.

Nothing here is physics; it says how that simulator's results come about, so that they can be set beside ours:

* GB/s are GiB/s, and a cycle is a nanosecond.  Every link's time is cut down to whole cycles.
* ``Aware``: a link takes one message at a time, and passes it on when it has all of it (store and forward), so that a
  way through a switch costs the bytes twice.  ``Unaware``: hops x latency + bytes / bandwidth, and no message waits
  for another, so that direct exchange on a switch is (n - 1) times too fast.
* A collective is cut into *dataset_splits* chunks, of which *active_chunks* are under way at a time.
* A node spends *endpoint_delay* before the first message and after each arrival, and to reduce reads two operands and
  writes one at 1600 bytes a cycle (``local-mem-bw`` of the examples that come with it), each cut to whole cycles.
* Halving-doubling does not reduce what arrives last in its first half.
* All-gather counts the bytes that a node begins with.  All-to-all on a ring passes share by share: n (n - 1) / 2 steps.

Sources: the rows of ``hw_models/data/astrasim``, the documentation of ASTRA-sim 2 (Won et al., ISPASS 2023), and for
some of these meanings its public source (github.com/astra-sim/astra-sim): facts were read there, no code was taken.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hw_models.interconnect.plans import Peer, Places
from hw_models.interconnect.topologies import path
from hw_models.interconnect.trees import parent_of
from simulator.network import Key, Send, Transit, Wire, play
from simulator.system import Level, Topology

BACKENDS = ("Aware", "Unaware")
TOPOLOGIES = {"Ring": Topology.RING, "Switch": Topology.SWITCH, "FullyConnected": Topology.MESH}
ALGORITHMS = ("ring", "direct", "halvingDoubling", "doubleBinaryTree")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
_LOCAL_BYTES_PER_CYCLE = 1600
_SOURCE = "ASTRA-sim's analytical backend"


@dataclass(frozen=True, slots=True)
class Case:
    """One run, in ASTRA-sim's own terms: *bandwidth* in GiB/s, *latency* in nanoseconds, *size* in bytes a node."""

    backend: str
    topology: str
    npus: int
    bandwidth: float
    latency: float
    algorithm: str
    splits: int
    active: int
    endpoint_delay: int
    collective: str
    size: int

    def fault(self) -> str | None:
        """Why the case cannot be run, or None."""
        known = (
            ("backend", self.backend, BACKENDS),
            ("topology", self.topology, TOPOLOGIES),
            ("algorithm", self.algorithm, ALGORITHMS),
            ("collective", self.collective, COLLECTIVES),
        )
        for column, value, names in known:
            if value not in names:
                return f"{column} is {value!r}; known: {', '.join(names)}"
        power = self.npus & (self.npus - 1) == 0
        if self.algorithm in ("halvingDoubling", "doubleBinaryTree") and not power:
            return f"{self.algorithm} needs a power of two, and there are {self.npus} npus"
        if self.algorithm == "halvingDoubling" and self.collective == "all_to_all":
            return "halvingDoubling cannot do all_to_all"
        if self.algorithm == "doubleBinaryTree" and self.collective != "all_reduce":
            return f"doubleBinaryTree does all_reduce, not {self.collective}"
        return "needs two npus or more" if self.npus < 2 else None


@dataclass(frozen=True, slots=True)
class _Link(Wire):
    """A link in ASTRA-sim's terms; times are whole cycles.  *hops* is 0 where messages wait for each other."""

    gibibytes: float = 1.0
    nanoseconds: float = 0.0
    hops: int = 0

    def transit(self, size: int, first: bool = True) -> Transit:
        del first
        serial = size / (self.gibibytes * 2**30 / 10**9)
        if self.hops:
            whole = int(self.hops * self.nanoseconds + serial)
            return Transit(0, whole, whole)
        whole = int(self.nanoseconds + serial)
        return Transit(int(serial), whole, whole)


@dataclass(frozen=True, slots=True)
class _Step:
    """Messages that a node sends side by side, and bytes that it reduces after each of what comes in return."""

    sends: tuple[tuple[Peer, int], ...]
    reduced: int = 0


def cycles(case: Case) -> int:
    """Cycles until the last node is done."""
    level = Level(topology=TOPOLOGIES[case.topology], size=case.npus, bandwidth=1, source=_SOURCE)
    folded = case.algorithm in ("ring", "direct") or (case.algorithm == "halvingDoubling" and case.topology != "Ring")
    routes: dict[tuple[int, int], tuple[Wire, ...]] = {}

    def route(source: int, target: int) -> tuple[Wire, ...]:
        if (source, target) not in routes:
            routes[source, target] = tuple(_links(case, level, source, target, folded))
        return routes[source, target]

    if case.algorithm == "doubleBinaryTree":
        programs = _tree_programs(case)
    else:
        programs = {rank: list(_program(case, rank)) for rank in range(1 if folded else case.npus)}
    return play(programs, route, folded).time


def _links(case: Case, level: Level, source: int, target: int, folded: bool) -> Iterator[Wire]:
    hops = path(level, source, target)
    if case.backend == "Unaware":
        yield _Link((source, target), "", 1, gibibytes=case.bandwidth, nanoseconds=case.latency, hops=len(hops))
        return
    for hop in hops:
        name = (hop.kind,) if folded else (hop.kind, *hop.owner)
        yield _Link(name, "", 1, gibibytes=case.bandwidth, nanoseconds=case.latency)


def chunks(case: Case) -> list[int]:
    """Bytes of each chunk: equal parts cut down to whole bytes, and one more for what that leaves."""
    size, chunk = case.size, case.size // case.splits
    if case.collective != "all_gather" and case.npus > chunk:
        chunk = case.npus
        size = case.splits * chunk
    chunk = max(chunk, 1)
    whole, rest = divmod(size, chunk)
    return [chunk] * whole + ([rest] if rest else [])


def _steps(case: Case, size: int) -> list[_Step]:
    """The steps of one chunk of *size* bytes."""
    n, pattern = case.npus, case.collective
    reduces = pattern in ("all_reduce", "reduce_scatter")
    if case.algorithm == "halvingDoubling":
        return _halving_doubling(n, pattern, size)
    share = size if pattern == "all_gather" else size // n
    if case.algorithm == "direct":
        once = tuple((Peer(k), share) for k in range(1, n))
        return [_Step(once, share if reduces else 0), *([_Step(once)] if pattern == "all_reduce" else [])]
    on = ((Peer(1), share),)
    count = n * (n - 1) // 2 if pattern == "all_to_all" else n - 1
    return [_Step(on, share if reduces else 0)] * count + ([_Step(on)] * count if pattern == "all_reduce" else [])


def _halving_doubling(n: int, pattern: str, size: int) -> list[_Step]:
    """Distances 1, 2, 4 ... and back; what is reduced is as large as the message that it makes ready."""
    bits = range(n.bit_length() - 1)
    if pattern == "all_gather":
        return [_Step(((Peer(1 << bit, exclusive=True), size * (n >> (bit + 1))),)) for bit in reversed(bits)]
    sizes = [size >> (bit + 1) for bit in bits]
    halves = [((Peer(1 << bit, exclusive=True), sizes[bit]),) for bit in bits]
    scatter = [_Step(half, following) for half, following in zip(halves, [*sizes[1:], 0], strict=True)]
    return scatter + ([_Step(half) for half in reversed(halves)] if pattern == "all_reduce" else [])


def _work(case: Case, reduced: int) -> int:
    """Cycles of a node after an arrival of which it reduces *reduced* bytes: two reads and a write."""
    return case.endpoint_delay + 3 * (reduced // _LOCAL_BYTES_PER_CYCLE)


def _program(case: Case, rank: int) -> Iterator[Send]:
    """What *rank* sends: chunk after chunk, each when one of the active ones is done."""
    places, base, finished = Places((case.npus,)), 0, list[int]()
    for number, size in enumerate(chunks(case)):
        before: list[Key] = [(rank, finished[number - case.active])] if number >= case.active else []
        delay = case.endpoint_delay
        for step in _steps(case, size):
            if len(before) > 1:
                yield Send(rank, 0, tuple(before), delay)
                before, base, delay = [(rank, base)], base + 1, 0
            for peer, nbytes in step.sends:
                yield Send(_receiver(places, rank, peer), nbytes, tuple(before), delay)
            before = [(_sender(places, rank, peer), base + place) for place, (peer, _) in enumerate(step.sends)]
            base, delay = base + len(step.sends), _work(case, step.reduced)
        yield Send(rank, 0, tuple(before), delay)
        finished.append(base)
        base += 1


def _receiver(places: Places, rank: int, peer: Peer) -> int:
    receiver = places.receiver(rank, peer)
    assert receiver is not None  # all take part
    return receiver


def _sender(places: Places, rank: int, peer: Peer) -> int:
    sender = places.sender(rank, peer)
    assert sender is not None  # all take part
    return sender


def _tree_programs(case: Case) -> dict[int, list[Send]]:
    """All-reduce over binary trees: chunks take the tree under the last node and that under the first in turn."""
    programs: dict[int, list[Send]] = {rank: [] for rank in range(case.npus)}
    finished: list[dict[int, Key]] = []
    for number, size in enumerate(chunks(case)):
        gates = finished[number - case.active] if number >= case.active else {}
        finished.append(_TreeChunk(case, programs, gates, size, mirrored=number % 2 == 0).play())
    return programs


@dataclass(slots=True)
class _TreeChunk:
    """One chunk on one tree: up to its root and down again; *gates* say by rank after what it may begin."""

    case: Case
    programs: dict[int, list[Send]]
    gates: dict[int, Key]
    size: int
    mirrored: bool

    def play(self) -> dict[int, Key]:
        """Add the chunk's messages to the programs; return by rank what finishes it there."""
        n = self.case.npus
        parents = {rank: parent_of(rank, n) for rank in range(n)}
        children: dict[int, list[int]] = {rank: [] for rank in range(n)}
        for rank, parent in parents.items():
            if parent is not None:
                children[parent].append(rank)
        upward = sorted(range(1, n), key=lambda rank: rank & -rank)
        up: dict[int, Key] = {}
        for rank in upward:
            up[rank] = self._send(rank, parents[rank], [up[child] for child in children[rank]], bool(children[rank]))
        down: dict[int, Key] = {}
        done: dict[int, Key] = {}
        for rank in [0, *reversed(upward)]:
            after = [down[rank]] if rank else [up[child] for child in children[rank]]
            for child in children[rank]:
                down[child] = self._send(rank, child, after, True)
            done[self._name(rank)] = self._send(rank, rank, after, bool(children[rank]))
        return done

    def _send(self, rank: int, target: int | None, after: Sequence[Key], reduces: bool) -> Key:
        assert target is not None
        me, size = self._name(rank), 0 if target == rank else self.size
        gate = [self.gates[me]] if me in self.gates else []
        delay = _work(self.case, self.size if reduces else 0)
        self.programs[me].append(Send(self._name(target), size, (*after, *gate), delay))
        return me, len(self.programs[me]) - 1

    def _name(self, rank: int) -> int:
        return self.case.npus - 1 - rank if self.mirrored else rank
