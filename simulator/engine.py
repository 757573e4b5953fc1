"""Plays operators on the units of a chip with simpy: one process a unit, never one an operator.

A unit works through its own program in order.  Units run ahead of each other where nothing they share can tell the
difference: a finished operator publishes its end time, and an event is made only for an operator that another unit
is already waiting for.  Bandwidth that several units share is a channel in simulated time.
"""

from array import array
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

import simpy

from simulator.channel import Channel
from simulator.costs import Cost
from simulator.errors import DeadlockError
from simulator.graph import OperatorGraph
from simulator.hardware import Chip, Execution
from simulator.links import Demand, Links
from simulator.program import Program
from simulator.units import PS_PER_SECOND

Process = Generator[simpy.Event, None, None]
_PENDING = -1


@dataclass(slots=True)
class Schedule:
    """When each operator ran, in picoseconds, by operator id.

    start, end   of the operator on its unit.
    ready        when the host had submitted it; all zero where the host is not in the way.
    prefetch     spans of the DMA unit: (operator id, start, end) of weights fetched ahead of their use.
    """

    start: "array[int]"
    end: "array[int]"
    ready: "array[int]"
    prefetch: list[tuple[int, int, int]]

    @property
    def makespan(self) -> int:
        return max(self.end, default=0)


class _Board:
    """Times at which things happened, by operator id, for units to tell each other.

    A time may be published before the simulated clock reaches it, by a unit that runs ahead.
    """

    def __init__(self, env: simpy.Environment, size: int) -> None:
        self._env = env
        self.time: array[int] = array("q", [_PENDING]) * size
        self._waiting: dict[int, simpy.Event] = {}

    def publish(self, operator: int, time: int) -> None:
        self.time[operator] = time
        if operator in self._waiting:
            self._waiting.pop(operator).succeed()

    def wait(self, operator: int) -> simpy.Event:
        """Return the event that the time of *operator* is published."""
        if operator not in self._waiting:
            self._waiting[operator] = self._env.event()
        return self._waiting[operator]


def play(
    graph: OperatorGraph,
    costs: Sequence[Cost],
    chip: Chip,
    program: Program,
    demands: Mapping[int, Demand] | None = None,
) -> Schedule:
    """Run every unit's program to its end; DeadlockError names each unit that waits and what it waits at.

    demands  what collectives ask of the links, by operator id.  Those have queues of their own; what is in flight at
             once shares the links, and their costs do not matter.
    """
    env = simpy.Environment()
    size = len(graph)
    board = _Board(env, size)
    start, ready = (array("q", [0]) * size for _ in range(2))
    schedule = Schedule(start, board.time, ready, [])
    _host(program, schedule)
    links = Links(env)
    carried = {name: queue for name, queue in program.queues.items() if demands and queue[0] in demands}
    for queue in carried.values():
        assert demands
        env.process(_carry(env, graph, demands, queue, board, schedule, links))
    computed = [queue for name, queue in program.queues.items() if name not in carried]
    if chip.execution is Execution.STREAM:
        for queue in computed:
            env.process(_run_ahead(graph, costs, program.gap, queue, board, schedule))
    else:
        machine = _Machine(env, graph, costs, program, board, schedule, Channel(env, PS_PER_SECOND))
        for queue in computed:
            env.process(machine.unit(queue))
    env.run()
    _refuse_deadlock(graph, program, board, int(env.now))
    return schedule


def _host(program: Program, schedule: Schedule) -> None:
    """The host submits operators in program order and never waits, so its clock can be run ahead of all others."""
    clock = program.host_start
    for position, step in enumerate(program.host_steps):
        clock += step
        schedule.ready[position] = clock
    if clock and not program.host_steps:
        schedule.ready = array("q", [clock]) * len(schedule.ready)


def _run_ahead(
    graph: OperatorGraph, costs: Sequence[Cost], gap: int, queue: Sequence[int], board: _Board, schedule: Schedule
) -> Process:
    """A stream: each operator has the whole chip, so its time does not depend on what other units do."""
    operators, end, start, ready = graph.operators, board.time, schedule.start, schedule.ready
    clock = -gap
    for index in queue:
        begin = max(clock + gap, ready[index])
        for dep in operators[index].deps:
            if end[dep] == _PENDING:
                yield board.wait(dep)
            if end[dep] > begin:
                begin = end[dep]
        start[index] = begin
        clock = begin + costs[index].time
        board.publish(index, clock)


def _carry(
    env: simpy.Environment,
    graph: OperatorGraph,
    demands: Mapping[int, Demand],
    queue: Sequence[int],
    board: _Board,
    schedule: Schedule,
    links: Links,
) -> Process:
    """One stream of collectives, each after the one before it, on links that it shares with other streams."""
    for index in queue:
        for dep in graph.operators[index].deps:
            if board.time[dep] == _PENDING:
                yield board.wait(dep)
        begin = max((board.time[dep] for dep in graph.operators[index].deps), default=0)
        begin = max(begin, schedule.ready[index])
        if begin > env.now:
            yield env.timeout(begin - env.now)
        schedule.start[index] = int(env.now)
        yield from links.carry(demands[index])
        board.publish(index, int(env.now))


@dataclass(slots=True)
class _Machine:
    """Units side by side on one off-chip memory, with a DMA unit that fetches weights ahead of their use.

    Half of the on-chip memory belongs to the operator that runs, the other half to the next one of the same program
    order that reads weights: its fetch may begin when the present one starts, and goes on when nobody else wants the
    memory.  What is left when its turn comes it fetches itself, beside its arithmetic, so that fetching ahead never
    costs time.
    """

    env: simpy.Environment
    graph: OperatorGraph
    costs: Sequence[Cost]
    program: Program
    board: _Board
    schedule: Schedule
    memory: Channel  # counts picoseconds of exclusive use, so that a model's own efficiency is kept

    ahead: dict[int, int] = field(init=False)
    room_since: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.ahead = dict(self.program.prefetch)

    def unit(self, queue: Sequence[int]) -> Process:
        env, board, schedule, ahead = self.env, self.board, self.schedule, self.ahead
        for index in queue:
            cost = self.costs[index]
            for dep in self.graph.operators[index].deps:
                if board.time[dep] == _PENDING:
                    yield board.wait(dep)
            if schedule.ready[index] > env.now:
                yield env.timeout(schedule.ready[index] - env.now)
            schedule.start[index] = now = int(env.now)
            early = self._fetched(index, ahead[index], now) if index in ahead else 0
            serial = cost.time - max(cost.compute, cost.memory)  # launch, and whatever else the model adds
            if serial:
                yield env.timeout(serial)
            yield from self.memory.transfer(cost.memory - early)
            if now + serial + cost.compute > env.now:
                yield env.timeout(now + serial + cost.compute - env.now)
            board.publish(index, int(env.now))

    def _fetched(self, index: int, wanted: int, now: int) -> int:
        """Picoseconds of the weights of *index* that came ahead, while the memory had nothing else to do."""
        got = 0
        for first, last in self.memory.idle(max(self.room_since, self.schedule.ready[index])):
            span = min(last - first, wanted - got)
            if span > 0:
                self.schedule.prefetch.append((index, first, first + span))
                got += span
        self.room_since = now
        return got


def _refuse_deadlock(graph: OperatorGraph, program: Program, board: _Board, now: int) -> None:
    """simpy stops without a word when nothing can happen any more, even if processes still wait; this does not."""
    stuck = [
        f"{unit} waits at {graph.operators[index].name}"
        for unit, queue in program.queues.items()
        for index in [next((i for i in queue if board.time[i] == _PENDING), None)]
        if index is not None
    ]
    if stuck:
        raise DeadlockError(f"nothing can run any more at {now} ps: {'; '.join(stuck)}")
