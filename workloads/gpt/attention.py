"""Causal self-attention with grouped key/value heads, an optional window, and a cache written in place."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from workloads.gpt.config import Config
from workloads.gpt.rope import Rotation, rotate

KeyValue = tuple[Tensor, Tensor]  # keys and values of one layer, each [B, K, T, H]


class Attention(nn.Module):
    """softmax(Q K^T / sqrt(H)) V, then the output projection.

    Weights: Q D x NH, K and V D x KH each, O NH x D.
    FLOP a token: 2 D (2 NH + 2 KH) for the projections, and 4 N H a key that it sees.
    """

    def __init__(self, config: Config, window: int = 0) -> None:
        super().__init__()
        self.widths = (config.q_width, config.kv_width, config.kv_width)
        self.head_dim = config.head_dim
        self.grouped = config.kv_heads < config.heads
        self.fused = config.fused_qkv
        self.window = window
        if config.fused_qkv:
            self.qkv = nn.Linear(config.width, sum(self.widths), bias=config.bias)
        else:
            self.q = nn.Linear(config.width, config.q_width, bias=config.bias)
            self.k = nn.Linear(config.width, config.kv_width, bias=config.bias)
            self.v = nn.Linear(config.width, config.kv_width, bias=config.bias)
        self.o = nn.Linear(config.q_width, config.width, bias=config.bias)
        self.q_norm = nn.RMSNorm(config.head_dim, eps=config.norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(config.head_dim, eps=config.norm_eps) if config.qk_norm else nn.Identity()

    def forward(
        self, x: Tensor, rotation: Rotation | None = None, cache: KeyValue | None = None, position: int = 0
    ) -> Tensor:
        """Attend from *x* [B, S, D], which stands at *position* and after, to it and to what the cache holds."""
        q, k, v = self._project(x)
        q, k = self.q_norm(q), self.k_norm(k)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        if cache is not None:
            k, v = append(cache, k, v, position)
        if self.window and q.shape[2] == 1:
            k, v = k[:, :, -self.window :], v[:, :, -self.window :]
        mask = visible(q.shape[2], k.shape[2], self.window, x.device)
        causal = mask is None and q.shape[2] > 1
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=self.grouped)
        out: Tensor = self.o(y.transpose(1, 2).flatten(2))
        return out

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries [B, N, S, H], keys and values [B, K, S, H]."""
        q, k, v = self.qkv(x).split(self.widths, dim=-1) if self.fused else (self.q(x), self.k(x), self.v(x))
        return self._heads(q), self._heads(k), self._heads(v)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)


def append(cache: KeyValue, k: Tensor, v: Tensor, position: int) -> KeyValue:
    """Write new keys and values into the cache at *position*; return all that are valid now, as views."""
    end = position + k.shape[2]
    for store, new in zip(cache, (k, v), strict=True):
        store[:, :, position:end].copy_(new)
    return cache[0][:, :, :end], cache[1][:, :, :end]


def visible(queries: int, keys: int, window: int, device: torch.device) -> Tensor | None:
    """Return which keys each query sees, or None where the plain causal triangle (one query: all keys) says it.

    The queries are the last of the keys.
    """
    if queries == 1 or (queries == keys and (not window or window >= keys)):
        return None
    here = torch.arange(keys - queries, keys, device=device)[:, None]
    distance = here - torch.arange(keys, device=device)
    return (distance >= 0) & (distance < (window or keys))
