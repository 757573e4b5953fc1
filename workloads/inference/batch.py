"""What one step hands to the model: the new tokens of several sequences in one row, and where their keys lie."""

from collections.abc import Sequence as Many
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from simulator.serving import Slice


@dataclass(frozen=True, slots=True)
class Batch:
    """T tokens of S sequences, those that bring a single token first; all tensors are int32.

    tokens, positions  [T] of each new token.
    slots     [T] where its key and value go: block x block size + offset; -1 for padding.
    tables    [S, P] blocks of each sequence; entries beyond its length mean nothing.
    starts    [S + 1] the tokens of sequence s are starts[s] .. starts[s + 1].
    lengths   [S] positions of each sequence, the new ones included.
    samples   [R] tokens whose logits are wanted.
    decodes   sequences with a single token; *longest*: the most tokens of the others.
    fresh     there is one sequence, and it starts with this step: nothing has to be looked up in the cache.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    tables: Tensor
    starts: Tensor
    lengths: Tensor
    samples: Tensor
    decodes: int
    longest: int
    fresh: bool


def batch_of(slices: Many[Slice], block_size: int, device: torch.device) -> Batch:
    """Return the batch of one step; sampled rows come in the order of *slices*, single tokens first."""
    decodes = sum(each.count == 1 for each in slices)
    order = sorted(range(len(slices)), key=lambda index: slices[index].count > 1)
    ordered = [slices[index] for index in order]
    counts = [each.count for each in ordered]
    starts = [0, *accumulate(counts)]
    last_row = {index: starts[at + 1] - 1 for at, index in enumerate(order)}
    pages = max(len(each.sequence.blocks) for each in slices)
    columns = (
        [token for each in ordered for token in _ids(each)],
        [position for each in ordered for position in range(each.start, each.start + each.count)],
        [slot for each in ordered for slot in _slots(each, block_size)],
        [block for each in ordered for block in _padded(each.sequence.blocks, pages)],
        starts,
        [each.start + each.count for each in ordered],
        [last_row[index] for index, each in enumerate(slices) if each.samples],
    )
    tokens, positions, slots, tables, begins, lengths, samples = _to(device, columns)
    longest = max((count for count in counts if count > 1), default=0)
    fresh = len(slices) == 1 and longest > 1 and ordered[0].start == 0
    return Batch(
        tokens, positions, slots, tables.view(len(slices), pages), begins, lengths, samples, decodes, longest, fresh
    )


def _ids(each: Slice) -> list[int]:
    assert each.sequence.tokens is not None  # the engine made the request with them
    return each.sequence.tokens[each.start : each.start + each.count]


def _slots(each: Slice, size: int) -> list[int]:
    blocks = each.sequence.blocks
    return [blocks[at // size] * size + at % size for at in range(each.start, each.start + each.count)]


def _padded(blocks: list[int], pages: int) -> list[int]:
    return blocks + [0] * (pages - len(blocks))


def _to(device: torch.device, columns: Many[Many[int]]) -> tuple[Tensor, ...]:
    """One tensor a column, by one copy for all of them."""
    flat = torch.tensor([value for column in columns for value in column], dtype=torch.int32)
    flat = flat.pin_memory() if device.type == "cuda" else flat
    flat = flat.to(device, non_blocking=True)
    return torch.split(flat, [len(column) for column in columns])
