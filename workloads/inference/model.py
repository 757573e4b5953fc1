"""The models of `workloads.gpt` over ragged batches and paged keys and values: the same weights, another way through.

Matrices that read the same input are one here (Q, K and V; gate and up), so that a step has fewer and larger products.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from simulator.packing import bits_of
from workloads.gpt.config import Config
from workloads.gpt.feedforward import MLP, MixtureOfExperts, SwiGLU
from workloads.gpt.model import Block, Model
from workloads.gpt.rope import rotations
from workloads.inference import operator
from workloads.inference.batch import Batch
from workloads.inference.cache import Pages
from workloads.inference.quantise import pack


class Dense(nn.Module):
    """x W^T + bias in the model's own type."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = weight
        self.bias = bias

    @property
    def nbytes(self) -> int:
        """Bytes of the matrix."""
        return self.weight.numel() * self.weight.element_size()

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)


class Quantised(nn.Module):
    """x W^T + bias, the matrix packed."""

    def __init__(self, weight: Tensor, bias: Tensor | None, bits: int) -> None:
        super().__init__()
        self.packed = pack(weight, bits)
        self.bias = bias

    @property
    def nbytes(self) -> int:
        """Bytes of the packed matrix."""
        return self.packed.nbytes

    def forward(self, x: Tensor) -> Tensor:
        p = self.packed
        y = operator.linear(x, p.data, p.scales, p.zeros, p.bits)
        return y if self.bias is None else y + self.bias


Linear = Dense | Quantised


def _linear(parts: Sequence[nn.Linear], bits: int) -> Linear:
    """One product for several linear layers that read the same input."""
    alone = len(parts) == 1
    weight = (parts[0].weight if alone else torch.cat([part.weight for part in parts])).detach()
    bias: Tensor | None = None
    if parts[0].bias is not None:
        bias = (parts[0].bias if alone else torch.cat([part.bias for part in parts])).detach()
    return Quantised(weight, bias, bits) if bits else Dense(weight, bias)


class Norm(nn.Module):
    """x + y and its norm."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        if isinstance(self.norm, nn.RMSNorm):
            return operator.add_norm(x, y, self.norm.weight, self.norm.eps or 0.0)
        total = x if y is None else x + y
        return total, self.norm(total)


class FeedForward(nn.Module):
    """The feed-forward network of a block; experts stay as they are, unquantised."""

    def __init__(self, ffn: SwiGLU | MLP | MixtureOfExperts, bits: int) -> None:
        super().__init__()
        self.experts = ffn if isinstance(ffn, MixtureOfExperts) else None
        self.gated = isinstance(ffn, SwiGLU)
        if not isinstance(ffn, MixtureOfExperts):
            self.up = _linear([ffn.gate, ffn.up] if isinstance(ffn, SwiGLU) else [ffn.up], bits)
            self.down = _linear([ffn.down], bits)

    def forward(self, x: Tensor) -> Tensor:
        if self.experts is not None:
            y: Tensor = self.experts(x[None])[0]
            return y
        hidden = self.up(x)
        out: Tensor = self.down(operator.gate(hidden) if self.gated else functional.gelu(hidden, approximate="tanh"))
        return out


class Layer(nn.Module):
    """One block.  It takes the sum so far and what the block before has to add to it, and returns the same two."""

    def __init__(self, block: Block, config: Config, layer: int, bits: int) -> None:
        super().__init__()
        self.window = config.window_of(layer)
        self.parallel = config.parallel
        self.rotated = config.positions == "rope"
        attention = block.attention
        self.attention_norm = Norm(block.attention_norm)
        self.qkv = _linear([attention.qkv] if config.fused_qkv else [attention.q, attention.k, attention.v], bits)
        self.o = _linear([attention.o], bits)
        self.q_gain: Tensor | None = attention.q_norm.weight if isinstance(attention.q_norm, nn.RMSNorm) else None
        self.k_gain: Tensor | None = attention.k_norm.weight if isinstance(attention.k_norm, nn.RMSNorm) else None
        self.eps = config.norm_eps
        self.ffn_norm = Norm(block.ffn_norm)
        self.ffn = FeedForward(block.ffn, bits)

    def forward(
        self, x: Tensor, added: Tensor | None, batch: Batch, pages: Pages, rotation: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        x, y = self.attention_norm(x, added)
        attended = self.o(self._attend(self.qkv(y), batch, pages, rotation))
        if self.parallel:
            return x + attended, self.ffn(y)
        x, y = self.ffn_norm(x, attended)
        return x, self.ffn(y)

    def _attend(self, qkv: Tensor, batch: Batch, pages: Pages, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
        keys, values = pages
        cos, sin = rotation or (None, None)
        at = batch.positions, batch.slots
        q, k = operator.place(qkv, keys, values, cos, sin, *at, self.q_gain, self.k_gain, self.eps)
        if batch.fresh and not self.window:
            v = qkv.view(len(qkv), -1, q.shape[2])[:, -k.shape[1] :]
            return operator.fresh_attention(q, k, v).flatten(1)
        return operator.attention(q, keys, values, batch, self.window).flatten(1)


class Runner(nn.Module):
    """A model that runs a `Batch` over a paged cache and returns the logits [R, V] of the sampled tokens.

    quantisation  ``none``, ``w8`` or ``w4``: of all matrices but embeddings, norms and experts.
    context       positions that it will see at most; the table of rotations is as long.
    """

    def __init__(self, model: Model, quantisation: str = "none", context: int | None = None) -> None:
        super().__init__()
        bits = bits_of(quantisation)
        self.config = config = model.config
        self.quantisation = quantisation
        self.context = min(context or config.context, config.context)
        self.embedding = model.embedding
        self.position_embedding = getattr(model, "position_embedding", None)
        self.rotation = _rotation(config, self.context, self.embedding.weight)
        self.layers = nn.ModuleList(
            Layer(block, config, layer, bits) for layer, block in enumerate(model.blocks) if isinstance(block, Block)
        )
        self.norm = Norm(model.norm)
        self.head = _linear([model.head], bits)

    @property
    def dtype(self) -> torch.dtype:
        """Type of activations, and of keys and values."""
        return self.embedding.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.embedding.weight.device

    def linears(self) -> list[Linear]:
        """Every matrix that a step multiplies with; experts left out."""
        return [module for module in self.modules() if isinstance(module, Dense | Quantised)]

    @torch.no_grad()
    def forward(self, batch: Batch, cache: Sequence[Pages]) -> Tensor:
        x = functional.embedding(batch.tokens, self.embedding.weight)
        if self.position_embedding is not None:
            x = x + functional.embedding(batch.positions, self.position_embedding.weight)
        added: Tensor | None = None
        for layer, pages in zip(self.layers, cache, strict=True):
            x, added = layer(x, added, batch, pages, self.rotation)
        if not len(batch.samples):  # a chunk that does not end its prompt
            return x.new_empty((0, self.config.vocab))
        if x.shape[0] != batch.samples.shape[0]:
            x = x.index_select(0, batch.samples)
            added = None if added is None else added.index_select(0, batch.samples)
        logits: Tensor = self.head(self.norm(x, added)[1])
        return logits


def _rotation(config: Config, context: int, like: Tensor) -> tuple[Tensor, Tensor] | None:
    """Cosines and sines in fp32 at least: in bf16, positions beyond 256 could not be told apart."""
    if config.positions != "rope":
        return None
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    with torch.device(like.device):
        cos, sin = rotations(config, context)
    return cos.to(dtype), sin.to(dtype)
