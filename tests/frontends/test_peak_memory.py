"""Peak memory of whole steps against torch's allocator on an H200 (shared measurements: models.csv, user_models.py).

The peaks of models.csv contain one cuBLAS workspace of 32 MiB for every row measured before in the same process, which
is no part of the program.  Differences between neighbouring rows contain one workspace or none: those are compared.
"""

import torch
from torch import Tensor, nn

from frontends import trace, trace_training_step
from simulator.graph import OperatorGraph
from tests.frontends.test_training import peak

WORKSPACE = 32 * 2**20


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class LlamaBlock(nn.Module):
    def __init__(self, d: int, h: int, kv: int, ffn: int) -> None:
        super().__init__()
        self.h, self.kv, self.dh = h, kv, d // h
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.q, self.o = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.k, self.v = (nn.Linear(d, kv * self.dh, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(d, ffn, bias=False) for _ in range(2))
        self.down = nn.Linear(ffn, d, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, t, d = x.shape
        y = self.n1(x)
        q = rope(self.q(y).view(b, t, self.h, self.dh).transpose(1, 2), cos, sin)
        k = rope(self.k(y).view(b, t, self.kv, self.dh).transpose(1, 2), cos, sin)
        v = self.v(y).view(b, t, self.kv, self.dh).transpose(1, 2)
        a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, d))
        y = self.n2(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))  # type: ignore[no-any-return]


class Llama(nn.Module):
    cos: Tensor
    sin: Tensor

    def __init__(self, layers: int, d: int, h: int, kv: int, ffn: int, last_only: bool) -> None:
        super().__init__()
        self.last_only = last_only
        self.emb = nn.Embedding(128256, d)
        self.blocks = nn.ModuleList(LlamaBlock(d, h, kv, ffn) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(d), nn.Linear(d, 128256, bias=False)
        self.register_buffer("cos", torch.empty(8192, d // h // 2))
        self.register_buffer("sin", torch.empty(8192, d // h // 2))

    def forward(self, ids: Tensor) -> Tensor:
        t = ids.shape[1]
        cos, sin = self.cos[:t], self.sin[:t]
        x = self.emb(ids)
        for block in self.blocks:
            x = block(x, cos, sin)
        x = self.norm(x)
        return self.head(x[:, -1:] if self.last_only else x)  # type: ignore[no-any-return]


def step(batch: int, seq: int, *, train: bool, **size: int) -> OperatorGraph:
    with torch.device("meta"):
        model = Llama(**size, last_only=not train)
        ids = torch.zeros(batch, seq, dtype=torch.int64)
    return (trace_training_step if train else trace)(model, (ids,), dtype="bf16")


def test_training_of_llama_1b_and_3b() -> None:
    small = peak(step(2, 2048, train=True, layers=16, d=2048, h=32, kv=8, ffn=8192))
    large = peak(step(4, 4096, train=True, layers=16, d=2048, h=32, kv=8, ffn=8192))
    other = peak(step(2, 2048, train=True, layers=28, d=3072, h=24, kv=8, ffn=8192))
    assert abs(large - small - (60_594_239_488 - 22_633_320_960)) <= WORKSPACE
    assert abs(other - small - (41_910_648_320 - 22_633_320_960)) <= WORKSPACE


def test_prefill_of_llama_8b() -> None:
    sizes = {"layers": 32, "d": 4096, "h": 32, "kv": 8, "ffn": 14336}
    short, long, wide = (peak(step(b, s, train=False, **sizes)) for b, s in ((1, 128), (1, 2048), (4, 4096)))
    assert abs(long - short - (16_976_994_304 - 16_692_814_848)) <= 1.05 * WORKSPACE
    assert abs(wide - long - (18_889_711_616 - 16_976_994_304)) <= 1.05 * WORKSPACE
