"""Plays operators on the units of a chip with simpy: one process a unit, never one an operator.

A unit works through its own program in order.  Units run ahead of each other where nothing they share can tell the
difference: a finished operator publishes its end time, and an event is made only for an operator that another unit
is already waiting for.  Bandwidth that several units share is a channel in simulated time.
"""

from array import array
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

import simpy

from simulator.channel import Channel
from simulator.costs import Cost
from simulator.errors import DeadlockError
from simulator.graph import OperatorGraph
from simulator.hardware import Chip, Execution
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


@dataclass(slots=True)
class _Board:
    """What the units know of each other."""

    env: simpy.Environment
    end: "array[int]"
    waiting: dict[int, simpy.Event]

    def publish(self, operator: int, end: int) -> None:
        self.end[operator] = end
        if operator in self.waiting:
            self.waiting.pop(operator).succeed()

    def wait(self, operator: int) -> simpy.Event:
        """Return the event that *operator* has published its end."""
        if operator not in self.waiting:
            self.waiting[operator] = self.env.event()
        return self.waiting[operator]


def play(graph: OperatorGraph, costs: Sequence[Cost], chip: Chip, program: Program) -> Schedule:
    """Run every unit's program to its end; DeadlockError names each unit that waits and what it waits at."""
    env = simpy.Environment()
    size = len(graph)
    board = _Board(env, array("q", [_PENDING]) * size, {})
    schedule = Schedule(array("q", bytes(8 * size)), board.end, array("q", bytes(8 * size)), [])
    _host(program, schedule)
    if chip.execution is Execution.STREAM:
        for queue in program.queues.values():
            env.process(_run_ahead(graph, costs, program.gap, queue, board, schedule))
    else:
        machine = _Machine(env, graph, costs, program, board, schedule, Channel(env, PS_PER_SECOND))
        for queue in program.queues.values():
            env.process(machine.unit(queue))
        env.process(machine.dma())
    env.run()
    _refuse_deadlock(graph, program, board, int(env.now))
    return schedule


def _host(program: Program, schedule: Schedule) -> None:
    """The host submits operators in program order and never waits, so its clock can be run ahead of all others."""
    clock = program.host_start
    for position, step in enumerate(program.host_steps):
        clock += step
        schedule.ready[position] = clock
    if not program.host_steps:
        for position in range(len(schedule.ready)):
            schedule.ready[position] = clock


def _run_ahead(
    graph: OperatorGraph, costs: Sequence[Cost], gap: int, queue: Sequence[int], board: _Board, schedule: Schedule
) -> Process:
    """A stream: each operator has the whole chip, so its time does not depend on what other units do."""
    operators, end, start, ready = graph.operators, board.end, schedule.start, schedule.ready
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


@dataclass(slots=True)
class _Machine:
    """Units side by side on one off-chip memory, with a DMA unit that fetches weights ahead of their use.

    Half of the on-chip memory belongs to the operator that runs, the other half to the next one of the same program
    order that reads weights: its fetch may begin when the present one starts.
    """

    env: simpy.Environment
    graph: OperatorGraph
    costs: Sequence[Cost]
    program: Program
    board: _Board
    schedule: Schedule
    memory: Channel  # counts picoseconds of exclusive use, so that a model's own efficiency is kept

    fetched: dict[int, simpy.Event] = field(init=False)
    started: dict[int, simpy.Event] = field(init=False)
    ahead: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.fetched = {index: self.env.event() for index, _ in self.program.prefetch}
        self.started = {index: self.env.event() for index, _ in self.program.prefetch}
        self.ahead = dict(self.program.prefetch)

    def unit(self, queue: Sequence[int]) -> Process:
        env, board, schedule = self.env, self.board, self.schedule
        for index in queue:
            cost = self.costs[index]
            for dep in self.graph.operators[index].deps:
                if board.end[dep] == _PENDING:
                    yield board.wait(dep)
            if index in self.fetched:
                yield self.fetched[index]
            if schedule.ready[index] > env.now:
                yield env.timeout(schedule.ready[index] - env.now)
            schedule.start[index] = now = int(env.now)
            if index in self.started:
                self.started[index].succeed()
            serial = cost.time - max(cost.compute, cost.memory)  # launch, and whatever else the model adds
            if serial:
                yield env.timeout(serial)
            if moved := cost.memory - self.ahead.get(index, 0):
                yield self.memory.transfer(moved)
            if now + serial + cost.compute > env.now:
                yield env.timeout(now + serial + cost.compute - env.now)
            board.publish(index, int(env.now))

    def dma(self) -> Process:
        before: int | None = None
        for index, size in self.program.prefetch:
            if before is not None:
                yield self.started[before]
            begin = int(self.env.now)
            yield self.memory.transfer(size)
            self.schedule.prefetch.append((index, begin, int(self.env.now)))
            self.fetched[index].succeed()
            before = index


def _refuse_deadlock(graph: OperatorGraph, program: Program, board: _Board, now: int) -> None:
    """simpy stops without a word when nothing can happen any more, even if processes still wait; this does not."""
    stuck = [
        f"{unit} waits at {graph.operators[index].name}"
        for unit, queue in program.queues.items()
        for index in [next((i for i in queue if board.end[i] == _PENDING), None)]
        if index is not None
    ]
    if stuck:
        raise DeadlockError(f"nothing can run any more at {now} ps: {'; '.join(stuck)}")
