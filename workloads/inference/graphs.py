"""Steps as CUDA graphs: captured once for each padded size, then replayed with new tokens in the same places.

A launch from Python takes longer than most kernels of a decode step; a replay launches them all at once.  Padding
tokens have no slot in the cache, and padding sequences no keys.
"""
# mypy: disable-error-code="no-untyped-call"

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from simulator.serving import Limits
from workloads.inference.batch import Batch
from workloads.inference.cache import Pages
from workloads.inference.model import Runner

SMALLEST_PROMPT = 16  # tokens; shorter prompts are padded


@dataclass(slots=True)
class Captured:
    """A graph, the batch that it reads, and the logits that it writes."""

    graph: Any
    batch: Batch
    logits: Tensor


class Graphs:
    """Captures steps of *runner* when they are first met: decode by padded batch, single prompts by padded length.

    prompts  whether prompts are replayed too; a long one keeps a GPU busy for longer than its launches take.
    """

    def __init__(self, runner: Runner, pages: Sequence[Pages], limits: Limits, prompts: bool = False) -> None:
        self.runner = runner
        self.pages = pages
        self.most = -(-limits.context // limits.block_size)
        self.prompts = prompts
        self._captured: dict[tuple[int, bool], Captured] = {}
        self._memory: Any = None

    def run(self, batch: Batch) -> Tensor | None:
        """Return the logits of *batch* by a replay, or None for a step that is not captured."""
        tokens = batch.tokens.shape[0]
        if batch.decodes == tokens:
            key = (1 << (tokens - 1).bit_length(), False)
        elif self.prompts and batch.lengths.shape[0] == 1:
            key = (max(SMALLEST_PROMPT, 1 << (tokens - 1).bit_length()), True)
        else:
            return None
        if key not in self._captured:
            self._captured[key] = self.capture(padded(*key, self.most, batch.tokens.device))
        found = self._captured[key]
        fill(found.batch, batch)
        found.graph.replay()
        return found.logits[: batch.samples.shape[0]]

    def capture(self, batch: Batch) -> Captured:
        """Capture the step over *batch*, whose tensors stay the places of what later replays read."""
        for _ in range(2):  # kernels are compiled, and libraries choose theirs, before the recording
            self.runner(batch, self.pages)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            logits = self.runner(batch, self.pages)
        self._memory = graph.pool()
        return Captured(graph, batch, logits)


def padded(tokens: int, prompt: bool, pages: int, device: torch.device) -> Batch:
    """Return a batch of padding alone: one prompt of *tokens*, or as many sequences with one token each."""
    sequences = 1 if prompt else tokens
    with torch.device(device):
        return Batch(
            tokens=torch.zeros(tokens, dtype=torch.int32),
            positions=torch.zeros(tokens, dtype=torch.int32),
            slots=torch.full((tokens,), -1, dtype=torch.int32),
            tables=torch.zeros((sequences, pages), dtype=torch.int32),
            starts=torch.zeros(sequences + 1, dtype=torch.int32),
            lengths=torch.zeros(sequences, dtype=torch.int32),
            samples=torch.arange(1 if prompt else tokens, dtype=torch.int32),
            decodes=0 if prompt else tokens,
            longest=tokens if prompt else 0,
            fresh=False,
        )


def fill(place: Batch, batch: Batch) -> None:
    """Copy *batch* into the places of a larger one; what is left of them becomes padding."""
    tokens, sequences = batch.tokens.shape[0], batch.lengths.shape[0]
    place.tokens[:tokens] = batch.tokens
    place.positions[:tokens] = batch.positions
    place.slots.fill_(-1)
    place.slots[:tokens] = batch.slots
    place.tables[:sequences, : batch.tables.shape[1]] = batch.tables
    place.starts[: sequences + 1] = batch.starts
    place.lengths.zero_()
    place.lengths[:sequences] = batch.lengths
    if place.longest:
        place.samples[: batch.samples.shape[0]] = batch.samples
