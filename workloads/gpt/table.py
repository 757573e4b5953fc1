"""Parameters, multiply-adds and bytes of every operator by closed form: nothing here is traced.

Matrix products and attention move each operand once.  The rest (norms, rotations, activations, sums) is counted as
one kernel each that reads its inputs once and writes its output once; eager PyTorch may take several.
"""

from collections import Counter
from dataclasses import dataclass, replace

from simulator.dtypes import DType
from workloads.gpt.config import Config
from workloads.gpt.estimates import attention_dims


@dataclass(frozen=True, slots=True)
class Row:
    """One operator, which the model has *count* times.  All other numbers are for one of them.

    module      path in the model, the layer written as a star.
    kind        matmul, attention, or what else it is.
    parameters  elements of its weights; 0 for the head if it is the embedding (tied).
    macs        multiply-adds.
    reads       bytes from memory, weights and cache included; *writes* bytes to it.
    """

    module: str
    kind: str
    count: int
    parameters: int
    macs: int
    reads: int
    writes: int

    @property
    def flops(self) -> int:
        """Two for each multiply-add."""
        return 2 * self.macs


@dataclass(frozen=True, slots=True)
class Step:
    """What one step looks at: *queries* new positions of each of *batch* sequences, *keys* positions in all.

    logits  positions of each sequence that get logits.
    cached  new keys and values are written to a cache.
    """

    batch: int
    queries: int
    keys: int
    logits: int
    cached: bool
    dtype: DType

    @property
    def tokens(self) -> int:
        return self.batch * self.queries

    def size(self, elements: int) -> int:
        """Bytes of that many elements."""
        return (elements * self.dtype.bits + 7) // 8


def step(phase: str, batch: int, length: int, dtype: DType = DType.BF16) -> Step:
    """Return the step of *phase*: *length* is the prompt, or the whole context in decode."""
    if phase == "decode":
        return Step(batch, 1, length, 1, cached=True, dtype=dtype)
    return Step(batch, length, length, length if phase == "train" else 1, cached=False, dtype=dtype)


def table(config: Config, at: Step) -> tuple[Row, ...]:
    """Return every operator of one forward pass, in order."""
    c = config
    first = [_embedding(c, at)]
    block = [
        _norm("attention_norm", c, at),
        *_projections(c, at),
        *_heads(c, at),
        *_attention(c, at),
        _linear("attention.o", at, at.tokens, c.q_width, c.width, c.bias),
        _pointwise("attention/add", at, inputs=2 * at.tokens * c.width, outputs=at.tokens * c.width),
        *([] if c.parallel else [_norm("ffn_norm", c, at)]),
        *(_experts(c, at) if c.experts else _dense(c, at)),
        _pointwise("ffn/add", at, inputs=2 * at.tokens * c.width, outputs=at.tokens * c.width),
    ]
    named = [replace(row, module=f"blocks.*.{row.module}", count=row.count * _layers(row, c)) for row in block]
    return (*first, *named, *_output(c, at))


def _layers(row: Row, c: Config) -> int:
    return 1 if row.kind == "attention" else c.layers


def _linear(name: str, at: Step, rows: int, k: int, n: int, bias: bool = False) -> Row:
    """[rows, k] x [k, n]: k n weights, rows k n multiply-adds."""
    weights = k * n + (n if bias else 0)
    return Row(name, "matmul", 1, weights, rows * k * n, at.size(rows * k) + at.size(weights), at.size(rows * n))


def _pointwise(name: str, at: Step, inputs: int, outputs: int, kind: str = "pointwise") -> Row:
    return Row(name, kind, 1, 0, 0, at.size(inputs), at.size(outputs))


def _norm(name: str, c: Config, at: Step, rows: int | None = None) -> Row:
    rows = at.tokens if rows is None else rows
    gains = (2 if c.norm == "layer" else 1) * c.width
    return Row(name, "norm", 1, gains, 0, at.size(rows * c.width + gains), at.size(rows * c.width))


def _embedding(c: Config, at: Step) -> Row:
    """One row of the table for each token, and learned positions on top."""
    positions = c.context if c.positions == "learned" else 0
    rows = at.tokens + (at.queries if positions else 0)
    reads = at.size(rows * c.width) + 8 * at.tokens  # token ids are int64
    return Row("embedding", "gather", 1, (c.vocab + positions) * c.width, 0, reads, at.size(at.tokens * c.width))


def _projections(c: Config, at: Step) -> list[Row]:
    if c.fused_qkv:
        return [_linear("attention.qkv", at, at.tokens, c.width, c.q_width + 2 * c.kv_width, c.bias)]
    widths = {"q": c.q_width, "k": c.kv_width, "v": c.kv_width}
    return [_linear(f"attention.{name}", at, at.tokens, c.width, n, c.bias) for name, n in widths.items()]


def _heads(c: Config, at: Step) -> list[Row]:
    """What happens to queries and keys between projection and attention."""
    widths = {"q": c.q_width, "k": c.kv_width}
    rows = []
    if c.qk_norm:
        for name, n in widths.items():
            reads, writes = at.size(at.tokens * n + c.head_dim), at.size(at.tokens * n)
            rows.append(Row(f"attention.{name}_norm", "norm", 1, c.head_dim, 0, reads, writes))
    if c.positions == "rope":
        for name, n in widths.items():
            angles = at.queries * c.head_dim  # cosines and sines, half a head each
            rows.append(_pointwise(f"attention/rope {name}", at, at.tokens * n + angles, at.tokens * n))
    if at.cached:
        new = 2 * at.tokens * c.kv_width
        rows.append(_pointwise("attention/cache", at, new, new, kind="move"))
    return rows


def _attention(c: Config, at: Step) -> list[Row]:
    """Fused: Q, K and V in, the output out, no score matrix in memory.  One row for each window that occurs."""
    layers = Counter(c.window_of(layer) for layer in range(c.layers))
    rows = []
    for window, count in layers.items():
        layer = c.window.index(window)
        dims = attention_dims(c, layer, at.batch, at.queries, at.keys)
        io = at.tokens * c.q_width
        reads = at.size(io + 2 * at.batch * dims.kv_len * c.kv_width)
        name = f"attention/window {window}" if window else "attention"
        rows.append(Row(name, "attention", count, 0, dims.flops // 2, reads, at.size(io)))
    return rows


def _dense(c: Config, at: Step) -> list[Row]:
    inner = at.tokens * c.ffn
    names = ("gate", "up") if c.gated else ("up",)
    return [
        *(_linear(f"ffn.{name}", at, at.tokens, c.width, c.ffn, c.bias) for name in names),
        _pointwise("ffn/silu x up" if c.gated else "ffn/gelu", at, len(names) * inner, inner),
        _linear("ffn.down", at, at.tokens, c.ffn, c.width, c.bias),
    ]


def _experts(c: Config, at: Step) -> list[Row]:
    """Router, then three grouped products over *visits* rows; no more experts are read than there are visits."""
    assert c.experts is not None  # the caller asked
    count, hidden = c.experts.count, c.experts.width
    visits = at.tokens * c.experts.active

    def grouped(name: str, k: int, n: int) -> Row:
        ends = 4 * count  # int32: where the rows of each expert end
        reads = at.size((visits * k) + min(count, visits) * k * n) + ends
        return Row(name, "matmul", 1, count * k * n, visits * k * n, reads, at.size(visits * n))

    return [
        _linear("ffn.router", at, at.tokens, c.width, count),
        grouped("ffn/gate", c.width, hidden),
        grouped("ffn/up", c.width, hidden),
        _pointwise("ffn/silu x up", at, 2 * visits * hidden, visits * hidden),
        grouped("ffn/down", hidden, c.width),
        _pointwise("ffn/sum of experts", at, visits * c.width, at.tokens * c.width),
    ]


def _output(c: Config, at: Step) -> list[Row]:
    rows = at.batch * at.logits
    head = _linear("head", at, rows, c.width, c.vocab)
    norm = [_norm("norm", c, at, rows)] if c.final_norm else []
    return [*norm, replace(head, parameters=0) if c.tied else head]
