"""One description for the GPT-2, Llama and Qwen3 families: everything that decides shapes, and nothing else.

Symbols used in the formulas beside the code::

    B batch       S query positions   T key positions (decode: S = 1, T = context)
    D width       L layers            V vocabulary
    N heads       K kv_heads          H head_dim           F feed-forward width
"""

from dataclasses import dataclass
from typing import Literal

from simulator.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """How Llama 3 stretches its rotary frequencies beyond the context that it was first trained with.

    Wavelengths longer than original / low are divided by *factor*, those shorter than original / high are kept, and
    the ones between are interpolated.  Source: Llama 3.1 model code and its published config.json.
    """

    factor: float
    low: float = 1.0
    high: float = 4.0
    original: int = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Mixture of experts: a token visits *active* of *count* feed-forward networks, each *width* wide."""

    count: int
    active: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A decoder-only transformer.

    head_dim   free: heads x head_dim need not be the width (Qwen3-0.6B: 16 x 128 = 2 x 1024).
    ffn        width of the feed-forward network; not used when there are *experts*.
    context    the most positions that the model was made for.
    norm       LayerNorm (gain and bias) or RMSNorm (gain).
    gated      SwiGLU with three matrices, or GELU with two.
    bias       in every projection (GPT-2), or nowhere.
    fused_qkv  Q, K and V come from one matrix, as in GPT-2.
    qk_norm    RMSNorm over every query and key head (Qwen3).
    tied       the output head is the input embedding.
    parallel   attention and feed-forward read the same norm, and so a block has one (GPT-J, PaLM).
    window     keys that a query sees, layer by layer and repeated; 0 means all.
    """

    name: str
    source: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int
    norm: Literal["layer", "rms"] = "rms"
    norm_eps: float = 1e-5
    positions: Literal["rope", "learned"] = "rope"
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    gated: bool = True
    bias: bool = False
    fused_qkv: bool = False
    qk_norm: bool = False
    tied: bool = False
    parallel: bool = False
    final_norm: bool = True
    experts: Experts | None = None
    window: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        """Refuse sizes of which no model can be built."""
        for field in ("layers", "width", "heads", "kv_heads", "head_dim", "vocab", "context"):
            if getattr(self, field) < 1:
                raise UsageError(f"model {self.name}: {field} is {getattr(self, field)}, needs at least 1")
        if self.heads % self.kv_heads:
            raise UsageError(f"model {self.name}: {self.heads} heads cannot share {self.kv_heads} key/value heads")
        if not self.window:
            raise UsageError(f"model {self.name}: window is empty; write (0,) for full attention")
        if self.experts and not 1 <= self.experts.active <= self.experts.count:
            raise UsageError(f"model {self.name}: {self.experts.active} of {self.experts.count} experts active")

    @property
    def q_width(self) -> int:
        """Columns of all query heads: N H."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Columns of all key heads, and of all value heads: K H."""
        return self.kv_heads * self.head_dim

    def window_of(self, layer: int) -> int:
        """Keys that a query of *layer* sees at most; 0 means all."""
        return self.window[layer % len(self.window)]

    def keys_seen(self, layer: int, context: int) -> int:
        """Keys that the last of *context* positions sees in *layer*."""
        window = self.window_of(layer)
        return min(window, context) if window else context
