"""A run of a server in words and numbers: what terminal, page and JSON have in common."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from simulator.hardware import Chip
from simulator.headline import Fact, percent
from simulator.serving.capacity import Capacity
from simulator.serving.metrics import QUANTILES, Figures, Objective
from simulator.serving.records import Log
from simulator.serving.scheduler import Limits
from simulator.units import PS_PER_SECOND, decimal, seconds
from simulator.variants import Resource

_KEEPS_UP = 0.95  # of the saturation point: above it the queue grows for a long time
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
    saturation  requests a second that the same engines serve when requests always wait.
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
    saturation: float
    slo: Objective | None

    @property
    def bound(self) -> Resource:
        """What binds most of the busy time."""
        return max(self.bounds, key=lambda resource: self.bounds[resource])

    @property
    def keeps_up(self) -> bool:
        """Whether requests come no faster than they can be served."""
        return self.offered is None or self.offered <= _KEEPS_UP * self.saturation

    @property
    def verdict(self) -> str:
        """Whether it keeps up, and what binds: one sentence."""
        busy = max(1, sum(self.bounds.values()))
        binds = f"{self.bound} binds {percent(self.bounds[self.bound] / busy)} of the busy time"
        most = f"{_rate(self.saturation)} requests/s"
        if self.figures.blocked > _BLOCKED:
            binds = f"the KV cache limits the batch to {self.figures.batch:.3g}, and {binds}"
        if self.offered is None:
            return f"Saturated at {most}; {binds}."
        if not self.keeps_up:
            never = "can never be served" if self.offered > self.saturation else "is at the limit"
            return f"{_rate(self.offered)} requests/s {never}: it saturates at {most}; {binds}."
        return f"Keeps up with {_rate(self.offered)} of at most {most}; {binds}."

    @property
    def demand(self) -> str:
        """What that asks of a SoC."""
        busy = max(1, sum(self.bounds.values()))
        share = self.bounds[self.bound] / busy
        gain = f"10 % more would shorten a step by up to {percent(share * (1 - 1 / 1.1))}"
        text = f"It asks for {_DEMAND[self.bound]}; {gain}."
        if self.figures.blocked > _BLOCKED:
            text = (
                f"It asks for memory capacity, or a smaller KV cache: requests wait for blocks in "
                f"{percent(self.figures.blocked)} of the busy time. " + text.replace("It asks", "A step asks", 1)
            )
        return text

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
        return facts

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
            "saturation": self.saturation,
            "figures": found,
            "seconds_by_bound": {name: time / PS_PER_SECOND for name, time in self.parts},
            "preemptions": self.log.preemptions,
            "rejected": dict(self.log.rejected),
            "transferred_bytes": self.log.transferred,
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


def saturation_rate(log: Log, count: int) -> float:
    """Requests a second while requests wait, from a run in which all *count* came at the start.

    Counted from the first tenth of the ends to the last moment at which one waited; over the whole run if that is
    too short to count in.
    """
    ends = sorted(each.end for each in log.served)
    last = max((at for track in log.tracks for at in _busy_queue(track.start, track.waiting)), default=0)
    while_waiting = [end for end in ends if end <= last]
    first = len(while_waiting) // 10
    if len(while_waiting) - first < 20:
        return count * PS_PER_SECOND / max(1, log.end)
    return (len(while_waiting) - 1 - first) * PS_PER_SECOND / max(1, while_waiting[-1] - while_waiting[first])


def _busy_queue(start: Sequence[int], waiting: Sequence[int]) -> list[int]:
    return [at for at, count in zip(start, waiting, strict=True) if count]
