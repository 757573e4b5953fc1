"""How much bandwidth each parallelism needs of each level of the network, for exposed communication to stay small."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from simulator.links import Demand
from simulator.parallel.links import least_factor
from simulator.parallel.plan import Plan
from simulator.parallel.played import Player
from simulator.parallel.run import Machine, kind_of, kinds_of, parts_on
from simulator.parallel.stage import Stage
from simulator.parallel.step import play_step

_MOST = 2.0**16  # a level that needs more than so many times its bandwidth is not the one that helps


@dataclass(frozen=True, slots=True)
class Need:
    """What *kind* (dp, tp, pp, ep, or all) needs of *level*.

    bandwidth  bytes a second of one link that it has, and *needed* that keep the loss at the limit; None where no
               bandwidth does.
    loss       that it has now: time over that with infinite bandwidth at this level, less one.  Algorithms and
               protocols stay, and with them all latencies.
    largest    picoseconds for which its largest collective keeps the level's links busy.
    """

    kind: str
    level: str
    bandwidth: int
    needed: int | None
    loss: float
    largest: int


@dataclass
class Needs:
    """Needs of *stages* by *plan*: the step is played with other bandwidths until the loss is *limit*."""

    stages: Sequence[Stage]
    plan: Plan
    on: Machine
    batch: int
    limit: float

    def all(self) -> list[Need]:
        """One for each parallelism and level that it uses, and one for each level with all of them."""
        used = self._used()
        levels = list(dict.fromkeys(level for _, level in used))
        alone = [self._need(kind, level, largest) for (kind, level), largest in used.items()]
        together = [
            self._need("all", level, max(each for (_, other), each in used.items() if other == level))
            for level in levels
            if sum(other == level for _, other in used) > 1
        ]
        return alone + together

    def _need(self, kind: str, level: str, largest: int) -> Need:
        best = self._time(kind, level, math.inf)

        def loss(factor: float) -> float:
            return self._time(kind, level, factor) / best - 1

        factor = least_factor(loss, self.limit)
        bandwidth = self.on.system.links[level].bandwidth
        needed = round(factor * bandwidth) if factor < _MOST else None
        return Need(kind, level, bandwidth, needed, loss(1.0), largest)

    def _time(self, kind: str, level: str, factor: float) -> int:
        """Picoseconds of a step with *factor* times the bandwidth at *level*, if only *kind* sends anything."""

        def price(pattern: str, nbytes: int, ranks: Sequence[int]) -> Demand:
            if kind not in ("all", kind_of(self.plan, pattern, ranks)):
                return Demand(0)
            return shorter(self.on.network(pattern, nbytes, ranks), level, factor)

        parts = parts_on(
            Player(self.on.prices, price, kinds_of(self.plan), self.on.held), price, self.stages, self.plan
        )
        return play_step(parts, self.plan.schedule, self.plan.pp, self._microbatches, self.on.holds).time

    @property
    def _microbatches(self) -> int:
        return self.batch // (self.plan.dp * self.plan.microbatch)

    def _used(self) -> dict[tuple[str, str], int]:
        """(parallelism, level) in use, with the picoseconds for which the largest collective keeps its links busy."""
        used: dict[tuple[str, str], int] = {}
        network = self.on.network

        def note(pattern: str, nbytes: int, ranks: Sequence[int]) -> Demand:
            demand = network(pattern, nbytes, ranks)
            for link, busy in demand.busy.items():
                key = (kind_of(self.plan, pattern, ranks), link.split(" ")[0])
                used[key] = max(used.get(key, 0), busy)
            return demand

        player = Player(self.on.prices, note, kinds_of(self.plan), self.on.held)
        parts_on(player, note, self.stages, self.plan)
        return used


def shorter(demand: Demand, level: str, factor: float) -> Demand:
    """*demand* with *factor* times the bandwidth at *level*: its links are busy for so much less.

    >>> shorter(Demand(5, {"nvlink up": 100, "ib up": 40}), "nvlink", 4)
    Demand(fixed=5, busy={'nvlink up': 25, 'ib up': 40})
    """
    busy = {link: round(each / factor) if link.split(" ")[0] == level else each for link, each in demand.busy.items()}
    return Demand(demand.fixed, busy)
