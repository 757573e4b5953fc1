"""The Triton kernels in Triton's interpreter: block sizes, masks, groups and layouts, at small lengths.

``test_flash_kernels.py`` runs this file in a process of its own: Triton looks at ``TRITON_INTERPRET`` once, when it is
first imported, and PyTorch may have imported it already.
"""
# mypy: disable-error-code="no-untyped-call"

from typing import Any

import pytest
import torch

from tests.workloads.test_flash_reference import Shape, tensors
from workloads.flash_attention import reference


@pytest.fixture(scope="module")
def launch() -> Any:
    """`workloads.flash_attention.launch`, imported only where this file is run and not where it is collected."""
    from workloads.flash_attention import launch as found  # noqa: PLC0415

    return found


def near(found: tuple[torch.Tensor, ...], wanted: tuple[torch.Tensor, ...]) -> None:
    """fp16 rounds to 1 in 2048; a sum of products of rounded numbers may be off by a few of these."""
    for one, other in zip(found, wanted, strict=True):
        assert torch.isfinite(one).all()
        assert float((one.double() - other).abs().max()) <= 2e-3 * max(1.0, float(other.abs().max()))


# batch, query heads, key heads, queries, keys, head size, causal; queries, keys and warps of a block
FORWARD: list[tuple[Shape, tuple[int, int]]] = [
    ((1, 2, 1, 33, 70, 64, True), (32, 32)),  # edges of blocks on neither side, grouped
    ((1, 1, 1, 64, 64, 64, True), (32, 16)),  # no edges
    ((1, 2, 2, 20, 50, 96, False), (16, 32)),  # columns beyond the head size
    ((1, 1, 1, 17, 17, 128, True), (64, 64)),  # less than one block
]


@pytest.mark.parametrize(("shape", "sizes"), FORWARD)
def test_forward(launch: Any, shape: Shape, sizes: tuple[int, int]) -> None:
    q, k, v, _ = tensors(shape, torch.float16)
    found = launch.forward(q, k, v, shape[-1], 0.2, launch.Blocks(*sizes, 4, 2))
    near(found, reference.plain(q, k, v, shape[-1], 0.2))


@pytest.mark.parametrize("shape", [(1, 2, 1, 20, 33, 64, True), (1, 2, 2, 33, 20, 96, False)])
def test_backward(launch: Any, shape: Shape) -> None:
    q, k, v, grad = tensors(shape, torch.float16)
    out, logsum = reference.attention(q, k, v, shape[-1], 0.2)
    sizes = launch.Blocks(16, 16, 4, 2), launch.Blocks(16, 32, 4, 2)
    found = launch.backward(grad, q, k, v, out, logsum, shape[-1], 0.2, *sizes)
    near(found, reference.plain_backward(grad, q, k, v, shape[-1], 0.2))


def test_expanded_gradient_of_a_sum(launch: Any) -> None:
    q, k, v, _ = tensors((1, 1, 1, 17, 17, 64, True), torch.float16)
    out, logsum = reference.attention(q, k, v, True, 0.2)
    ones = torch.ones((), dtype=torch.float16).expand(q.shape)  # stride 0 along every axis
    found = launch.backward(ones, q, k, v, out, logsum, True, 0.2)
    near(found, reference.plain_backward(ones, q, k, v, True, 0.2))


@pytest.mark.parametrize("parts", [0, 1, 3])
def test_decode_is_the_same_in_any_number_of_parts(launch: Any, parts: int) -> None:
    q, k, v, _ = tensors((1, 4, 2, 3, 300, 64, True), torch.float16)
    near(launch.decode(q, k, v, True, 0.2, parts), reference.plain(q, k, v, True, 0.2))


def test_decode_of_one_query_and_one_key(launch: Any) -> None:
    q, k, v, _ = tensors((2, 4, 1, 1, 1, 96, False), torch.float16)
    out, logsum = launch.forward(q, k, v, False, 0.2)
    assert torch.equal(out, v.expand_as(out))  # one key has weight one
    near((logsum,), (reference.plain(q, k, v, False, 0.2)[1],))


def test_strided_layout(launch: Any) -> None:
    rows_first = [
        each.transpose(1, 2).contiguous().transpose(1, 2)
        for each in tensors((1, 4, 2, 40, 40, 64, True), torch.float16)
    ]
    q, k, v, _ = rows_first
    out, logsum = launch.forward(q, k, v, True, 0.2, launch.Blocks(32, 32, 4, 2))
    assert out.stride() == q.stride()
    near((out, logsum), reference.plain(q, k, v, True, 0.2))
