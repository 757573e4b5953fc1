"""The engine's own step for the simulator: what its operators cost, and its traces on the meta device.

A trace runs `Runner` itself, without weights, over caches in which every sequence has one page as long as its context:
shapes are all that a trace sees, and the room in the tables is what attention is taken to look back on.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from frontends import building, trace
from frontends.rules import Call, Work, bytes_of, rule
from simulator.dims import AttentionDims, MatmulDims, RowDims
from simulator.dtypes import DType
from simulator.graph import OperatorGraph, OpKind, Workload
from workloads.gpt.config import Config
from workloads.gpt.model import Model
from workloads.inference.batch import Batch
from workloads.inference.cache import Pages, make_pages
from workloads.inference.model import Dense, Runner

NAMESPACE = "xpusim_inference"
Columns = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]  # the tensors of a `Batch`
_NORM_FLOPS = 4  # of an element: square, sum, scale, weight
_GATE_FLOPS = 4  # of an element of the result: negate, add, divide, multiply, the exponential beside them
_ROTATE_FLOPS = 3  # of an element: two multiplies and one add


@rule(f"{NAMESPACE}::linear")
def linear(call: Call) -> Work:
    """Rows of x times all outputs; packed integers, scales and zeros are read once."""
    x, data = call.args[:2]
    dims = MatmulDims(x.shape[0], data.shape[0], x.shape[1])
    return Work(OpKind.MATMUL, dims.flops, dims=dims, dtype=x.dtype)


@rule(f"{NAMESPACE}::attention")
def attention(call: Call) -> Work:
    """Each sequence looks back on all positions that its table has room for; runs of tokens are equally long."""
    q, keys, _, tables, _, _, decodes, longest = call.args[:8]
    sequences, positions = tables.shape[0], tables.shape[1] * keys.shape[1]
    new = -(-q.shape[0] // sequences) if longest else 1
    heads, head = q.shape[1:]
    dims = AttentionDims(
        sequences, heads, keys.shape[2], new, positions, head, head, causal=new > 1 and decodes < sequences
    )
    read = 2 * sequences * positions * keys.shape[2] * head * keys.element_size()
    return Work(OpKind.ATTENTION, dims.flops, bytes_of((q,)) + read, dims=dims, dtype=q.dtype)


@rule(f"{NAMESPACE}::add_norm", f"{NAMESPACE}::norm")
def add_norm(call: Call) -> Work:
    """One pass over x (and y), a row in one block; the sum is one FLOP more."""
    x = call.args[0]
    each = _NORM_FLOPS + (call.target.endswith("add_norm"))
    return Work(OpKind.REDUCTION, each * x.numel(), dims=RowDims(x.shape[0], x.shape[1]))


@rule(f"{NAMESPACE}::place")
def place(call: Call) -> Work:
    """Queries, keys and values are read and written once, keys also to the cache; rotations of T positions are read."""
    qkv, keys, _, cos, _, positions, _, q_norm = call.args[:8]
    q, k = call.outputs[:2]
    rotations = 0 if cos is None else 2 * positions.numel() * cos.shape[1] * cos.element_size()
    indices = 2 * bytes_of((positions,))
    gains = 0 if q_norm is None else 2 * bytes_of((q_norm,))
    each = (0 if cos is None else _ROTATE_FLOPS) + (0 if q_norm is None else _NORM_FLOPS)
    return Work(
        OpKind.REDUCTION,
        each * (q.numel() + k.numel()),
        bytes_of((qkv,)) + rotations + indices + gains,
        bytes_of((q, k)) + 2 * k.numel() * keys.element_size(),
        RowDims(*qkv.shape),
    )


@rule(f"{NAMESPACE}::gate")
def gate(call: Call) -> Work:
    """Both halves are read once, and half as much is written."""
    return Work(OpKind.POINTWISE, _GATE_FLOPS * call.outputs[0].numel())


class Step(Runner):
    """A `Runner` whose weights and tables a trace finds in their places."""

    def __init__(self, config: Config, context: int) -> None:
        with building():
            super().__init__(Model(config, context=context), context=context)
        for module in self.linears():
            assert isinstance(module, Dense)
            module.weight = nn.Parameter(module.weight, requires_grad=False)
            module.bias = None if module.bias is None else nn.Parameter(module.bias, requires_grad=False)
        if config.tied:
            self.head.weight = self.embedding.weight
        for name, table in zip(("cos", "sin"), self.rotation or (), strict=False):
            self.register_buffer(name, table)

    def forward(self, columns: Columns, prompt: bool, cache: Sequence[Pages]) -> Tensor:  # type: ignore[override]
        """Logits of a step of single tokens, or of one *prompt*."""
        self.rotation = None if self.rotation is None else (self.get_buffer("cos"), self.get_buffer("sin"))
        tokens = columns[0].shape[0]
        decodes, longest = (0, tokens) if prompt else (tokens, 0)
        return super().forward(Batch(*columns, decodes, longest, prompt), cache)


def step_trace(config: Config, dtype: str = "bf16") -> Callable[[str, int, int], OperatorGraph]:
    """Return the traces of *config* that `simulator.serving.family.family` takes.

    ``decode``: one token of each of *batch* sequences at a context of *length*; ``prefill``: one prompt of *length*.
    """

    def traced(phase: str, batch: int, length: int) -> OperatorGraph:
        prompt = phase == "prefill"
        assert batch == 1 or not prompt, "prompts are traced one at a time"
        step = Step(config, length)
        with building():
            cache = make_pages(config, batch, length, torch.float32, torch.device("meta"))
            columns = _columns(batch, length if prompt else 1)
        tokens = columns[0].shape[0]
        workload = Workload(config.name, phase, batch, tokens=tokens, context=length, dtype=DType(dtype))
        return trace(step, (columns, prompt), {"cache": cache}, workload=workload, dtype=dtype)

    return traced


def _columns(sequences: int, new: int) -> Columns:
    """The tensors of a step in which each of *sequences* brings *new* tokens and samples the last one."""
    tokens, positions, slots = (torch.zeros(sequences * new, dtype=torch.int32) for _ in range(3))
    tables = torch.zeros((sequences, 1), dtype=torch.int32)
    starts = torch.zeros(sequences + 1, dtype=torch.int32)
    lengths, samples = (torch.zeros(sequences, dtype=torch.int32) for _ in range(2))
    return tokens, positions, slots, tables, starts, lengths, samples
