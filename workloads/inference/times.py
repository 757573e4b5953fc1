"""Step times of an engine on a chip, from traced graphs and the chip's own models.

On a stream (a GPU) whose graphs are submitted at once, times of operators add up: a step is its body (everything that
works on all tokens), its head (on the sampled rows) and its attention, each costed once for a size.  Where units
overlap or the host is in the way, the whole step is composed and played.  Up to 128 tokens every size is costed; above,
and for keys, both ends of a stair are, and what lies between is interpolated: tiles make stairs, bandwidth their slope.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from simulator.costs import ComputeModel, Cost, compute_model
from simulator.dims import AttentionDims
from simulator.dtypes import DType
from simulator.engine import play
from simulator.graph import Operator, OperatorGraph
from simulator.hardware import Chip, Execution
from simulator.program import Mode, place
from simulator.serving.composed import Rows, StepShape, attention, compose, renumbered, shape_of, writers
from simulator.serving.family import Family
from simulator.serving.fold import Folded, fold
from simulator.serving.sequence import Step

_EXACT = 128  # tokens up to which every size is costed
_STAIR = 32  # tokens of one stair above that
_KEYS = 128  # keys of one stair
_DECODES = 256  # tokens up to which a step is taken for one of decodes, where it has to be one or the other


@dataclass(frozen=True, slots=True)
class Body:
    """Picoseconds of what works on all tokens, and on the sampled rows; gaps between operators included."""

    body: int
    head: int


class StepTimes:
    """How long a step takes; every size is worked out once.

    captured  batch sizes of the graphs that an engine has captured: a step of decodes is padded to the next of them.
    """

    def __init__(
        self,
        family: Family,
        chip: Chip,
        mode: Mode = Mode.GRAPH,
        fidelity: str = "tile",
        cache: DType | None = None,
        captured: tuple[int, ...] = (),
    ) -> None:
        self.family, self.chip, self.mode, self.cache, self.fidelity = family, chip, mode, cache, fidelity
        self.model: ComputeModel = compute_model(fidelity, chip)
        self.captured = captured
        self.spent: defaultdict[StepShape, int] = defaultdict(int)
        self._bodies: dict[int, Body] = {}
        self._attention: dict[tuple[Rows, str], int] = {}
        self._played: dict[StepShape, int] = {}
        self.gap = 0 if self.model.ideal else chip.overheads.gap
        self._submit = 0 if self.model.ideal or mode is not Mode.GRAPH else chip.overheads.host_submit

    @cached_property
    def folded(self) -> Folded:
        """The model without its repeated layers."""
        return fold(self.family)

    @property
    def adds_up(self) -> bool:
        """Whether the time of a step is the sum of its operators' times."""
        return self.chip.execution is Execution.STREAM and self.mode is Mode.GRAPH

    def time(self, step: Step) -> int:
        """Picoseconds of *step*."""
        shape = shape_of(step)
        time = self.of(shape)
        self.spent[_rough(shape)] += time
        return time

    def run(self, step: Step, most: int, until: int) -> tuple[int, int]:
        """Take *step*, which only decodes, and up to *most* - 1 more like it, as long as they start before *until*.

        Returns how many and the picoseconds of all of them.
        """
        count, width = len(step.decodes), step.width
        shape = shape_of(step)
        assert shape.decodes is not None
        if not self.adds_up:
            taken = total = 0
            while taken < most and (not taken or total < until):
                total += self.decode(count, shape.decodes.keys + taken, width)
                taken += 1
        else:
            taken, total = self._lengthening(shape, most, until)
        self.spent[_rough(shape)] += total
        return taken, total

    def _lengthening(self, shape: StepShape, most: int, until: int) -> tuple[int, int]:
        """Steps of decodes whose keys grow by one each: only attention changes, and on a stair only in a line."""
        assert shape.decodes is not None
        batch, q, keys = shape.decodes
        fixed = self.of(shape) - self._keys(batch, q, keys)
        taken = total = 0
        while taken < most and (not taken or total < until):
            low = (keys + taken - 1) // _KEYS * _KEYS + 1
            here, there = self.attention(Rows(batch, q, low)), self.attention(Rows(batch, q, low + _KEYS - 1))
            rise, first = there - here, keys + taken - low
            for above in range(first, min(_KEYS, first + most - taken)):
                total += fixed + here + rise * above // (_KEYS - 1)
                taken += 1
                if total >= until:
                    break
        return taken, total

    def _keys(self, batch: int, q: int, keys: int) -> int:
        """Picoseconds of the attention of decodes."""
        return _between(keys, 0, _KEYS, lambda length: self.attention(Rows(batch, q, length)))

    def decode(self, count: int, keys: int, width: int = 1) -> int:
        """Picoseconds of a step of *count* decodes that look back on *keys* positions each."""
        return self.of(StepShape(count * width, count * width, Rows(count, width, keys), None))

    def of(self, shape: StepShape) -> int:
        """Picoseconds of a step of that *shape*."""
        tokens, samples = shape.tokens, shape.samples
        if shape.chunks is None and self.captured:
            padded = min((size for size in self.captured if size >= tokens), default=tokens)
            tokens = samples = padded
        if not self.adds_up:
            return self._interpolated(StepShape(tokens, samples, shape.decodes, shape.chunks))
        total = _between(tokens, _EXACT, _stair(tokens), lambda size: self._body(size).body)
        total += _between(samples, _EXACT, _stair(samples), lambda size: self._body(size).head)
        if shape.decodes is not None:
            total += self._keys(*shape.decodes)
        if shape.chunks is not None:
            total += self.attention(_coarse(shape.chunks), self.family.fresh if shape.fresh else "")
        return self._submit + total - self.gap  # there is one gap less than operators

    def graph(self, shape: StepShape) -> OperatorGraph:
        """The operators of a step of that *shape*."""
        return compose(self.family, shape, self.cache)

    def attention(self, rows: Rows, target: str = "") -> int:
        """Picoseconds of the attention of *rows* in all layers, gaps included; *target* names another kernel."""
        found = self._attention.get((rows, target))
        if found is None:
            found = sum(self._attend(id, rows, target) * times for id, times in self._kinds.items())
            self._attention[rows, target] = found
        return found

    @cached_property
    def _kinds(self) -> dict[int, int]:
        """One attention operator of each kind, and how many there are of it."""
        kinds: dict[AttentionDims, int] = {}
        count: defaultdict[int, int] = defaultdict(int)
        for id in sorted(self.family.attention):
            dims = self.family.first.operators[id].dims
            assert isinstance(dims, AttentionDims)
            count[kinds.setdefault(dims, id)] += 1
        return count

    def _attend(self, id: int, rows: Rows, target: str) -> int:
        """Picoseconds of one attention operator after those that write what it reads."""
        size = rows.batch * rows.q
        before = [self.family.operator(op.id, size) for op in self._writers[id]]
        made = attention(self.family.first.operators[id], rows, self.cache, target)
        graph = renumbered([*before, made], self.family.first.storages, self.family.first.workload)
        return self.model.costs(graph)[-1].time + self.gap

    @cached_property
    def _writers(self) -> dict[int, list[Operator]]:
        operators = self.family.first.operators
        return {id: writers(self.family, operators[id]) for id in self._kinds}

    def _body(self, size: int) -> Body:
        """Body and head of *size* tokens and rows."""
        found = self._bodies.get(size)
        if found is None:
            found = self._bodies[size] = self._costed(size)
        return found

    def _costed(self, size: int) -> Body:
        """Costs of a step of *size* tokens.

        Beyond the sizes at which kernels draw more power than the cap allows, a kernel's time depends on the mean of
        all of them, so the model is not folded there.
        """
        if size <= _EXACT:
            family, times = self.folded.family, self.folded.times
        else:
            family, times = self.family, (1,) * len(self.family.first)
        decodes = size <= _DECODES
        shape = StepShape(
            size,
            size if decodes else 16,
            Rows(size, 1, 1024) if decodes else None,
            None if decodes else Rows(1, size, size),
        )
        costs = self.model.costs(compose(family, shape, self.cache))
        sums = {True: 0, False: 0}
        for op, cost, count in zip(family.first, costs, times, strict=True):
            if op.id not in family.attention:
                sums[op.id in family.head] += count * (cost.time + self.gap)
        return Body(sums[False], sums[True])

    def _interpolated(self, shape: StepShape) -> int:
        """Time of a played step, between both ends of a stair of keys."""
        chunks = None if shape.chunks is None else _coarse(shape.chunks)
        tokens = _up(shape.tokens, 1 if shape.tokens <= 32 else 8 if shape.tokens <= 8 * _EXACT else _STAIR)
        samples = _up(shape.samples, 1 if shape.samples <= 8 else 8)

        def at(keys: int) -> int:
            rows = None if shape.decodes is None else Rows(shape.decodes.batch, shape.decodes.q, keys)
            return self._play(StepShape(tokens, samples, rows, chunks))

        return at(0) if shape.decodes is None else _between(shape.decodes.keys, 0, 4 * _KEYS, at)

    def _play(self, shape: StepShape) -> int:
        found = self._played.get(shape)
        if found is None:
            graph = self.graph(shape)
            found = self._played[shape] = self.played(graph, self.model.costs(graph))
        return found

    def played(self, graph: OperatorGraph, costs: Sequence[Cost]) -> int:
        """Picoseconds of *graph* in the engine."""
        return play(graph, costs, self.chip, place(graph, costs, self.chip, self.mode)).makespan


def _between(size: int, exact: int, stair: int, value: Callable[[int], int]) -> int:
    """*value* at *size*, or between both ends of the stair that it is on."""
    if size <= exact:
        return value(size)
    low = (size - 1) // stair * stair + 1
    high = low + stair - 1
    if size == low:
        return value(low)
    if size == high:
        return value(high)
    return value(low) + (value(high) - value(low)) * (size - low) // (high - low)


def _stair(tokens: int) -> int:
    """Tokens of the stair that *tokens* stand on: longer ones where each is a smaller part of the whole."""
    return _STAIR if tokens <= 4 * _EXACT else 4 * _STAIR


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _coarse(rows: Rows) -> Rows:
    """Chunks rounded to about a thirtieth of their new positions and of their keys, and to whole eights."""
    q = _near(rows.q)
    return Rows(rows.batch, q, max(q, _near(rows.keys)))


def _near(size: int) -> int:
    multiple = max(8, 1 << max(0, size.bit_length() - 5))
    return max(1, (size + multiple // 2) // multiple) * multiple


def _rough(shape: StepShape) -> StepShape:
    """*shape* with every size at the nearest power of two: steps that are bound alike."""

    def near(rows: Rows | None) -> Rows | None:
        return None if rows is None else Rows(*(1 << max(0, (size * 2 // 3).bit_length()) for size in rows))

    decodes, chunks = near(shape.decodes), near(shape.chunks)
    tokens = sum(rows.batch * rows.q for rows in (decodes, chunks) if rows is not None)
    samples = sum(rows.batch for rows in (decodes, chunks) if rows is not None)
    return StepShape(tokens, samples, decodes, chunks)
