"""Parameter counts by closed form, in the parts that conventions differ about."""

from dataclasses import dataclass

from workloads.gpt.config import Config


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a model stores, in elements.

    embedding  input embedding, learned positions included.
    attention  Q, K, V and O matrices.
    ffn        feed-forward matrices, of all experts.
    active     the part of *ffn* that one token visits.
    router     matrices that choose experts.
    norm       gains and biases of norms.
    bias       biases of projections.
    head       output matrix, 0 if it is the embedding (tied).
    """

    embedding: int
    attention: int
    ffn: int
    active: int
    router: int
    norm: int
    bias: int
    head: int

    @property
    def total(self) -> int:
        """Everything, a tied embedding counted once."""
        return self.matrices + self.router + self.norm + self.bias

    @property
    def matrices(self) -> int:
        """Embedding, attention, feed-forward and head: the count that leaves small things out."""
        return self.embedding + self.attention + self.ffn + self.head

    @property
    def active_matrices(self) -> int:
        """As *matrices*, with only the experts that one token visits."""
        return self.matrices - self.ffn + self.active

    @property
    def attention_share(self) -> float:
        """Attention matrices over all matrices of the blocks."""
        return self.attention / (self.attention + self.ffn)


def parameters(config: Config) -> Parameters:
    """Return the parameters of *config*.

    >>> from workloads.gpt.presets import preset
    >>> parameters(preset("llama-8b")).total
    8030261248
    """
    c = config
    ffn, active, router = _ffn(c)
    positions = c.context if c.positions == "learned" else 0
    return Parameters(
        embedding=(c.vocab + positions) * c.width,
        attention=c.layers * 2 * c.width * (c.q_width + c.kv_width),
        ffn=c.layers * ffn,
        active=c.layers * active,
        router=c.layers * router,
        norm=_norm(c),
        bias=c.layers * _bias(c) if c.bias else 0,
        head=0 if c.tied else c.vocab * c.width,
    )


def matmul_parameters(config: Config) -> int:
    """Return the matrix elements that one token is multiplied with: head included, embedding look-up not."""
    p = parameters(config)
    return p.attention + p.active + p.router + config.vocab * config.width


def _ffn(c: Config) -> tuple[int, int, int]:
    """All, active and router elements of one layer."""
    if c.experts:
        expert = 3 * c.width * c.experts.width
        return c.experts.count * expert, c.experts.active * expert, c.width * c.experts.count
    dense = (3 if c.gated else 2) * c.width * c.ffn
    return dense, dense, 0


def _norm(c: Config) -> int:
    each = (2 if c.norm == "layer" else 1) * c.width
    per_layer = (1 if c.parallel else 2) * each + (2 * c.head_dim if c.qk_norm else 0)
    return c.layers * per_layer + (each if c.final_norm else 0)


def _bias(c: Config) -> int:
    """Q, K, V, O and the feed-forward of one layer."""
    return c.q_width + 2 * c.kv_width + c.width + (2 if c.gated else 1) * c.ffn + c.width
