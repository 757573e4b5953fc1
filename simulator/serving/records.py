"""What a run of a server leaves behind: one record a request, and samples of its state over time."""

from array import array
from collections import Counter
from dataclasses import dataclass, field

from simulator.serving.sequence import End


@dataclass(frozen=True, slots=True)
class Served:
    """One request that ended; times in picoseconds since the start.

    first  when its first token was there; *end* when its last was.
    """

    id: int
    arrival: int
    prompt: int
    generated: int
    first: int
    end: int
    reason: End
    preemptions: int
    cached: int

    @property
    def ttft(self) -> int:
        """Time to first token: waiting and reading the prompt."""
        return self.first - self.arrival

    @property
    def tpot(self) -> float | None:
        """Time per output token after the first; None if there was only one."""
        return (self.end - self.first) / (self.generated - 1) if self.generated > 1 else None

    @property
    def latency(self) -> int:
        """From arrival to the last token."""
        return self.end - self.arrival


def _numbers() -> "array[int]":
    return array("q")


@dataclass(slots=True)
class Track:
    """The state of one engine at the start of each run of equal steps.

    start, duration  of the run; *steps* in it.
    waiting, running  sequences; *held* KV blocks; *tokens* of one step; *reading*: whether a prompt was read.
    """

    name: str
    start: "array[int]" = field(default_factory=_numbers)
    duration: "array[int]" = field(default_factory=_numbers)
    steps: "array[int]" = field(default_factory=_numbers)
    waiting: "array[int]" = field(default_factory=_numbers)
    running: "array[int]" = field(default_factory=_numbers)
    held: "array[int]" = field(default_factory=_numbers)
    tokens: "array[int]" = field(default_factory=_numbers)
    decodes: "array[int]" = field(default_factory=_numbers)
    reading: "array[int]" = field(default_factory=_numbers)

    @property
    def busy(self) -> int:
        """Picoseconds in which a step ran."""
        return sum(self.duration)


@dataclass(slots=True)
class Log:
    """Everything that a run left behind.

    rejected     requests that were never served, by reason.
    interconnect picoseconds in which an engine had nothing to do but wait for a KV cache under way.
    transferred  bytes of KV caches that went from pool to pool; *crossing*: picoseconds in which the link sent them.
    waits        picoseconds from a request's first token to the arrival of its KV cache in the second pool.
    computed     positions that were computed, *recomputed* of them for sequences that had lost their blocks.
    cached       positions that were found in the prefix cache.
    """

    served: list[Served]
    rejected: Counter[str]
    tracks: list[Track]
    end: int
    preemptions: int
    interconnect: int = 0
    transferred: int = 0
    crossing: int = 0
    waits: "array[int]" = field(default_factory=_numbers)
    computed: int = 0
    recomputed: int = 0
    cached: int = 0
