"""Models, caches and steps that `device_run` times: random weights made where they are needed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from workloads.gpt.config import Config
from workloads.gpt.model import Model
from workloads.gpt.presets import preset
from workloads.inference.batch import Batch
from workloads.inference.cache import Pages, make_pages
from workloads.inference.model import Runner
from workloads.inference.steps import ragged

BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a run measures: on a device everything, dry a little of each on the CPU."""

    device: torch.device
    dtype: torch.dtype
    models: tuple[str, ...]
    schemes: tuple[str, ...]
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    prompts: tuple[int, ...]
    rows: tuple[int, ...]
    chunk: int
    served: tuple[int, int, int]  # requests, longest prompt, longest output

    @property
    def dry(self) -> bool:
        return self.device.type == "cpu"


FULL = Sizes(
    torch.device("cuda"), torch.bfloat16, ("llama-8b", "llama-1b", "qwen3-0.6b"), ("none", "w4", "w8"),
    (1, 2, 4, 8, 16, 32, 64, 96, 128), (512, 2048), (128, 256, 512, 1024, 2048, 4096, 8192),
    (1, 2, 4, 8, 16, 32, 64, 96, 128, 256, 512, 2048), 512, (64, 1024, 256),
)  # fmt: skip
DRY = Sizes(
    torch.device("cpu"), torch.float16, ("llama-8b", "qwen3-0.6b"), ("none", "w4"), (1, 3), (20,), (24,), (1, 3), 16,
    (3, 12, 4),
)  # fmt: skip


def configured(name: str, sizes: Sizes) -> Config:
    """Return the preset *name*, cut down to what an interpreter can run if dry."""
    config = preset(name)
    if not sizes.dry:
        return config
    return replace(config, layers=1, width=128, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=128, context=256)


def random_model(config: Config, sizes: Sizes) -> Model:
    """Return a model with random weights, made on the device in its own type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(sizes.dtype)
    try:
        with torch.device(sizes.device):
            return Model(config, context=max(sizes.contexts + sizes.prompts) + 16).eval()
    finally:
        torch.set_default_dtype(before)


def random_pages(config: Config, positions: int, sizes: Sizes) -> tuple[Pages, ...]:
    """Return a cache for that many positions, full of random numbers: zeros would be read as fast or faster."""
    blocks = -(-positions // BLOCK_SIZE)
    pages = make_pages(config, blocks, BLOCK_SIZE, sizes.dtype, sizes.device)
    for pair in pages:
        for part in pair:
            part.normal_()
    return pages


def decode_step(batch: int, context: int, blocks: int, sizes: Sizes, seed: int = 0) -> Batch:
    """Return a step in which each of *batch* sequences brings its token number *context*; blocks lie anywhere."""
    return mixed_step([(context - 1, 1)] * batch, blocks, sizes, seed)


def mixed_step(pieces: Sequence[tuple[int, int]], blocks: int, sizes: Sizes, seed: int = 0) -> Batch:
    """Return a step of (start, count) pieces, single tokens first, each of a sequence of its own."""
    return ragged(pieces, blocks, BLOCK_SIZE, sizes.device, seed)


def runner_of(model: Model, scheme: str, sizes: Sizes) -> Runner:
    """Return the runner of *model* with weights of *scheme*."""
    return Runner(model, scheme, context=max(sizes.contexts + sizes.prompts) + 16)
