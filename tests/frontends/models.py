"""Small programs that the tests of the frontends trace; plain PyTorch, as a user would bring it."""

import torch
import torch.nn.functional as F  # noqa: N812  everybody's name for it
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Mlp(nn.Module):
    """Two products with a SiLU between them: 8 -> 32 -> 8."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.up(x)))  # type: ignore[no-any-return]


class Block(nn.Module):
    """A pre-norm transformer block with fused attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.RMSNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.n1(x)).split(d, dim=2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))  # type: ignore[no-any-return]


class Gpt(nn.Module):
    """A language model with learned positions and a tied head; *again* recomputes each block in the backward pass."""

    def __init__(self, layers: int, width: int = 64, heads: int = 4, vocab: int = 100, again: bool = False) -> None:
        super().__init__()
        self.again = again
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(32, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


def tokens(batch: int = 2, length: int = 16) -> tuple[Tensor]:
    """Token ids as the arguments of a `Gpt`."""
    return (torch.zeros(batch, length, dtype=torch.int64),)


class Function(nn.Module):
    """A function as a module, so that it can be traced."""

    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor, **kwargs: Tensor) -> object:
        return self.function(*args, **kwargs)  # type: ignore[operator]
