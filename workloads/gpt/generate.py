"""Text out of a model, greedily and with the cache; and a tiny model trained on the spot to have something to say."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from workloads.gpt.config import Config
from workloads.gpt.model import Model, make_cache
from workloads.gpt.presets import preset
from workloads.gpt.program import next_token_loss

TEXT = (
    "Compute, bandwidth, capacity or interconnect: one of them binds. "
    "Prefill is bound by compute, decode by bandwidth, a long context by capacity, and many chips by interconnect. "
)


def tiny() -> Config:
    """Return a Llama of a quarter million parameters over bytes."""
    return replace(
        preset("llama-8b"), name="tiny-llama", source="made up for this demonstration", layers=2, width=96, heads=6,
        kv_heads=2, head_dim=16, ffn=256, vocab=256, context=256, rope_scaling=None, tied=True,
    )  # fmt: skip


@torch.no_grad()
def generate(model: Model, prompt: Tensor, count: int) -> Tensor:
    """Return *prompt* [B, S] and *count* tokens more, each the likeliest."""
    model.eval()
    length = prompt.shape[1]
    with torch.device(prompt.device):
        cache = make_cache(model.config, prompt.shape[0], length + count)
    tokens, new = prompt, prompt
    for position in range(length, length + count):
        logits = model(new, cache, position - new.shape[1])
        new = logits[:, -1].argmax(-1, keepdim=True)
        tokens = torch.cat((tokens, new), dim=1)
    return tokens


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one CPU thread: in products this small, several wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@one_thread()
def train(model: Model, text: bytes, steps: int, length: int = 96, batch: int = 8) -> float:
    """Let *model* learn the bytes of *text* by heart; return the last loss in nats a byte."""
    device = model.embedding.weight.device
    data = torch.tensor(list(text * 2), dtype=torch.int64, device=device)  # twice, so that it may start anywhere
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    picker = torch.Generator().manual_seed(0)
    model.train()
    loss = torch.zeros(())
    for _ in range(steps):
        starts = torch.randint(len(text) - 1, (batch,), generator=picker).tolist()
        chunk = torch.stack([data[start : start + length + 1] for start in starts])
        loss = next_token_loss(model(chunk[:, :-1]), chunk[:, 1:])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return float(loss.detach())
