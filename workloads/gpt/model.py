"""The decoder: embeddings, blocks, final norm, head.  Runs on CPU, MPS, CUDA and, without weights, on meta."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from workloads.gpt.attention import Attention, KeyValue
from workloads.gpt.config import Config
from workloads.gpt.feedforward import MixtureOfExperts, feed_forward
from workloads.gpt.rope import Rotation, rotations

Cache = Sequence[KeyValue]  # one pair a layer


def make_norm(config: Config) -> nn.Module:
    """LayerNorm: (x - mean) / std * gain + bias.  RMSNorm: x / rms * gain."""
    kind = nn.LayerNorm if config.norm == "layer" else nn.RMSNorm
    return kind(config.width, eps=config.norm_eps)


def make_cache(config: Config, batch: int, context: int) -> Cache:
    """Return room for *context* positions: 2 L B K H elements a position."""
    shape = (batch, config.kv_heads, context, config.head_dim)
    return tuple((torch.zeros(shape), torch.zeros(shape)) for _ in range(config.layers))


class Block(nn.Module):
    """x + attention(norm x), then + ffn(norm x); a parallel block adds both to the same x."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.parallel = config.parallel
        self.attention_norm = make_norm(config)
        self.attention = Attention(config, config.window_of(layer))
        self.ffn_norm = nn.Identity() if config.parallel else make_norm(config)
        self.ffn = feed_forward(config)

    def forward(
        self, x: Tensor, rotation: Rotation | None = None, cache: KeyValue | None = None, position: int = 0
    ) -> Tensor:
        y = self.attention_norm(x)
        attended = x + self.attention(y, rotation, cache, position)
        out: Tensor = attended + self.ffn(y if self.parallel else self.ffn_norm(attended))
        return out


class Model(nn.Module):
    """A GPT-2, Llama or Qwen3, by its *config*.

    In training mode it returns the logits of all positions [B, S, V], otherwise those of the last [B, 1, V]: all
    that prefill and decode need.  *context* is the most positions that it will see; the table of rotations is as long.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, config: Config, context: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.width)
        if config.positions == "learned":
            self.position_embedding = nn.Embedding(config.context, config.width)
        else:
            cos, sin = rotations(config, context or config.context)
            self.register_buffer("cos", cos, persistent=False)
            self.register_buffer("sin", sin, persistent=False)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.layers))
        self.norm = make_norm(config) if config.final_norm else nn.Identity()
        self.head = nn.Linear(config.width, config.vocab, bias=False)
        self.apply(initialise)
        if config.tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor, cache: Cache | None = None, position: int = 0) -> Tensor:
        """Return logits for *tokens* [B, S], of which the first stands at *position*."""
        x = self.embedding(tokens)
        end = position + tokens.shape[1]
        rotation = None
        if self.config.positions == "learned":
            x = x + self.position_embedding.weight[position:end]
        else:
            rotation = self.cos[position:end], self.sin[position:end]
        for layer, block in enumerate(self.blocks):
            x = block(x, rotation, cache[layer] if cache else None, position)
        logits: Tensor = self.head(self.norm(x if self.training else x[:, -1:]))
        return logits


def initialise(module: nn.Module) -> None:
    """Draw weights from N(0, 0.02), as GPT-2 did; biases start at zero."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, MixtureOfExperts):
        for weight in (module.gate, module.up, module.down):
            nn.init.normal_(weight, std=0.02)
