"""Megatron's GPT as it was measured in 2022: sequence first, attention in separate kernels, dropout everywhere.

Scores and probabilities cross the memory; scaling and the causal mask are part of the softmax's kernel, as in
Megatron's fused one, so that the softmax of all pairs stands for it.  Source: Korthikanti et al., Reducing Activation
Recomputation in Large Transformer Models (arXiv 2205.05198), figure 2; Megatron-LM's `transformer.py` of that year.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from frontends import building
from simulator.graph import Workload
from workloads.gpt.config import Config
from workloads.gpt.feedforward import MLP
from workloads.gpt.program import next_token_loss
from workloads.program import Program

DROPOUT = 0.1


def config(name: str, layers: int, width: int, heads: int, head_dim: int, ffn: int, seq: int) -> Config:
    """The decoder of *layers* blocks; the vocabulary is the paper's 51,200."""
    return Config(
        name=name, source="Korthikanti et al., arXiv 2205.05198, table 3",
        layers=layers, width=width, heads=heads, kv_heads=heads, head_dim=head_dim, ffn=ffn, vocab=51_200, context=seq,
        norm="layer", positions="learned", gated=False, bias=True, fused_qkv=True, tied=True,
    )  # fmt: skip


class Attention(nn.Module):
    """softmax(Q K^T) V in three kernels and a dropout, over [S, B, D]: no head is copied to be read by a product."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.head_dim = config.heads, config.head_dim
        self.qkv = nn.Linear(config.width, 3 * config.q_width)
        self.o = nn.Linear(config.q_width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        length, batch, _ = x.shape
        heads = self.qkv(x).view(length, batch * self.heads, 3 * self.head_dim)
        q, k, v = (each.transpose(0, 1) for each in heads.split(self.head_dim, dim=-1))
        scores = torch.bmm(q, k.transpose(1, 2))
        kept = functional.dropout(scores.softmax(dim=-1), DROPOUT, self.training)
        y = torch.bmm(kept, v).transpose(0, 1).reshape(length, batch, -1)
        out: Tensor = self.o(y)
        return out


class Block(nn.Module):
    """x + dropout(attention(norm x)), then + dropout(ffn(norm x)), over [S, B, D]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.ffn_norm = nn.LayerNorm(config.width)
        self.ffn = MLP(config.width, config.ffn, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        attended = x + functional.dropout(self.attention(self.attention_norm(x)), DROPOUT, self.training)
        out: Tensor = attended + functional.dropout(self.ffn(self.ffn_norm(attended)), DROPOUT, self.training)
        return out


class Model(nn.Module):
    """Tokens [B, S] to logits [S, B, V]; the head is the embedding."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab, config.width)
        self.position_embedding = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocab, bias=False)
        if config.tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = (self.embedding(tokens) + self.position_embedding.weight[: tokens.shape[1]]).transpose(0, 1).contiguous()
        x = functional.dropout(x, DROPOUT, self.training)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def program(config: Config, batch: int) -> Program:
    """One training step of *batch* sequences on the meta device."""
    with building():
        module = Model(config).train()
        tokens = torch.zeros(batch, config.context, dtype=torch.int64)
    workload = Workload(config.name, "train", batch, tokens=batch * config.context, context=config.context)
    return Program(module, (tokens,), workload, {}, next_token_loss)
