"""The torch operator: gradients, shapes, what tracing makes of it, and what it refuses."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from frontends import trace, trace_training_step
from simulator.dims import AttentionDims
from simulator.dtypes import DType
from simulator.errors import UsageError
from simulator.graph import OperatorGraph, OpKind
from workloads.flash_attention import attention, attention_with_logsum
from workloads.flash_attention import operator as flash
from workloads.flash_attention.graphs import Fused, graph_of


class Layer(nn.Module):
    """Projections around grouped attention of 4 heads of 64 over 2 key heads."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(256, 512, bias=False)
        self.out = nn.Linear(256, 256, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return [batch, length, 256]."""
        parts = self.qkv(x).split([256, 128, 128], -1)
        q, k, v = (each.reshape(*x.shape[:2], -1, 64).transpose(1, 2) for each in parts)
        result: Tensor = self.out(attention(q, k, v, causal=True).transpose(1, 2).flatten(2))
        return result


def traced(train: bool) -> OperatorGraph:
    """The layer on 2 x 100 tokens, on the meta device."""
    with torch.device("meta"):
        module, x = Layer(), torch.empty(2, 100, 256)
    if train:
        return trace_training_step(module, (x,), loss=lambda out, *_: out.float().sum(), dtype="bf16")
    return trace(module, (x,), dtype="bf16")


def test_a_model_that_calls_it_is_traced() -> None:
    graph = traced(train=False)
    assert [op.target for op in graph] == ["aten.mm", "xpusim_flash.forward", "aten.mm"]
    assert graph.uncovered == {}
    fused = graph.operators[1]
    # 2 sequences x 4 heads x (1 + ... + 100) pairs x (2 + 2) x 64
    assert fused.flops == 2 * 4 * 5050 * 256
    assert (fused.kind, fused.dims) == (OpKind.ATTENTION, AttentionDims(2, 4, 2, 100, 100, 64, 64, causal=True))
    # Q, K and V: 200 rows of 512 numbers of 2 bytes; output 200 x 256 x 2 and 2 x 4 x 100 log-sums of 4 bytes
    assert (fused.reads, fused.writes) == (200 * 512 * 2, 200 * 256 * 2 + 2 * 4 * 100 * 4)


def test_a_training_step_has_the_backward_operator() -> None:
    (fused,) = [op for op in traced(train=True) if op.target == "xpusim_flash.backward"]
    assert fused.flops == 2 * 4 * 5050 * 640  # five products: (2 x 5) x 64 a pair
    assert fused.dims == AttentionDims(2, 4, 2, 100, 100, 64, 64, causal=True, backward=True)
    # read: gradient and output 200 x 256, Q, K and V 200 x 512, log-sums; written: dQ, dK and dV
    assert fused.reads == 2 * 200 * 256 * 2 + 200 * 512 * 2 + 800 * 4
    assert fused.writes == 200 * 512 * 2


def test_flops_equal_those_of_the_flop_counter() -> None:
    dims = AttentionDims(2, 4, 4, 96, 96, 64, 64)
    q, k, v = (torch.empty(2, 4, 96, 64, device="meta") for _ in range(3))
    with FlopCounterMode(display=False) as counter:
        F.scaled_dot_product_attention(q, k, v)
    (fused,) = graph_of(Fused(), dims, DType.BF16)
    assert fused.flops == counter.get_total_flops() == 2 * 4 * 96 * 96 * 256


def test_gradients_of_the_operator() -> None:
    made = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(1, heads, 5, 3, generator=made, dtype=torch.float64, requires_grad=True) for heads in (4, 2, 2)
    )
    assert torch.autograd.gradcheck(lambda *args: attention(args[0], args[1], args[2], causal=True), (q, k, v))
    torch.library.opcheck(flash.forward, (q, k, v, True, 0.5, "reference"))


def test_layout_of_the_result_is_that_of_the_queries() -> None:
    rows_first = torch.randn(2, 30, 4, 64).transpose(1, 2)
    out, logsum = attention_with_logsum(rows_first, rows_first, rows_first)
    assert out.stride() == rows_first.stride()
    assert (logsum.shape, logsum.dtype) == ((2, 4, 30), torch.float32)
    assert torch.allclose(out, attention(*three(rows_first.contiguous())), atol=1e-6)


def empty(*shape: int, dtype: torch.dtype = torch.float16) -> Tensor:
    """A tensor of zeros."""
    return torch.zeros(shape, dtype=dtype)


def three(tensor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value alike."""
    return tensor, tensor, tensor


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: attention(empty(2, 8, 64), empty(2, 8, 64), empty(2, 8, 64)),
            "attention: needs three tensors [batch, heads, length, head size], got query 2x8x64, key 2x8x64, "
            "value 2x8x64",
        ),
        (
            lambda: attention(empty(1, 2, 8, 64), empty(1, 2, 8, 64, dtype=torch.bfloat16), empty(1, 2, 8, 64)),
            "attention: query, key and value differ in type: fp16, bf16, fp16",
        ),
        (
            lambda: attention(*three(empty(1, 2, 8, 64, dtype=torch.int32))),
            "attention: type int32; needs fp16, bf16, fp32 and fp64",
        ),
        (
            lambda: attention(empty(1, 2, 8, 64), empty(1, 2, 0, 64), empty(1, 2, 0, 64)),
            "attention: key 1x2x0x64 has an empty sequence; needs at least 1 along each axis",
        ),
        (
            lambda: attention(empty(0, 2, 8, 64), empty(0, 2, 8, 64), empty(0, 2, 8, 64)),
            "attention: query 0x2x8x64 has no batch; needs at least 1 along each axis",
        ),
        (
            lambda: attention(empty(1, 2, 8, 64), empty(1, 2, 8, 64), empty(1, 2, 9, 64)),
            "attention: batch, key length or head size do not fit: query 1x2x8x64, key 1x2x8x64, value 1x2x9x64",
        ),
        (
            lambda: attention(empty(1, 6, 8, 64), empty(1, 4, 8, 64), empty(1, 4, 8, 64)),
            "attention: 6 query heads are no multiple of 4 key heads",
        ),
        (
            lambda: attention(empty(1, 2, 9, 64), empty(1, 2, 8, 64), empty(1, 2, 8, 64), causal=True),
            "attention: 9 queries under a causal mask need at least as many keys, got 8",
        ),
        (
            lambda: attention(empty(1, 2, 8, 64), empty(1, 2, 64, 8).mT, empty(1, 2, 8, 64)),
            "attention: the rows of key are not contiguous: stride 8 along the head size, needs 1; call "
            "key.contiguous()",
        ),
        (
            lambda: attention(*three(empty(1, 2, 8, 64)), scale=-1.0),
            "attention: scale -1; needs a positive number",
        ),
        (
            lambda: attention(*three(empty(1, 2, 8, 64)), backend="cuda"),
            "attention: no backend 'cuda'; backends: auto, triton, reference",
        ),
        (
            lambda: attention(empty(1, 2, 8, 64), empty(1, 2, 8, 64).to("meta"), empty(1, 2, 8, 64)),
            "attention: query, key and value are on different devices: cpu, meta, cpu",
        ),
    ],
)
def test_bad_input(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        call()
    assert str(caught.value) == message


def test_kernels_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(flash, "find_spec", lambda _name: object())
    with pytest.raises(UsageError) as caught:
        attention(*three(empty(1, 2, 8, 64)), backend="triton")
    assert str(caught.value) == (
        "attention: the Triton kernels need a CUDA device, and the tensors are on 'cpu'; backend='reference' computes "
        "the same without"
    )


def test_kernels_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flash, "find_spec", lambda _name: None)
    with pytest.raises(UsageError) as caught:
        attention(*three(empty(1, 2, 8, 64)), backend="triton")
    assert str(caught.value) == (
        "attention: Triton is not installed (it exists for Linux only: pip install 'xpusim[triton]'); "
        "backend='reference' computes the same without"
    )
    assert torch.isfinite(attention(*three(empty(1, 2, 8, 64)))).all()  # 'auto' takes the reference


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (
            empty(1, 2, 8, 80),
            "attention: the Triton kernels have no head size 80; they have 64, 96 and 128; backend='reference' takes "
            "any",
        ),
        (
            empty(1, 2, 8, 64, dtype=torch.float32),
            "attention: the Triton kernels have no type fp32; they have fp16 and bf16; backend='reference' takes fp32 "
            "and fp64 too",
        ),
        (
            empty(1, 2, 8, 64, dtype=torch.bfloat16),
            "attention: Triton's interpreter multiplies bf16 as if it were integers; use fp16 with it",
        ),
    ],
)
def test_what_the_kernels_lack(tensor: Tensor, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(flash, "find_spec", lambda _name: object())
    with pytest.raises(UsageError) as caught:
        attention(tensor, tensor, tensor, backend="triton")
    assert str(caught.value) == message
