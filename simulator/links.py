"""Collectives as a whole on shared links: one transfer for each kind of link, however many ranks and messages.

Where many collectives overlap with arithmetic and with each other, playing each message of each would drown the rest.
A collective is then its *demand*: the time that no bandwidth shortens, and how long each kind of link is busy with it.
Alone it takes the time of its prediction; several at once share a kind of link fairly.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

import simpy

from simulator.channel import Channel
from simulator.units import PS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Demand:
    """What one collective asks of the links of a rank.

    fixed  picoseconds of launch, latency and waits, in which it holds no link.
    busy   picoseconds for which the fullest link of each kind is busy with it, by the name of the kind.
    """

    fixed: int
    busy: Mapping[str, int] = field(default_factory=dict)

    @property
    def alone(self) -> int:
        """Picoseconds that it takes if nobody else uses the links."""
        return self.fixed + max(self.busy.values(), default=0)


class Links:
    """The kinds of link of one rank (which stands for all of its class) in simulated time."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._channels: dict[str, Channel] = {}

    def carry(self, demand: Demand) -> Generator[simpy.Event, None, None]:
        """Carry out *demand*; a process delegates to this with ``yield from``."""
        if demand.fixed:
            yield self._env.timeout(demand.fixed)
        if len(demand.busy) == 1:  # the usual case needs no process of its own
            ((kind, busy),) = demand.busy.items()
            yield from self._channel(kind).transfer(busy)
        elif demand.busy:
            transfers = [self._channel(kind).transfer(busy) for kind, busy in demand.busy.items()]
            yield self._env.all_of([self._env.process(transfer) for transfer in transfers])

    def _channel(self, kind: str) -> Channel:
        """The channel of one kind of link; it counts picoseconds of exclusive use, as the memory's does."""
        if kind not in self._channels:
            self._channels[kind] = Channel(self._env, PS_PER_SECOND)
        return self._channels[kind]
