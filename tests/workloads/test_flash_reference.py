"""The online softmax and the algorithm in blocks, against attention written out in fp64."""

import json
import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from tests.workloads.lab_cases import CASES
from workloads.flash_attention import reference

# batch, query heads, key heads, queries, keys, head size, causal
SHAPES = [
    (1, 1, 1, 1, 1, 4, True),
    (2, 4, 2, 37, 37, 8, True),
    (1, 6, 3, 20, 53, 8, True),
    (1, 4, 1, 50, 31, 16, False),
    (1, 2, 2, 1, 40, 8, True),
]
Shape = tuple[int, int, int, int, int, int, bool]


def tensors(shape: Shape, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
    """Query, key, value and a gradient of the output."""
    batch, heads, kv_heads, q_len, kv_len, head, _ = shape
    made = torch.Generator().manual_seed(q_len + 100 * kv_len)
    sizes = ((heads, q_len), (kv_heads, kv_len), (kv_heads, kv_len), (heads, q_len))
    return tuple(
        torch.randn(batch, count, length, head, generator=made, dtype=torch.float64).to(dtype)
        for count, length in sizes
    )


def test_running_softmax_by_hand() -> None:
    # Case L08-X6: scores [1, 3], then [2, 5]. After both: top 5, total exp(-4) + exp(-2) + exp(-3) + exp(0).
    (row,) = [line for line in CASES.read_text().splitlines() if line.startswith("L08-X6,")]
    expected = json.loads(row[row.index('"{') + 1 : row.index('}"') + 1].replace('""', '"'))
    acc, total, top = torch.zeros(1, 1), torch.zeros(1), torch.tensor([-math.inf])
    for scores in ([1.0, 3.0], [2.0, 5.0]):
        acc, total, top = reference.online(acc, total, top, torch.tensor([scores]), torch.ones(2, 1))
    assert float(top) == expected["m"]
    assert float(total) == pytest.approx(expected["l"], abs=1e-6)
    assert float(top + total.log()) == pytest.approx(expected["lse"], abs=1e-6)
    assert float(acc / total) == pytest.approx(1)  # the weights of values that are all 1 add up to 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("block_q", "block_k"), [(16, 16), (7, 13), (128, 128)])
def test_blocks_equal_attention_written_out(shape: Shape, block_q: int, block_k: int) -> None:
    q, k, v, _ = tensors(shape)
    out, logsum = reference.attention(q, k, v, shape[-1], 0.3, block_q, block_k)
    exact, exact_logsum = reference.plain(q, k, v, shape[-1], 0.3)
    assert torch.allclose(out, exact, rtol=1e-12, atol=1e-12)
    assert torch.allclose(logsum, exact_logsum, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_equal_those_of_autograd(shape: Shape) -> None:
    q, k, v, grad = tensors(shape)
    out, logsum = reference.attention(q, k, v, shape[-1], 0.3)
    found = reference.backward(grad, q, k, v, out, logsum, shape[-1], 0.3, block=16)
    for one, other in zip(found, reference.plain_backward(grad, q, k, v, shape[-1], 0.3), strict=True):
        assert torch.allclose(one, other, rtol=1e-11, atol=1e-12)


def test_fp64_reference_equals_torch() -> None:
    q, k, v, _ = tensors((2, 4, 2, 37, 37, 8, True))
    wanted = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    assert torch.allclose(reference.plain(q, k, v, True, 8**-0.5)[0], wanted, rtol=1e-12, atol=1e-12)


def test_large_scores_do_not_overflow() -> None:
    q, k, v, _ = tensors((1, 1, 1, 8, 8, 4, False))
    out, logsum = reference.attention(q * 1e4, k, v, False, 1.0)
    assert torch.isfinite(out).all()
    assert torch.isfinite(logsum).all()
