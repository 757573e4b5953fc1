# ruff: noqa
# mypy: ignore-errors
"""Plain PyTorch models as a user would bring them: GPT-2 and Llama families, with and without a KV cache."""
import math
import torch
from torch import nn
import torch.nn.functional as F


class GPT2Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).split(d, dim=2)
        q, k, v = (z.view(b, t, self.h, d // self.h).transpose(1, 2) for z in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers, d, h, vocab=50257, ctx=1024):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(ctx, d)
        self.blocks = nn.ModuleList(GPT2Block(d, h) for _ in range(layers))
        self.lnf = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids):
        pos = torch.arange(ids.shape[1], device=ids.device)
        x = self.wte(ids) + self.wpe(pos)
        for blk in self.blocks:
            x = blk(x)
        return self.head(self.lnf(x))


def rope(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class LlamaBlock(nn.Module):
    def __init__(self, d, h, kv, ffn):
        super().__init__()
        self.h, self.kv, self.dh = h, kv, d // h
        self.n1, self.n2 = nn.RMSNorm(d, eps=1e-5), nn.RMSNorm(d, eps=1e-5)
        self.q = nn.Linear(d, d, bias=False)
        self.k = nn.Linear(d, kv * self.dh, bias=False)
        self.v = nn.Linear(d, kv * self.dh, bias=False)
        self.o = nn.Linear(d, d, bias=False)
        self.gate = nn.Linear(d, ffn, bias=False)
        self.up = nn.Linear(d, ffn, bias=False)
        self.down = nn.Linear(ffn, d, bias=False)

    def forward(self, x, cos, sin, cache=None):
        b, t, d = x.shape
        y = self.n1(x)
        q = rope(self.q(y).view(b, t, self.h, self.dh).transpose(1, 2), cos, sin)
        k = rope(self.k(y).view(b, t, self.kv, self.dh).transpose(1, 2), cos, sin)
        v = self.v(y).view(b, t, self.kv, self.dh).transpose(1, 2)
        if cache is not None:
            ck, cv = cache
            ck[:, :, -t:] = k
            cv[:, :, -t:] = v
            k, v = ck, cv
        a = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None, enable_gqa=self.kv != self.h)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, d))
        y = self.n2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, layers, d, h, kv, ffn, vocab=128256, ctx=8192):
        super().__init__()
        self.h, self.kv, self.dh = h, kv, d // h
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList(LlamaBlock(d, h, kv, ffn) for _ in range(layers))
        self.norm = nn.RMSNorm(d, eps=1e-5)
        self.head = nn.Linear(d, vocab, bias=False)
        f = 1.0 / (500000.0 ** (torch.arange(0, self.dh, 2).float() / self.dh))
        ang = torch.outer(torch.arange(ctx).float(), f)
        self.register_buffer("cos", ang.cos())
        self.register_buffer("sin", ang.sin())

    def forward(self, ids, caches=None, last_only=True):
        t = ids.shape[1]
        n = t if caches is None else caches[0][0].shape[2]
        cos, sin = self.cos[n - t:n].to(self.emb.weight.dtype), self.sin[n - t:n].to(self.emb.weight.dtype)
        x = self.emb(ids)
        for i, blk in enumerate(self.blocks):
            x = blk(x, cos, sin, None if caches is None else caches[i])
        x = self.norm(x)
        return self.head(x[:, -1:] if last_only else x)


MODELS = {
    "gpt2": lambda: GPT2(12, 768, 12),
    "gpt2-medium": lambda: GPT2(24, 1024, 16),
    "gpt2-large": lambda: GPT2(36, 1280, 20),
    "gpt2-xl": lambda: GPT2(48, 1600, 25),
    "llama-1b": lambda: Llama(16, 2048, 32, 8, 8192),
    "llama-3b": lambda: Llama(28, 3072, 24, 8, 8192),
    "llama-8b": lambda: Llama(32, 4096, 32, 8, 14336),
}


def caches(model, b, ctx, dtype, device):
    return [tuple(torch.randn(b, model.kv, ctx, model.dh, dtype=dtype, device=device) for _ in range(2)) for _ in model.blocks]
