"""Our shape functions against torch's own: shapes, strides and types, or a refusal."""

import itertools
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from frontends.shapes import SHAPES

META = "meta"
LAYOUTS = {
    "rows": torch.empty(2, 3, 4, 8, device=META),
    "by heads": torch.empty(2, 4, 3, 8, device=META).transpose(1, 2),
    "channels last": torch.empty(2, 4, 8, 3, device=META).permute(0, 3, 1, 2),
    "a slice": torch.empty(2, 3, 4, 16, device=META)[..., :8],
    "expanded": torch.empty(2, 1, 4, 8, device=META).expand(2, 3, 4, 8),
    "half": torch.empty(2, 3, 4, 8, device=META, dtype=torch.bfloat16),
    "integers": torch.empty(2, 3, 4, 8, device=META, dtype=torch.int64),
    "a vector": torch.empty(8, device=META),
    "a column": torch.empty(3, 1, 1, device=META),
    "a matrix by columns": torch.empty(8, 4, device=META).t(),
    "more axes": torch.empty(5, 2, 3, 4, 8, device=META),
    "a number": torch.empty((), device=META),
    "a slice by heads": torch.empty(2, 4, 3, 16, device=META).transpose(1, 2)[..., 8:],
    "one token": torch.empty(2, 1, 3, 8, device=META).transpose(1, 2)[..., :4],
    "one row": torch.empty(2, 3, 1, 8, device=META).transpose(1, 2).transpose(1, 2),
}
ATEN: Any = torch.ops.aten


def strides(tensor: Tensor) -> list[int]:
    """Strides of the axes that have any: of an axis of one element torch itself gives now this, now that."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def described(result: Any) -> list[Any]:
    tensors = result if isinstance(result, tuple | list) else (result,)
    return [None if each is None else (each.shape, strides(each), each.dtype) for each in tensors]


def check(func: Any, args: Sequence[Any]) -> bool:
    """Compare with torch; return whether we had an answer of our own."""
    name = func._schema.name.replace("::", ".")
    ours = SHAPES[name](args, {})
    if ours is not None:
        assert described(ours) == described(func(*args)), (name, args)
    return ours is not None


@pytest.mark.parametrize("func", [ATEN.add.Tensor, ATEN.mul.Tensor, ATEN.div.Tensor, ATEN.silu_backward.default])
def test_two_operands(func: Any) -> None:
    answered = 0
    for left, right in itertools.product(LAYOUTS.values(), repeat=2):
        answered += check(func, (left, right))
    assert answered > 20


@pytest.mark.parametrize(
    "func", [ATEN.neg.default, ATEN.silu.default, ATEN.gelu.default, ATEN.rsqrt.default, ATEN.cos.default]
)
def test_one_operand(func: Any) -> None:
    assert sum(check(func, (each,)) for each in LAYOUTS.values()) >= 8


@pytest.mark.parametrize("number", [2, 2.0, True, 1j])
def test_numbers(number: Any) -> None:
    for each in LAYOUTS.values():
        check(ATEN.mul.Tensor, (each, number))
        check(ATEN.pow.Tensor_Scalar, (each, number))


def test_cat() -> None:
    for left, right, axis in itertools.product(LAYOUTS.values(), LAYOUTS.values(), (0, 1, -1)):
        ours = SHAPES["aten.cat"](([left, right], axis), {})
        if ours is not None:
            assert described(ours) == described(torch.cat([left, right], axis))
    assert SHAPES["aten.cat"](([LAYOUTS["rows"]] * 2, -1), {}) is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_products_norms_and_losses(dtype: torch.dtype) -> None:
    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, device=META, dtype=dtype)

    x, w, b = empty(6, 8), empty(8, 4), empty(4)
    targets = torch.empty(6, device=META, dtype=torch.int64)
    assert check(ATEN.mm.default, (x, w))
    assert check(ATEN.mm.default, (x, empty(4, 8).t()))
    assert check(ATEN.addmm.default, (b, x, w))
    assert check(ATEN.embedding.default, (x, targets.view(2, 3)))
    assert check(ATEN.zeros_like.default, (x,))
    for arguments in ((x, [0], True), (x, [-1], False), (x, [0, 1], True), (x, None, False)):
        assert check(ATEN.sum.dim_IntList, arguments)
    assert check(ATEN._softmax.default, (x, -1, False))
    assert check(ATEN._log_softmax.default, (x, 1, False))
    assert check(ATEN._log_softmax_backward_data.default, (x, x, 1, dtype))
    assert check(ATEN.nll_loss_forward.default, (x, targets, None, 1, -100))
    assert check(ATEN.nll_loss_backward.default, (empty(), x, targets, None, 1, -100, empty()))
    for weight in (empty(8), None):
        assert check(ATEN.native_layer_norm.default, (x, [8], weight, weight, 1e-5))
        row = torch.empty(6, 1, device=META)
        mask = [True, weight is not None, weight is not None]
        assert check(ATEN.native_layer_norm_backward.default, (x, x, [8], row, row, weight, weight, mask))


@pytest.mark.parametrize("ends", [(5,), (2, 7), (0,)])
def test_positions(ends: tuple[int, ...]) -> None:
    for dtype in (None, torch.int32, torch.float32):
        given = {"dtype": dtype, "device": META}
        assert described(SHAPES["aten.arange"](ends, given)) == described(torch.arange(*ends, **given))  # type: ignore[call-overload]
    assert SHAPES["aten.arange"]((5.0,), {"device": META}) is None


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("aten.mm", (torch.empty(2, 3, device=META), torch.empty(4, 5, device=META))),
        ("aten.addmm", (torch.empty(7, device=META), torch.empty(2, 3, device=META), torch.empty(3, 5, device=META))),
        ("aten.add", (torch.empty(2, 3, device=META), torch.empty(4, device=META))),
        ("aten.native_layer_norm", (torch.empty(2, 3, device=META), [4], None, None, 1e-5)),
        ("aten.cat", ([torch.empty(2, 3, device=META), torch.empty(2, device=META)], 0)),
    ],
)
def test_what_does_not_fit_is_left_to_torch(name: str, args: Any) -> None:
    assert SHAPES[name](args, {}) is None


def test_tracing_loads_no_compiler() -> None:
    code = (
        "import sys, torch\n"
        "from frontends import building, trace_training_step\n"
        "from tests.frontends.models import Gpt, tokens\n"
        "with building():\n"
        "    model = Gpt(1)\n"
        "assert len(trace_training_step(model, tokens(), dtype='bf16')) > 40\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, cwd=Path(__file__).parents[2])
