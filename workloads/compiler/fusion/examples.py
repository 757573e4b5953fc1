"""What the rule is tried on: chains as models write them."""

from torch import Tensor, nn
from torch.nn import functional


class SwiGLU(nn.Module):
    """residual + silu(gate) * up: three kernels of eager PyTorch."""

    def forward(self, gate: Tensor, up: Tensor, residual: Tensor) -> Tensor:
        """Apply it."""
        return residual + functional.silu(gate) * up


class Modulated(nn.Module):
    """relu(x * scale + shift), a vector each: an affine step as norms and quantisers end with."""

    def forward(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """Apply it."""
        return functional.relu(x * scale + shift)
