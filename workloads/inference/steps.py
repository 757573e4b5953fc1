"""Steps that are made by hand, without a scheduler: for measurements, and for logits of every position of a text."""

from collections.abc import Sequence

import torch
from torch import Tensor

from workloads.inference.batch import Batch
from workloads.inference.cache import make_pages
from workloads.inference.model import Runner


def ragged(
    pieces: Sequence[tuple[int, int]],
    blocks: int,
    block_size: int,
    device: torch.device,
    seed: int = 0,
    vocab: int = 100,
) -> Batch:
    """Return a step of (start, count) pieces, single tokens first, each of a sequence of its own.

    Tokens are random, and blocks lie anywhere.
    """
    generator = torch.Generator().manual_seed(seed)
    needed = [-(-(start + count) // block_size) for start, count in pieces]
    order = torch.randperm(blocks, generator=generator).tolist()
    tables, taken = torch.zeros((len(pieces), max(needed)), dtype=torch.int32), 0
    for row, count in enumerate(needed):
        tables[row, :count] = torch.tensor(order[taken : taken + count], dtype=torch.int32)
        taken += count
    counts = torch.tensor([count for _, count in pieces])
    positions = torch.cat([torch.arange(start, start + count) for start, count in pieces])
    owner = torch.repeat_interleave(torch.arange(len(pieces)), counts)
    slots = tables[owner, positions // block_size] * block_size + positions % block_size
    starts = torch.cat((torch.zeros(1, dtype=torch.int64), counts.cumsum(0)))
    columns = (
        torch.randint(vocab, positions.shape, generator=generator), positions, slots, tables, starts,
        torch.tensor([start + count for start, count in pieces]), starts[1:] - 1,
    )  # fmt: skip
    tokens, places, slots, tables, starts, lengths, samples = (part.to(device, torch.int32) for part in columns)
    longest = max((count for _, count in pieces if count > 1), default=0)
    fresh = len(pieces) == 1 and longest > 1 and pieces[0][0] == 0
    singles = sum(count == 1 for _, count in pieces)
    return Batch(tokens, places, slots, tables, starts, lengths, samples, singles, longest, fresh)


def logits_of(runner: Runner, ids: Tensor) -> Tensor:
    """Return the logits [T, V] after every one of *ids* [T], by one step over an empty cache."""
    count = len(ids)
    pages = make_pages(runner.config, 1, count, runner.dtype, runner.device)
    places = torch.arange(count, dtype=torch.int32, device=runner.device)
    table = torch.zeros((1, 1), dtype=torch.int32, device=runner.device)
    starts = torch.tensor([0, count], dtype=torch.int32, device=runner.device)
    batch = Batch(
        ids.to(runner.device, torch.int32), places, places, table, starts, starts[1:], places, 0, count, fresh=True
    )
    logits: Tensor = runner(batch, pages)
    return logits
