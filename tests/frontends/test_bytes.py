"""Bytes of single operators, worked out by hand."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from frontends import trace
from frontends.rules import touched
from simulator.graph import Operator, OpKind, Role
from tests.frontends.models import Function

X = torch.ones(4, 8)  # 128 B
IDS = torch.zeros(3, dtype=torch.int64)  # 24 B


def only(function: Callable[..., Any], *args: Tensor) -> Operator:
    graph = trace(Function(function), args)
    assert graph.uncovered == {}
    (op,) = graph
    return op


CASES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], int, int]] = {
    # name: program, arguments, bytes read, bytes written
    "sum of two": (lambda a, b: a + b, (X, X.clone()), 256, 128),
    "a tensor with itself": (lambda a: a * a, (X,), 128, 128),
    "a row for all": (lambda a, b: a + b, (X, torch.ones(8)), 160, 128),
    "an expanded tensor": (lambda a: a.expand(16, 4, 8) + 1, (X,), 128, 16 * 128),
    "a slice": (lambda a: a[:, :2] * 2, (X,), 32, 32),
    "in place": (lambda a: a.add_(1), (X,), 128, 128),
    "filled in place": (lambda a: a.zero_(), (X,), 0, 128),
    "a slice written": (lambda a, b: a[1:2].copy_(b), (X, torch.ones(8)), 32, 32),
    "a cast": (lambda a: a.to(torch.bfloat16), (X,), 128, 64),
    "zeros like": (torch.zeros_like, (X,), 0, 128),
    "a comparison": (lambda a: a > 0, (X,), 128, 32),
    "rows of a table": (nn.functional.embedding, (IDS, torch.ones(1000, 8)), 24 + 96, 96),
    "rows by index": (lambda t, i: t[i], (torch.ones(1000, 8), IDS), 24 + 96, 96),
    "index_select": (lambda t, i: t.index_select(0, i), (torch.ones(1000, 8), IDS), 24 + 96, 96),
    "gather": (lambda t, i: t.gather(0, i), (X, torch.zeros(2, 8, dtype=torch.int64)), 128 + 64, 64),
    "rows put": (lambda t, i, v: t.index_put_((i,), v), (torch.ones(1000, 8), IDS, torch.ones(3, 8)), 24 + 96, 96),
    "one value put": (lambda t, i, v: t.index_put_((i,), v), (torch.ones(9, 8), IDS, torch.ones(())), 24 + 4, 96),
    "rows copied": (lambda t, i, v: t.index_copy_(0, i, v), (torch.ones(9, 8), IDS, torch.ones(3, 8)), 24 + 96, 96),
    "rows added": (lambda t, i, v: t.index_add_(0, i, v), (torch.ones(9, 8), IDS, torch.ones(3, 8)), 24 + 192, 96),
    "cat": (lambda a, b: torch.cat((a, b)), (X, X.clone()), 256, 256),
    "sum of rows": (lambda a: a.sum(-1), (X,), 128, 16),
    "softmax": (lambda a: a.softmax(-1), (X,), 128, 128),
    "layer norm": (lambda a: nn.functional.layer_norm(a, (8,)), (X,), 128, 128 + 2 * 16),
    "RMS norm": (lambda a: nn.functional.rms_norm(a, (8,)), (X,), 128, 128 + 16),
    "where": (torch.where, (X > 0, X, X.clone()), 32 + 256, 128),
    "triangle": (torch.tril, (X,), 128, 128),
    "scan": (lambda a: a.cumsum(0), (X,), 128, 128),
    "top k": (lambda a: a.topk(2), (X,), 128, 4 * 2 * (4 + 8)),
}


@pytest.mark.parametrize("name", CASES)
def test_bytes(name: str) -> None:
    function, args, reads, writes = CASES[name]
    op = only(function, *args)
    assert (op.reads, op.writes) == (reads, writes)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.view(2, 16), lambda x: x.t(), lambda x: x[1:3], lambda x: x.unsqueeze(0), lambda x: x.split(2)[1],
        lambda x: x.expand(2, 4, 8), lambda x: x.detach(), lambda x: x.reshape(32), lambda x: x.contiguous(),
        lambda x: x.chunk(2, -1), lambda x: x.unfold(1, 2, 1), lambda x: torch.empty(5), lambda x: x.to(torch.float32),
    ],
)  # fmt: skip
def test_views_and_empty_tensors_cost_nothing(view: Callable[[Tensor], Any]) -> None:
    assert len(trace(Function(view), (X,))) == 0


def test_an_overlapping_view_touches_its_storage_once() -> None:
    assert touched(torch.ones(8).unfold(0, 4, 1)) == 32


def test_what_no_rule_knows_is_costed_by_its_bytes_and_listed() -> None:
    graph = trace(Function(torch.linalg.inv_ex), (torch.ones(4, 4),))
    (op,) = graph
    assert op.kind is OpKind.OTHER
    assert (op.reads, op.writes) == (64, 64 + 4)
    assert graph.uncovered == {"aten.linalg_inv_ex": 1}


def test_a_complex_element_is_two_real_ones() -> None:
    op = only(lambda x: x * x, torch.ones(4, dtype=torch.complex64))
    (tensor,) = op.inputs
    assert (tensor.shape, tensor.dtype, op.reads) == ((4, 2), "fp32", 32)


def test_writes_and_reads_are_ordered_by_storage() -> None:
    def program(x: Tensor) -> Tensor:
        y = x + 1  # 0
        z = y[:2] * 2  # 1 reads y
        y.add_(1)  # 2 after 0 (it reads and writes what 0 wrote) and after 1 (which read it)
        return z + y[2:]  # 3

    graph = trace(Function(program), (X,))
    assert [op.deps for op in graph] == [(), (0,), (0, 1), (1, 2)]
    assert {storage.role for storage in graph.storages} == {Role.INPUT, Role.ACTIVATION}


def test_a_cache_written_in_place_stays_one_storage() -> None:
    cache = torch.ones(2, 4, 16, 8)  # 1024 elements, 4096 B

    def decode(x: Tensor, caches: list[tuple[Tensor]]) -> Tensor:
        ((cache,),) = caches
        cache[:, :, -1:] = x
        return cache.sum(-1)

    graph = trace(Function(decode), (torch.ones(2, 4, 1, 8), [(cache,)]))
    write, read = graph
    assert (write.writes, read.reads) == (2 * 4 * 8 * 4, 4096)
    assert graph.bytes_of(Role.CACHE) == 4096
    assert read.deps == (write.id,)
