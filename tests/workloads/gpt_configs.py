"""Small models, one of each family, that the tests run with real numbers."""

from dataclasses import replace

import torch
from torch import Tensor

from workloads.gpt import Config, Experts, RopeScaling, preset
from workloads.gpt.model import Model


def small(name: str, family: str, ffn: int = 48, kv_heads: int = 2, head_dim: int = 8) -> Config:
    """Return the preset *family* with sizes that a CPU runs in milliseconds."""
    return replace(
        preset(family), name=name, layers=2, width=32, heads=4, vocab=61, context=64, kv_heads=kv_heads,
        head_dim=head_dim, ffn=ffn,
    )  # fmt: skip


GPT2 = small("small-gpt2", "gpt2", ffn=128, kv_heads=4)
LLAMA = replace(small("small-llama", "llama-8b"), rope_scaling=RopeScaling(factor=8.0, original=16))
QWEN3 = small("small-qwen3", "qwen3-0.6b", head_dim=16)
WINDOWED = replace(LLAMA, name="small-windowed", window=(5, 0))
PARALLEL = replace(LLAMA, name="small-parallel", parallel=True, gated=False)
MOE = replace(LLAMA, name="small-moe", experts=Experts(count=4, active=2, width=16))

FAMILIES = {config.name: config for config in (GPT2, LLAMA, QWEN3, WINDOWED, PARALLEL, MOE)}


def make(config: Config, seed: int = 0, std: float = 0.4) -> Model:
    """Return a model with random weights, norms and biases too, so large that no term of a sum is lost."""
    torch.manual_seed(seed)
    model = Model(config)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=std)
    return model


def tokens(config: Config, batch: int = 2, length: int = 12) -> Tensor:
    """Return random token ids [batch, length]."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(config.vocab, (batch, length), generator=generator)


def all_logits(model: Model, ids: Tensor) -> Tensor:
    """Return the logits of every position."""
    with torch.no_grad():
        logits: Tensor = model.train()(ids)
    return logits
