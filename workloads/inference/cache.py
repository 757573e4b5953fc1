"""Room for paged keys and values: blocks that belong to nobody until the scheduler gives them out."""

import torch
from torch import Tensor

from simulator.errors import UsageError
from workloads.gpt.config import Config
from workloads.gpt.estimates import kv_bytes_per_token

Pages = tuple[Tensor, Tensor]  # keys and values of one layer, each [blocks, block size, kv heads, head size]


def make_pages(
    config: Config, blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
) -> tuple[Pages, ...]:
    """Return keys and values of every layer, not yet written."""
    if blocks < 1:
        raise UsageError(f"KV cache: {blocks} blocks; at least 1 is needed")
    shape = (blocks, block_size, config.kv_heads, config.head_dim)
    return tuple(
        (torch.zeros(shape, dtype=dtype, device=device), torch.zeros(shape, dtype=dtype, device=device))
        for _ in range(config.layers)
    )


def block_bytes(config: Config, block_size: int) -> int:
    """Return the bytes of one block over all layers, in bf16.

    >>> from workloads.gpt.presets import preset
    >>> block_bytes(preset("qwen3-0.6b"), 256)
    29360128
    """
    return block_size * kv_bytes_per_token(config)


def blocks_for(lengths: list[int], block_size: int) -> int:
    """Return the blocks that sequences of those lengths hold together; each rounds up for itself.

    >>> blocks_for([1, 16, 17], 16)
    4
    """
    return sum(-(-length // block_size) for length in lengths)
