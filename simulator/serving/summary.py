"""A run of a server in words and numbers: what terminal, page and JSON have in common."""

from dataclasses import asdict, dataclass
from typing import Any

from simulator.hardware import Chip
from simulator.headline import Fact, percent
from simulator.serving.capacity import Capacity
from simulator.serving.clock import Link
from simulator.serving.metrics import QUANTILES, Figures, Objective, quantile
from simulator.serving.records import Log
from simulator.serving.saturation import Saturation
from simulator.serving.scheduler import Limits
from simulator.units import PS_PER_SECOND, decimal, seconds
from simulator.variants import Resource

_BLOCKED = 0.2  # of the busy time: from there on the KV cache is part of the verdict
_DEMAND = {
    Resource.COMPUTE: "faster matrix units, or fewer bits in the products",
    Resource.BANDWIDTH: "memory bandwidth, or fewer bytes: a larger batch, smaller weights, a smaller KV cache",
    Resource.LAUNCH: "cheaper or fewer launches: captured graphs, fused kernels, larger batches",
    Resource.CAPACITY: "memory capacity: sequences lost their KV blocks and were computed again",
    Resource.INTERCONNECT: "faster links between the pools",
}


@dataclass(frozen=True, slots=True)
class Summary:
    """One run.

    setting     what ran, in a line: weights, batch, arrivals.
    bounds      engine time by resource in picoseconds; with *idle* it adds up to the time of all engines.
    offered     requests a second that arrived; None if all were there at the start.
    saturation  requests a second that the same engines and link serve when requests always wait.
    link        between two pools.
    """

    model: str
    setting: str
    chip: Chip
    limits: Limits
    capacity: Capacity
    figures: Figures
    log: Log
    bounds: dict[Resource, int]
    idle: int
    offered: float | None
    saturation: Saturation
    slo: Objective | None
    link: Link | None = None

    @property
    def engine_bound(self) -> Resource:
        """What binds most of the engines' busy time."""
        return max(self.bounds, key=lambda resource: self.bounds[resource])

    @property
    def link_share(self) -> float:
        """Part of the run in which the link between the pools sends."""
        return self.log.crossing / max(1, self.log.end)

    @property
    def bound(self) -> Resource:
        """What binds: the link if it is what saturates first, or busier than any engine; else `engine_bound`."""
        busier = self.log.crossing > max(track.busy for track in self.log.tracks)
        return Resource.INTERCONNECT if busier or self.saturation.link_limits else self.engine_bound

    @property
    def verdict(self) -> str:
        """Whether it keeps up, and what binds: one sentence."""
        binds, most = self._binds(), self._most()
        if self.offered is None:
            return f"{'Saturated at' if self.saturation.told else 'Serves'} {most}; {binds}."
        offered = f"{_rate(self.offered)} requests/s"
        if self.saturation.keeps_up(self.offered):
            return (
                f"Keeps up with {_rate(self.offered)} of {'at most ' if self.saturation.told else ''}{most}; {binds}."
            )
        if self.saturation.never(self.offered):
            return f"{offered} can never be served: it saturates at {most}; {binds}."
        if self.saturation.told:
            return f"{offered} is at the limit: it saturates at {most}; {binds}."
        return f"{offered} may be too many: it serves {most}; {binds}."

    def _most(self) -> str:
        """The saturation point, or what is known of it."""
        found = self.saturation
        if found.told:
            return f"{_rate(found.rate)} requests/s"
        if found.link is not None and self.offered is not None and found.never(self.offered):
            return f"{_rate(found.link)} requests/s or less"
        return f"at least {_rate(found.rate)} requests/s (too few requests to tell)"

    def _binds(self) -> str:
        busy = max(1, sum(self.bounds.values()))
        binds = f"{self.engine_bound} binds {percent(self.bounds[self.engine_bound] / busy)} of the busy time"
        if self.figures.blocked > _BLOCKED:
            binds = f"the KV cache limits the batch to {self.figures.batch:.3g}, and {binds}"
        if self.bound is Resource.INTERCONNECT and self.link is not None:
            why = "carries no more" if self.saturation.link_limits else "is busier than any engine"
            link = f"the link between the pools {why} (interconnect, busy {percent(self.link_share)} of the run)"
            return f"{link}; in the engines {binds}"
        return binds

    @property
    def demand(self) -> str:
        """What that asks of a SoC."""
        busy = max(1, sum(self.bounds.values()))
        share = self.bounds[self.engine_bound] / busy
        gain = f"10 % more would shorten a step by up to {percent(share * (1 - 1 / 1.1))}"
        asks = [f"asks for {_DEMAND[self.engine_bound]}; {gain}."]
        if self.figures.blocked > _BLOCKED:
            blocked = f"requests wait for blocks in {percent(self.figures.blocked)} of the busy time."
            asks.insert(0, f"asks for memory capacity, or a smaller KV cache: {blocked}")
        if self.bound is Resource.INTERCONNECT and self.link is not None and self.saturation.link is not None:
            asks.insert(0, self._asks_of_link(self.link, self.saturation.link))
        return " ".join(f"{'A step' if index else 'It'} {each}" for index, each in enumerate(asks))

    def _asks_of_link(self, link: Link, carried: float) -> str:
        """The bandwidth that the requests offered need, and the one with which the engines are the limit."""
        needs = []
        if self.offered is not None and self.offered > carried:
            needs.append((self.offered, f"the {_rate(self.offered)} requests/s offered"))
        if (engines := self.saturation.engines) > carried:
            least = "at least " if self.saturation.least else "the "
            needs.append((engines, f"{least}{_rate(engines)} requests/s that the engines serve"))
        words = [f"{decimal(rate / carried * link.bandwidth, 'B/s')} for {what}" for rate, what in needs]
        has = f"{decimal(link.bandwidth, 'B/s')} carry {_rate(carried)} requests/s"
        return f"asks for interconnect, a faster link between the pools: {'; '.join([has, *words])}."

    @property
    def facts(self) -> list[Fact]:
        """The numbers of the first five seconds."""
        found, log = self.figures, self.log
        facts = [
            Fact("throughput", f"{_rate(found.requests_per_second)} requests/s", f"{found.requests:,} served"),
            Fact("output", f"{_rate(found.tokens_per_second)} tokens/s", self._in_and_out()),
            Fact("TTFT", _three(found.ttft), "p50, p95, p99: from arrival to the first token"),
            Fact("TPOT", _three(found.tpot), "p50, p95, p99: time per output token after the first"),
            Fact("end to end", _three(found.e2e), "p50, p95, p99: from arrival to the last token"),
        ]
        if found.goodput is not None and found.met is not None:
            note = f"requests within the SLO; {percent(found.met)} of all"
            facts.append(Fact("goodput", f"{_rate(found.goodput)} requests/s", note))
        facts += [
            Fact("batch", f"{found.batch:.3g}", f"sequences in a step, mean; at most {self.limits.max_batch}"),
            Fact(
                "KV cache",
                f"{percent(found.occupancy)} (most {percent(found.occupancy_most)})",
                f"of {self.limits.blocks:,} blocks of {self.limits.block_size} positions, "
                f"{decimal(self.capacity.cache, 'B')}",
            ),
            Fact("preemptions", f"{log.preemptions:,}", f"{log.recomputed:,} of {log.computed:,} positions again"),
            Fact("rejected", f"{sum(log.rejected.values()):,}", _reasons(log)),
            Fact("engines busy", percent(found.busy), f"of {found.seconds:,.4g} s simulated; {found.steps:,} steps"),
        ]
        return facts if self.link is None else [*facts, *self._link_facts(self.link)]

    def _link_facts(self, link: Link) -> list[Fact]:
        waits = {each: quantile(self.log.waits, each) for each in QUANTILES}
        sent = f"of the run at {decimal(link.bandwidth, 'B/s')}; {decimal(self.log.transferred, 'B')} of KV cache sent"
        return [
            Fact("link busy", percent(self.link_share), sent),
            Fact("wait for KV", _three(waits), "p50, p95, p99: from the first token to the second pool"),
        ]

    def _in_and_out(self) -> str:
        total = _rate(self.figures.total_tokens_per_second)
        hits = f"; {self.log.cached:,} prompt tokens from the prefix cache" if self.log.cached else ""
        return f"{total} tokens/s with the prompts{hits}"

    @property
    def parts(self) -> list[tuple[str, int]]:
        """Time of all engines by bound, idle last; what took no time is left out."""
        found = [(str(resource), time) for resource, time in self.bounds.items() if time]
        return [*found, ("idle", self.idle)] if self.idle else found

    def data(self) -> dict[str, Any]:
        """Everything as JSON: base units, times in seconds."""
        found = asdict(self.figures)
        for name in ("ttft", "tpot", "e2e", "gap"):
            found[name] = {f"p{key}": value / PS_PER_SECOND for key, value in found[name].items()}
        return {
            "model": self.model,
            "chip": self.chip.name,
            "setting": self.setting,
            "verdict": self.verdict,
            "demand": self.demand,
            "bound": str(self.bound),
            "offered": self.offered,
            "saturation": self.saturation.rate,
            "saturation_known": self.saturation.told,
            "figures": found,
            "seconds_by_bound": {name: time / PS_PER_SECOND for name, time in self.parts},
            "preemptions": self.log.preemptions,
            "rejected": dict(self.log.rejected),
            "transferred_bytes": self.log.transferred,
            "link_seconds": self.log.crossing / PS_PER_SECOND,
            "link_saturation": self.saturation.link,
            "capacity": asdict(self.capacity),
            "limits": asdict(self.limits),
            "requests": [_request(each) for each in sorted(self.log.served, key=lambda each: each.id)],
        }


def _request(each: Any) -> dict[str, Any]:
    return {
        "id": each.id,
        "arrival": each.arrival / PS_PER_SECOND,
        "prompt": each.prompt,
        "output": each.generated,
        "ttft": each.ttft / PS_PER_SECOND,
        "tpot": None if each.tpot is None else each.tpot / PS_PER_SECOND,
        "e2e": each.latency / PS_PER_SECOND,
        "end": str(each.reason),
        "preemptions": each.preemptions,
        "cached": each.cached,
    }


def _rate(value: float) -> str:
    """Three digits, and none lost before the point.

    >>> _rate(0.12345), _rate(3984.2)
    ('0.123', '3,984')
    """
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _three(values: dict[int, float]) -> str:
    return ", ".join(seconds(values[each], 3) for each in QUANTILES)


def _reasons(log: Log) -> str:
    return "; ".join(f"{count:,}: {reason}" for reason, count in log.rejected.items()) or "every request was served"
