"""The engine: requests come in, steps of the model go by, tokens come out.

Which tokens a step computes is the scheduler's business (`simulator.serving`, the same that the simulator runs on its
own clock); here its steps meet a model with weights.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor

from simulator.errors import UsageError
from simulator.serving import Limits, Rejected, Request, Scheduler, Step
from workloads.inference.batch import Batch, batch_of
from workloads.inference.cache import make_pages
from workloads.inference.graphs import Graphs
from workloads.inference.model import Runner
from workloads.inference.sampling import Sampling, sample


@dataclass(slots=True)
class Completion:
    """What became of a request: its tokens, why it ended, and how often it was preempted."""

    tokens: list[int] = field(default_factory=list)
    end: str = ""
    preemptions: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """One step as it went: slices (request, start, count, samples), wall seconds, and whether a graph was replayed."""

    slices: tuple[tuple[int, int, int, bool], ...]
    seconds: float
    replayed: bool


class Engine:
    """Continuous batching over *runner* within *limits*.

    graphs  replay captured CUDA graphs where there is a CUDA device (None: yes, if there is one).
    """

    def __init__(self, runner: Runner, limits: Limits, graphs: bool | None = None) -> None:
        if limits.context > runner.context:
            raise UsageError(f"context {limits.context}: {runner.config.name} was built for {runner.context}")
        self.runner = runner
        self.scheduler = Scheduler(limits)
        self.pages = make_pages(runner.config, limits.blocks, limits.block_size, runner.dtype, runner.device)
        on_cuda = runner.device.type == "cuda"
        self.graphs = Graphs(runner, self.pages, limits) if (on_cuda if graphs is None else graphs) else None
        self.rejected: dict[int, Rejected] = {}
        self.done: dict[int, Completion] = {}
        self.records: list[Record] = []
        self.asked: dict[int, tuple[int, int]] = {}  # prompt and output tokens of each request
        self._ways: dict[int, Sampling] = {}

    def add(
        self, prompt: Iterable[int], output: int, sampling: Sampling | None = None, stop: Iterable[int] = ()
    ) -> int:
        """Queue a prompt of token ids; returns the number of the request, which may be among `rejected` at once."""
        ids = tuple(prompt)
        if wrong := [token for token in ids if not 0 <= token < self.runner.config.vocab]:
            raise UsageError(f"token {wrong[0]} in the prompt: {self.runner.config.name} knows 0 to "
                             f"{self.runner.config.vocab - 1}")  # fmt: skip
        number = self.requests
        request = Request(number, 0, len(ids), output, tokens=ids, stop=frozenset(stop))
        if (why := self.scheduler.add(request)) is not None:
            self.rejected[number] = why
        self._ways[number] = sampling or Sampling()
        self.asked[number] = len(ids), output
        return number

    @property
    def requests(self) -> int:
        """Requests so far, those rejected included."""
        return len(self._ways)

    def step(self) -> list[int]:
        """Run one step; returns the requests that ended with it."""
        step = self.scheduler.schedule()
        if step is None:
            return []
        started = time.perf_counter()
        slices = list(step.slices)
        batch = batch_of(slices, self.scheduler.limits.block_size, self.runner.device)
        logits, replayed = self.forward(batch)
        tokens = self._sample(step, logits)
        shown = tuple((each.sequence.id, each.start, each.count, each.samples) for each in slices)
        self.records.append(Record(shown, time.perf_counter() - started, replayed))
        return self._finish(step, tokens)

    def forward(self, batch: Batch) -> tuple[Tensor, bool]:
        """Return the logits of *batch*, and whether they come from a replayed graph."""
        found = self.graphs.run(batch) if self.graphs is not None else None
        return (self.runner(batch, self.pages), False) if found is None else (found, True)

    def _sample(self, step: Step, logits: Tensor) -> list[int]:
        sampled = [each.sequence for each in step.slices if each.samples]
        if not sampled:
            return []
        return sample(logits, [self._ways[each.id] for each in sampled], [each.generated for each in sampled])

    def _finish(self, step: Step, tokens: list[int]) -> list[int]:
        ended = self.scheduler.finish(step, tokens)
        for each in ended:
            assert each.tokens is not None  # `add` made the request with ids
            new = each.tokens[each.request.prompt :]
            self.done[each.id] = Completion(new, str(each.end), each.preemptions, each.cached)
        return [each.id for each in ended]

    def run(self) -> dict[int, Completion]:
        """Run steps until nothing is left to do; returns everything that was completed, by request."""
        while not self.scheduler.idle:
            self.step()
        return self.done
