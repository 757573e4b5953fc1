"""Feed-forward networks: SwiGLU, GELU, and a mixture of SwiGLU experts."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from workloads.gpt.config import Config, Experts


class SwiGLU(nn.Module):
    """down(silu(gate x) * up x): three matrices D x F, 6 D F FLOP a token."""

    def __init__(self, width: int, hidden: int, bias: bool = False) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=bias)
        self.up = nn.Linear(width, hidden, bias=bias)
        self.down = nn.Linear(hidden, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(functional.silu(self.gate(x)) * self.up(x))
        return y


class MLP(nn.Module):
    """down(gelu(up x)): two matrices D x F, 4 D F FLOP a token."""

    def __init__(self, width: int, hidden: int, bias: bool = False) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=bias)
        self.down = nn.Linear(hidden, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(functional.gelu(self.up(x), approximate="tanh"))
        return y


class MixtureOfExperts(nn.Module):
    """Each token goes to the *active* experts that the router likes best, weighted by a softmax over those.

    Tokens are sorted by expert, so that each matrix product is one grouped GEMM: B S k rows over E matrices.
    FLOP a token: 2 D E for the router and 6 D F k for the experts.
    """

    def __init__(self, width: int, experts: Experts) -> None:
        super().__init__()
        self.active = experts.active
        self.router = nn.Linear(width, experts.count, bias=False)
        self.gate = nn.Parameter(torch.empty(experts.count, width, experts.width))
        self.up = nn.Parameter(torch.empty(experts.count, width, experts.width))
        self.down = nn.Parameter(torch.empty(experts.count, experts.width, width))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        scores, chosen = self.router(tokens).topk(self.active, dim=-1)
        order = chosen.flatten().argsort()
        rows = tokens[order // self.active]
        ends = torch.searchsorted(chosen.flatten()[order], self._ids(x), right=True).to(torch.int32)
        gate = functional.grouped_mm(rows, self.gate, offs=ends)
        up = functional.grouped_mm(rows, self.up, offs=ends)
        y = (
            functional.grouped_mm(functional.silu(gate) * up, self.down, offs=ends)
            * scores.softmax(-1).flatten()[order, None]
        )
        return torch.zeros_like(tokens).index_add(0, order // self.active, y).view_as(x)

    def _ids(self, x: Tensor) -> Tensor:
        return torch.arange(self.gate.shape[0], device=x.device)


def feed_forward(config: Config) -> SwiGLU | MLP | MixtureOfExperts:
    """Return the network that *config* asks for."""
    if config.experts:
        return MixtureOfExperts(config.width, config.experts)
    return (SwiGLU if config.gated else MLP)(config.width, config.ffn, config.bias)
