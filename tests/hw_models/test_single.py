"""Graphs of one operator: FLOP and bytes by hand, and what is said about sizes that make no sense."""

import pytest

from hw_models.single import OPERATORS, parameters, single
from simulator.dims import AttentionDims
from simulator.dtypes import DType
from simulator.errors import UsageError
from simulator.graph import OpKind


@pytest.mark.parametrize(
    ("name", "sizes", "flops", "reads", "writes"),
    [
        ("gemm", {"M": 4, "N": 8, "K": 16}, 1024, 2 * (64 + 128), 2 * 32),  # 2 x 4 x 8 x 16
        ("bmm", {"B": 3, "M": 4, "N": 8, "K": 16}, 3072, 6 * (64 + 128), 6 * 32),
        ("attention", {"B": 1, "H": 4, "Hkv": 2, "Sq": 1, "Skv": 10, "D": 8}, 4 * 10 * 4 * 8, 2 * (32 + 2 * 160), 64),
        ("attention", {"B": 1, "H": 1, "Sq": 4, "D": 8, "causal": 1}, 10 * 4 * 8, 2 * 96, 64),  # 1 + 2 + 3 + 4 pairs
        ("pointwise", {"R": 2, "C": 8, "inputs": 2, "flops": 3}, 48, 64, 32),
        ("norm", {"R": 2, "C": 8}, 128, 2 * (16 + 8 + 8), 32),
        ("rmsnorm", {"R": 2, "C": 8}, 64, 2 * (16 + 8), 32),
        ("softmax", {"R": 2, "C": 8}, 80, 32, 32),
        ("reduce", {"R": 2, "C": 8}, 16, 32, 4),
        ("copy", {"R": 2, "C": 8}, 0, 32, 32),
        ("embedding", {"T": 2, "V": 100, "C": 8}, 0, 32, 32),  # only the rows that are looked up
    ],
)
def test_flops_and_bytes(name: str, sizes: dict[str, int], flops: int, reads: int, writes: int) -> None:
    (op,) = single(name, sizes)
    assert (op.flops, op.reads, op.writes, op.dtype) == (flops, reads, writes, DType.BF16)


def test_attention_carries_its_sizes() -> None:
    (op,) = single("attention", {"B": 1, "H": 4, "Hkv": 2, "Sq": 1, "Skv": 10, "D": 8})
    assert op.kind is OpKind.ATTENTION
    assert op.dims == AttentionDims(1, 4, 2, 1, 10, 8, 8)


def test_four_bit_elements_are_half_a_byte() -> None:
    (op,) = single("gemm", {"M": 1, "N": 3, "K": 3}, DType.INT4)
    assert (op.reads, op.writes) == (2 + 5, 2)  # 12 and 36 bits, each tensor in whole bytes; 12 bits


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_can_be_built(name: str) -> None:
    needed = {key: 4 for key, must in parameters(name).items() if must}
    graph = single(name, needed)
    assert len(graph) == 1
    assert graph.workload.name.startswith(f"{name} ")


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("gem", {}, "unknown operator 'gem'; did you mean 'gemm'? "
         "(known: gemm, bmm, attention, pointwise, norm, rmsnorm, softmax, reduce, copy, embedding)"),
        ("gemm", {"M": 3}, "gemm: needs N=.., K=.. (it takes M, N, K)"),
        ("gemm", {"M": 3, "N": 3, "K": 0}, "gemm: K=0: must be at least 1"),
        ("attention", {"Hvk": 1}, "attention: unknown size 'Hvk'; did you mean 'Hkv'? "
         "(it takes B, H, Sq, D, Hkv, Skv, causal, window)"),
        ("attention", {"B": 1, "H": 3, "Hkv": 2, "Sq": 1, "D": 8},
         "attention: H=3 query heads cannot share Hkv=2 key/value heads evenly"),
        ("attention", {"B": 1, "H": 3, "Sq": 1, "D": 8, "window": -1}, "attention: window=-1: must be at least 0"),
        ("pointwise", {"R": 1, "C": 1, "inputs": 65}, "pointwise: inputs=65: at most 64"),
    ],
)  # fmt: skip
def test_sizes_that_make_no_sense(name: str, sizes: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        single(name, sizes)
    assert str(caught.value) == message
