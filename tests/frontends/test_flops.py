"""FLOPs against torch's own counter, which looks at real tensors and shares no code with the rules."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from frontends import trace, trace_training_step
from simulator.dims import AttentionDims, MatmulDims
from simulator.graph import MATRIX_KINDS, OperatorGraph, OpKind
from tests.frontends.models import Function, Gpt, Mlp, tokens


def counted(run: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        run()
    return int(counter.get_total_flops())


def matrix_flops(graph: OperatorGraph) -> int:
    return sum(op.flops for op in graph if op.kind in MATRIX_KINDS)


PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "mm": (torch.mm, ((3, 5), (5, 7))),
    "bmm": (torch.bmm, ((2, 3, 5), (2, 5, 7))),
    "addmm": (torch.addmm, ((7,), (3, 5), (5, 7))),
    "baddbmm": (torch.baddbmm, ((2, 3, 7), (2, 3, 5), (2, 5, 7))),
    "matmul 3 x 2": (torch.matmul, ((2, 3, 5), (5, 7))),
    "matmul 4 x 4": (torch.matmul, ((2, 4, 3, 5), (2, 4, 5, 7))),
    "linear 4-D": (F.linear, ((2, 4, 3, 5), (7, 5), (7,))),
    "einsum": (lambda a, b: torch.einsum("bik,bkj->bij", a, b), ((2, 3, 5), (2, 5, 7))),
    "conv1d": (F.conv1d, ((2, 4, 9), (6, 4, 3))),
    "conv2d": (lambda x, w: F.conv2d(x, w, stride=2, padding=1), ((2, 4, 9, 9), (6, 4, 3, 3))),
    "conv2d depthwise": (lambda x, w: F.conv2d(x, w, groups=4), ((2, 4, 9, 9), (4, 1, 3, 3))),
    "conv3d": (F.conv3d, ((2, 4, 5, 5, 5), (6, 4, 3, 3, 3))),
    "conv_transpose2d": (F.conv_transpose2d, ((2, 4, 9, 9), (4, 6, 3, 3))),
    "attention": (F.scaled_dot_product_attention, ((2, 4, 6, 8), (2, 4, 10, 8), (2, 4, 10, 8))),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_count_as_torch_counts(name: str) -> None:
    function, shapes = PRODUCTS[name]
    tensors = [torch.ones(shape) for shape in shapes]
    graph = trace(Function(function), tensors)
    expected = counted(lambda: function(*tensors))
    assert matrix_flops(graph) == expected > 0
    assert graph.uncovered == {}


@pytest.mark.parametrize("name", PRODUCTS)
def test_their_gradients_count_as_torch_counts(name: str) -> None:
    function, shapes = PRODUCTS[name]
    weights = [nn.Parameter(torch.ones(shape)) for shape in shapes[1:]]

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterList(weights)

        def forward(self, x: Tensor) -> Any:
            return function(x, *self.weights)

    x = torch.ones(shapes[0], requires_grad=True)
    graph = trace_training_step(Layer(), (x,), optimizer=None)
    forward = counted(lambda: function(x, *weights))
    if name == "attention":
        # the fused backward does five products where the forward does two: twice 4 heads x 60 pairs x 16 FLOP x 5
        assert matrix_flops(graph) == forward + 2 * 4 * 60 * 16 * 5
    elif "depthwise" in name:
        # torch's counter forgets the groups of the weight's gradient; by symmetry all three products are the same size
        assert matrix_flops(graph) == 3 * forward
    else:
        assert matrix_flops(graph) == counted(lambda: function(x, *weights).sum().backward())


def test_a_model_counts_as_torch_counts_but_for_the_causal_half() -> None:
    # attention of torch's counter: 4 x batch 2 x heads 4 x 16 x 16 pairs x 16 columns = 131072 a layer;
    # causal leaves 136 of 256 pairs
    model, full, causal = Gpt(3), 131_072, 131_072 * 136 // 256
    expected = counted(lambda: model(*tokens()))
    assert matrix_flops(trace(model, tokens())) == expected - 3 * (full - causal)


def test_a_training_step_is_three_forwards_of_its_linear_layers() -> None:
    model = Mlp()
    x = torch.ones(4, 8)
    # forward 2 x 4 x 8 x 32 twice; backward gradients of both weights, and of the hidden layer but not of x
    graph = trace_training_step(model, (x,))
    assert matrix_flops(graph) == 2 * 4 * 8 * 32 * (2 + 3)
    assert matrix_flops(graph) == counted(lambda: model(x).sum().backward())


def test_expert_products_read_the_experts_that_are_used() -> None:
    # 3 rows of 16 columns over 8 experts [16, 32]: 2 x 3 x 16 x 32 FLOP; 3 experts of 1024 B and the rows' 96 B
    rows, experts = torch.ones(3, 16, dtype=torch.bfloat16), torch.ones(8, 16, 32, dtype=torch.bfloat16)
    offsets = torch.ones(8, dtype=torch.int32)
    graph = trace(Function(lambda a, b, offs: torch._grouped_mm(a, b, offs=offs)), (rows, experts, offsets))
    (op,) = graph
    assert op.dims == MatmulDims(m=3, n=32, k=16, groups=8)
    assert op.flops == 2 * 3 * 16 * 32
    assert op.reads == 3 * 1024 + 96 + 8 * 4


def test_fp8_products_read_one_byte_an_element() -> None:
    a, b = torch.ones(16, 32).to(torch.float8_e4m3fn), torch.ones(64, 32).to(torch.float8_e4m3fn).t()
    scale = torch.ones(())

    def product(a: Tensor, b: Tensor, scale: Tensor) -> Tensor:
        return torch._scaled_mm(a, b, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)

    (op,) = trace(Function(product), (a, b, scale))
    assert (op.flops, op.reads, op.writes) == (2 * 16 * 32 * 64, 16 * 32 + 32 * 64 + 4, 16 * 64 * 2)
    assert op.dtype == "fp8"


def test_grouped_query_attention_is_one_operator() -> None:
    q, kv = torch.ones(1, 8, 4, 16), torch.ones(1, 2, 4, 16)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    (op,) = trace(Function(attend), (q, kv, kv.clone()))
    assert op.kind is OpKind.ATTENTION
    assert op.dims == AttentionDims(1, 8, 2, 4, 4, 16, 16, causal=True)
    # 8 heads x (1 + 2 + 3 + 4) pairs x 4 x 16
    assert op.flops == 8 * 10 * 64
    # q 512 elements, k and v 128 each; the output and one float32 log-sum for each of 32 rows
    assert (op.reads, op.writes) == ((512 + 2 * 128) * 4, 512 * 4 + 32 * 4)


def test_attention_inside_torch_itself_is_found() -> None:
    layer = nn.MultiheadAttention(16, 4, batch_first=True)
    x = torch.ones(2, 5, 16)
    graph = trace(Function(lambda x: layer(x, x, x, need_weights=False)), (x,))
    assert [op.kind for op in graph].count(OpKind.ATTENTION) == 1


@pytest.mark.parametrize("layers", [1, 2])
def test_each_layer_adds_the_same(layers: int) -> None:
    graphs = [trace_training_step(Gpt(layers + more), tokens()) for more in range(3)]
    for measure in ("flops", "reads", "writes"):
        totals = [sum(getattr(op, measure) for op in graph if op.target != "adamw") for graph in graphs]
        assert totals[2] - totals[1] == totals[1] - totals[0] > 0, measure


@pytest.mark.parametrize(
    ("m", "n", "k"), [(0, 7, 5), (3, 0, 5), (3, 7, 0)], ids=["no rows", "no columns", "nothing to add up"]
)
def test_an_empty_product_reads_nothing(m: int, n: int, k: int) -> None:
    graph = trace(Function(torch.mm), (torch.ones(m, k), torch.ones(k, n)))
    (op,) = graph.operators
    assert (op.flops, op.reads, op.writes) == (0, 0, 4 * m * n)


def test_a_complex_product_takes_four_real_ones() -> None:
    # (a + bi)(c + di): four multiplications and four additions for each of 3 x 5 x 7 terms
    graph = trace(
        Function(torch.mm), (torch.ones(3, 5, dtype=torch.complex64), torch.ones(5, 7, dtype=torch.complex64))
    )
    assert matrix_flops(graph) == 8 * 3 * 5 * 7
