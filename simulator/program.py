"""Placement: which unit runs which operators in which order, and what the host does meanwhile."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from simulator.costs import Cost, Unit
from simulator.errors import UsageError, nearest
from simulator.graph import OperatorGraph, Role
from simulator.hardware import Chip, Execution
from simulator.scope import outside


class Mode(StrEnum):
    """How the host hands operators to the device.

    EAGER  one framework call after another while the device works: the device waits when it is faster.
    GRAPH  captured once, submitted as a whole: only the device's own gap between operators remains.
    COMPILE  fused first (`simulator.passes`), then launched kernel by kernel from the compiler's wrapper, as
             torch.compile's default mode does; what it does not compile is dispatched as in eager mode.
    """

    EAGER = "eager"
    GRAPH = "graph"
    COMPILE = "compile"


@dataclass(frozen=True, slots=True)
class Program:
    """One order of operator ids for each queue, and the fixed times around them, in picoseconds.

    queues      a stream has one, which all units serve in turn; otherwise one for each unit.
    gap         between two operators of a queue.
    host_start  before anything is submitted; *host_steps* host time of each operator, empty in graph mode.
    prefetch    (operator id, time at full memory bandwidth) in program order: weights that the DMA unit may fetch
                before their operator runs.
    """

    queues: Mapping[str, Sequence[int]]
    gap: int = 0
    host_start: int = 0
    host_steps: Sequence[int] = ()
    prefetch: Sequence[tuple[int, int]] = ()


def mode_of(name: str) -> Mode:
    """Return the mode called *name*; UsageError with the nearest name otherwise."""
    known = [str(mode) for mode in Mode]
    if name not in known:
        raise UsageError(f"unknown mode {name!r}{nearest(name, known)} (known: {', '.join(known)})")
    return Mode(name)


def place(graph: OperatorGraph, costs: Sequence[Cost], chip: Chip, mode: Mode) -> Program:
    """Give every operator a queue, in the program's own order."""
    overheads = chip.overheads
    steps = host_steps(graph, chip, mode)
    start = overheads.host_submit if mode is Mode.GRAPH else 0
    if chip.execution is Execution.STREAM:
        return Program({"stream": range(len(graph))}, overheads.gap, start, steps)
    queues: dict[str, list[int]] = {unit: [] for unit in Unit}
    for index, cost in enumerate(costs):
        queues[cost.unit].append(index)
    return Program({unit: q for unit, q in queues.items() if q}, 0, start, steps, _prefetch(graph, costs, chip))


def host_steps(graph: OperatorGraph, chip: Chip, mode: Mode) -> "array[int]":
    """Picoseconds of host time of each operator, in order; empty in graph mode, where there is none of its own."""
    dispatch, launch = chip.overheads.host_dispatch, chip.overheads.host_launch
    if mode is Mode.GRAPH:
        return array("q")
    if mode is Mode.EAGER:
        return array("q", (op.dispatches * dispatch for op in graph))
    each = dispatch if launch is None else launch  # views cost a compiled program nothing
    eager = outside(graph)
    return array("q", (op.dispatches * dispatch if op.id in eager else each for op in graph))


def _prefetch(graph: OperatorGraph, costs: Sequence[Cost], chip: Chip) -> list[tuple[int, int]]:
    """Weights that fit in half of the on-chip memory; without on-chip memory nothing can be fetched ahead."""
    half = on_chip_bytes(chip) // 2
    if not half:
        return []
    persistent = {s.id for s in graph.storages if s.role in (Role.WEIGHT, Role.BUFFER)}
    ahead = []
    for op, cost in zip(graph.operators, costs, strict=True):
        if cost.unit is not Unit.MATRIX:
            continue
        weights = sum(tensor.nbytes for tensor in op.inputs if tensor.storage in persistent)
        if time := cost.memory * min(weights, half, cost.traffic) // max(1, cost.traffic):
            ahead.append((op.id, time))
    return ahead


def on_chip_bytes(chip: Chip) -> int:
    """Bytes of all on-chip levels whose capacity software can use, over all cores."""
    return sum(
        level.capacity * (chip.cores if level.scope == "core" else 1)
        for level in chip.memory.values()
        if level.scope != "device"
    )
