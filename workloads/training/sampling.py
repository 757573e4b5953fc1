"""Text from a trained model."""

from collections.abc import Sequence

import torch

from simulator.errors import UsageError
from workloads.gpt.model import make_cache
from workloads.training.network import Network


@torch.no_grad()
def sample(
    network: Network, prompt: Sequence[int], count: int, *, temperature: float = 0.8, top: int = 40, seed: int = 0,
    stop: int | None = None,
) -> list[int]:  # fmt: skip
    """Return up to *count* tokens after *prompt*, drawn from the *top* likeliest; temperature 0 takes the likeliest.

    Ends before *stop*.  Raises UsageError for an empty prompt and for more tokens than the model's context.
    """
    limit = network.config.context
    if not prompt:
        raise UsageError("empty prompt: needs at least one token")
    if len(prompt) + count > limit:
        raise UsageError(f"{len(prompt)} tokens of prompt and {count} new ones: the model's context is {limit}")
    network.eval()
    device = network.embedding.weight.device
    picker = torch.Generator().manual_seed(seed)
    with device:
        cache = make_cache(network.config, 1, len(prompt) + count)
    new, out = torch.tensor([list(prompt)], device=device), list[int]()
    for position in range(len(prompt), len(prompt) + count):
        logits = network(new, cache, position - new.shape[1])[0, -1].float().cpu()
        token = _pick(logits, temperature, top, picker)
        if token == stop:
            break
        out.append(token)
        new = torch.tensor([[token]], device=device)
    return out


def _pick(logits: torch.Tensor, temperature: float, top: int, picker: torch.Generator) -> int:
    if temperature <= 0:
        return int(logits.argmax())
    best, places = logits.topk(min(top, len(logits)))
    return int(places[torch.multinomial((best / temperature).softmax(-1), 1, generator=picker)])
