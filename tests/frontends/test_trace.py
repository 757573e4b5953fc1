"""What a trace leaves alone, what it sees of the host, and what it knows of constants."""

import gc
import resource
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from frontends import Call, Work, rule, trace, trace_training_step
from simulator.dtypes import DType
from simulator.errors import TraceError
from simulator.graph import OpKind, Role, Workload
from tests.frontends.models import Function, Gpt, Mlp, tokens

X = torch.ones(4, 8)


def test_an_mlp_by_hand() -> None:
    graph = trace(Mlp(), (X,), dtype="bf16")
    up, act, down = graph
    assert [op.target for op in graph] == ["aten.addmm", "aten.silu", "aten.mm"]
    # 4 x 8 -> 32: 2 x 4 x 8 x 32 FLOP; x 32, weight 256, bias 32 elements in, 128 out, two bytes each
    assert (up.flops, up.reads, up.writes) == (2048, 2 * (32 + 256 + 32), 2 * 128)
    assert (act.kind, act.flops, act.reads, act.writes) == (OpKind.POINTWISE, 4 * 128, 256, 256)
    assert (down.flops, down.reads, down.writes, down.deps) == (2048, 2 * (128 + 256), 2 * 32, (act.id,))
    assert graph.workload == Workload("Mlp", batch=4, tokens=4, dtype=DType.BF16)


def test_the_users_module_and_arguments_stay_as_they_were() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
    module[1].eval()
    before = {name: (tensor, tensor.clone()) for name, tensor in module.state_dict(keep_vars=True).items()}
    x = X.clone()
    trace(module, (x,), dtype="bf16")
    trace_training_step(module, (x,), dtype="bf16")
    for name, tensor in module.state_dict(keep_vars=True).items():
        assert tensor is before[name][0]
        assert torch.equal(tensor, before[name][1])
        assert tensor.grad is None
    assert [child.training for child in module] == [True, False, True]
    assert torch.equal(x, X)


def test_a_module_that_fails_stays_as_it_was() -> None:
    module = Mlp()
    weight = module.up.weight
    with pytest.raises(TraceError):
        trace(module, (torch.ones(4, 9),))
    assert module.up.weight is weight
    assert torch.nn.functional.scaled_dot_product_attention.__module__ != "frontends.fused"


def test_two_traces_are_equal() -> None:
    first, second = (trace_training_step(Gpt(2), tokens()) for _ in range(2))
    assert first == second


def test_meta_and_real_modules_give_the_same_graph() -> None:
    with torch.device("meta"):
        meta = Gpt(2)
    assert trace(meta, tokens()) == trace(Gpt(2), tokens())


def test_no_weight_memory_is_taken() -> None:
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(16384, 16384) for _ in range(16)))  # 17 GB in float32
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    trace_training_step(model, (torch.empty(4, 16384, device="meta"),))
    gc.collect()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB on Linux, B on macOS


def test_calls_of_the_host_include_views() -> None:
    def program(x: Tensor) -> Tensor:
        y = x.view(2, 16).t().unsqueeze(0)  # three views
        y = y + 1  # and the operator: four
        return y * 2  # one

    assert [op.dispatches for op in trace(Function(program), (X,))] == [4, 1]


def test_calls_that_only_ask_for_shapes_do_not_count() -> None:
    def program(x: Tensor) -> Tensor:
        assert x.size(0) == x.shape[0] == 4
        assert x.dim() == 2
        return x.view(32) + len(x)

    assert [op.dispatches for op in trace(Function(program), (X,))] == [2]


CONSTANTS: dict[str, Callable[[Tensor], Any]] = {
    "truth of a mask": lambda x: x + 1 if torch.ones(4, dtype=torch.bool).all() else None,
    "a position": lambda x: x[:, int(torch.arange(4)[-1])] + 1,
    "a list": lambda x: x + torch.tensor([1, 2]).tolist()[1],
    "a scalar tensor": lambda x: x + torch.tensor(3.0).item(),
    "after a change in place": lambda x: x + int(torch.zeros(2).fill_(2).add_(1)[0]),
    "through a view": lambda x: x + int(torch.arange(6).view(2, 3).t()[2, 1]),
    "a shape that follows": lambda x: x[:, torch.nonzero(torch.arange(8) > 5).flatten()] + 1,
    "a mask that is known": lambda x: x[torch.arange(4) > 1] + 1,
    "numpy": lambda x: x + float(torch.arange(3).numpy().sum()),
    "from numpy": lambda x: x + torch.from_numpy(np.ones(8, dtype=np.float32)).to(x.device),
    "another device": lambda x: x.to("cuda") + torch.zeros(8, device="cuda").cuda().cpu(),
    "comparison": lambda x: x + 1 if torch.equal(torch.arange(3), torch.tensor([0, 1, 2])) else None,
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_values_that_no_data_goes_into_are_known(name: str) -> None:
    graph = trace(Function(CONSTANTS[name]), (X,))
    assert graph.operators[-1].target in ("aten.add", "aten.index")
    assert graph.uncovered == {}


def test_a_constant_loses_its_value_when_data_flows_in() -> None:
    def program(x: Tensor) -> int:
        kept = torch.zeros(8)
        kept[:4] = x[0, :4]
        return int(kept[7])  # untouched, but nobody looks that closely

    with pytest.raises(TraceError, match=r"^data-dependent control flow at .*: 'return int\(kept\[7\]\)"):
        trace(Function(program), (X,))


def test_constants_still_cost_what_eager_costs() -> None:
    graph = trace(Function(lambda x: x + torch.arange(8)), (X,))
    assert [op.target for op in graph] == ["aten.arange", "aten.add"]


def test_a_tensor_that_the_module_keeps_beside_its_buffers() -> None:
    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.offset = torch.ones(8)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.offset

    graph = trace(Keeps(), (X,))
    assert graph.bytes_of(Role.BUFFER) == 32


def test_caches_are_known_by_their_place() -> None:
    cache = torch.ones(1, 2, 3, 4)

    def program(x: Tensor, caches: Any, *, past: Tensor, mask: Tensor, plain: Tensor) -> Any:
        return x + caches["k"][0].sum() + past.sum() + mask.sum() + plain.sum()

    kwargs = {"past": cache.clone(), "mask": torch.ones(1, 1, 3, dtype=torch.bool), "plain": cache.clone()}
    graph = trace(Function(program), (X, {"k": [cache]}), kwargs)
    assert {s.name: s.role.value for s in graph.storages if s.role.resident} == {
        "args[0]": "input", "args[1].k[0]": "cache", "past": "cache", "mask": "input", "plain": "input",
    }  # fmt: skip


def test_dtype_leaves_integers_alone() -> None:
    graph = trace(Gpt(1), tokens(), dtype="bf16")
    lookup = next(op for op in graph if op.target == "aten.embedding")
    assert [tensor.dtype for tensor in lookup.inputs] == ["bf16", "int64"]
    assert graph.workload.dtype is DType.BF16
    assert (graph.workload.batch, graph.workload.tokens) == (2, 32)


def test_tf32_is_float32_in_memory_and_tf32_in_matrix_products() -> None:
    graph = trace(Mlp(), (X,), dtype="tf32")
    assert [op.dtype for op in graph] == ["tf32", "fp32", "tf32"]
    assert {tensor.dtype for op in graph for tensor in op.inputs} == {DType.FP32}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when it loads its compiler
def test_a_compiled_module_is_traced_as_if_it_were_not() -> None:
    module = torch.compile(Mlp())
    assert isinstance(module, nn.Module)
    assert [op.target for op in trace(module, (X,))] == ["aten.addmm", "aten.silu", "aten.mm"]


def test_a_rule_for_an_operator_of_the_user() -> None:
    # A custom kernel needs a shape function (register_fake) to be traced, and a rule to be costed.
    @torch.library.custom_op("xpusim_test::scaled_add", mutates_args=())
    def scaled_add(a: Tensor, b: Tensor, scale: float) -> Tensor:
        return a + scale * b

    @scaled_add.register_fake
    def _(a: Tensor, b: Tensor, scale: float) -> Tensor:
        return torch.empty_like(a)

    program = Function(lambda a, b: scaled_add(a, b, 2.0))
    assert trace(program, (X, X.clone())).uncovered == {"xpusim_test.scaled_add": 1}

    @rule("xpusim_test::scaled_add")
    def cost(call: Call) -> Work:
        return Work(OpKind.POINTWISE, flops=2 * call.elements)

    graph = trace(program, (X, X.clone()))
    (op,) = graph
    assert (op.target, op.kind, op.flops, op.reads, op.writes) == (
        "xpusim_test.scaled_add", OpKind.POINTWISE, 64, 256, 128,
    )  # fmt: skip
    assert graph.uncovered == {}

    @rule("xpusim_test::scaled_add")
    def wrong(call: Call) -> Work:
        raise LookupError("no such size")

    with pytest.raises(TraceError) as caught:
        trace(program, (X, X.clone()))
    assert str(caught.value) == (
        "the rule for xpusim_test.scaled_add raised LookupError: no such size (inputs (4, 8), (4, 8))"
    )


LAYERS: dict[str, tuple[nn.Module, tuple[Tensor, ...]]] = {
    "lstm": (nn.LSTM(8, 16, batch_first=True), (X[None],)),
    "encoder": (nn.TransformerEncoderLayer(8, 2, batch_first=True), (X[None],)),
    "embedding bag": (nn.EmbeddingBag(10, 4), (torch.zeros(4, 8, dtype=torch.int64),)),
    "activations": (nn.Sequential(nn.Linear(8, 8), nn.PReLU(), nn.ELU(), nn.Mish(), nn.Hardswish(), nn.Tanh()), (X,)),
    "images": (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)),
        (torch.ones(2, 3, 16, 16),),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_torch_are_covered_both_ways(name: str) -> None:
    module, args = LAYERS[name]
    assert trace(module, args).uncovered == {}
    assert trace_training_step(module, args).uncovered == {}


def test_operators_of_other_kinds_are_covered() -> None:
    def program(x: Tensor) -> Tensor:
        x = F.group_norm(F.conv2d(x, torch.ones(8, 4, 3, 3), padding=1), 4)
        x = F.max_pool2d(F.batch_norm(x, torch.zeros(8), torch.ones(8)), 2)
        x = F.avg_pool2d(F.interpolate(x, scale_factor=2.0), 2)
        return F.pad(x, (1, 1)).flatten(1).softmax(-1).topk(3)[0]

    assert trace(Function(program), (torch.ones(2, 4, 8, 8),)).uncovered == {}


def test_tokens_of_embedded_sequences_are_their_positions() -> None:
    assert trace(nn.Linear(8, 8), (torch.ones(2, 16, 8),)).workload.tokens == 32
    assert trace(nn.Linear(8, 8), (torch.ones(5, 8),)).workload.tokens == 5
