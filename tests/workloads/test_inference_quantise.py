"""Packed weights: bytes, round trips, bounds of the error, and products on a CPU."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import UsageError
from simulator.packing import bits_of, packed_bytes
from workloads.inference import compiled, reference
from workloads.inference.quality import quality, trained, weight_errors
from workloads.inference.quantise import Packed, expected_rms, pack, unpack


def random(outputs: int, inputs: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("bits", "each"), [(4, 4.25), (8, 8.25)])
def test_bits_of_a_weight(bits: int, each: float) -> None:
    # A group of 128: 128 codes, a scale and a zero of 16 bits each: 32 / 128 = 0.25 bits a weight.
    packed = pack(random(64, 256), bits)
    assert packed.nbytes == packed_bytes(64, 256, bits) == 64 * 256 * each / 8


def test_codes_lie_where_the_format_says() -> None:
    # One group from 0 to 15 in steps of 1: scale 1, zero 0, and the code of input j is j mod 16.
    weight = (torch.arange(128) % 16).float()[None]
    packed = pack(weight, 4)
    assert (float(packed.scales), float(packed.zeros)) == (1.0, 0.0)
    # Byte j: input j below, input j + 64 above; both are j mod 16, as 64 is a multiple of 16.
    assert packed.data[0].tolist() == [(j % 16) * 17 for j in range(64)]
    assert (unpack(packed, 128) == weight).all()


@settings(max_examples=40, deadline=None)
@given(
    outputs=st.integers(1, 40), inputs=st.integers(1, 300), bits=st.sampled_from((4, 8)), seed=st.integers(0, 99),
    scale=st.sampled_from((1e-2, 1.0, 50.0)),
)  # fmt: skip
def test_no_weight_is_off_by_more_than_half_a_step(
    outputs: int, inputs: int, bits: int, seed: int, scale: float
) -> None:
    """Half a step, and what fp16 rounds off: of the zero, 2^-11 of it, and of 2^bits - 1 steps 2^-11 of each."""
    weight = scale * random(outputs, inputs, seed)
    packed = pack(weight, bits)
    steps = packed.scales.t().float().repeat_interleave(128, 1)[:, :inputs]
    largest = weight.abs().max()
    error = (unpack(packed, inputs) - weight).abs()
    assert bool((error <= steps / 2 + (largest + (2**bits - 1) * steps) * 2**-11 + 1e-7).all())


@settings(max_examples=30, deadline=None)
@given(codes=st.lists(st.integers(0, 255), min_size=128, max_size=128), bits=st.sampled_from((4, 8)))
def test_what_was_unpacked_packs_to_the_same(codes: list[int], bits: int) -> None:
    top = 2**bits - 1
    grid = torch.tensor([[0, top, *(code & top for code in codes[2:])]]).float() / 4 - 1  # both ends occur: same steps
    once = pack(grid, bits)
    again = pack(unpack(once, 128), bits)
    assert (unpack(once, 128) == grid).all()
    assert (once.data == again.data).all()


@pytest.mark.parametrize("bits", [4, 8])
def test_the_error_is_that_of_a_uniform_step(bits: int) -> None:
    # 200 x 1024 weights: the root mean square of 200,000 numbers is known to well below 1 %.  The two ends of each
    # group are exact, so that 2 of 128 weights have no error: 0.8 % less.
    weight = random(200, 1024)
    packed = pack(weight, bits)
    measured = float((unpack(packed, 1024) - weight).square().mean().sqrt())
    assert measured == pytest.approx(expected_rms(packed), rel=0.02)


def test_a_constant_group_is_exact() -> None:
    packed = pack(torch.full((2, 128), 0.5), 4)
    assert (unpack(packed, 128) == 0.5).all()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("rows", [1, 3, 17])
def test_products_on_a_cpu(bits: int, rows: int) -> None:
    packed = pack(random(70, 300), bits)
    x = random(rows, 300, 1)
    wanted = x.double() @ unpack(packed, 300, torch.float64).t()
    parts = packed.data, packed.scales, packed.zeros, bits
    for found in (compiled.linear(x, *parts), reference.linear(x, *parts)):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=2e-5)
    narrow = compiled.linear(x.bfloat16(), *parts)
    assert narrow.dtype == torch.bfloat16
    torch.testing.assert_close(narrow.double(), wanted, rtol=0.02, atol=0.3)


def test_no_product_for_one_token_unpacks_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference never holds more than a strip, and the compiled kernel for few rows unpacks nothing."""
    packed = pack(random(2048, 128), 4)
    seen: list[int] = []
    whole = torch.cat

    def watched(tensors: list[torch.Tensor], dim: int = 0) -> torch.Tensor:
        found = whole(tensors, dim=dim)
        seen.append(found.numel())
        return found

    monkeypatch.setattr(torch, "cat", watched)
    reference.linear(random(1, 128), packed.data, packed.scales, packed.zeros, 4)
    assert max(seen) == 512 * 128
    monkeypatch.setattr(compiled, "_unpack", None)  # calling it would fail
    compiled.linear(random(8, 128), packed.data, packed.scales, packed.zeros, 4)


def test_errors_of_several_matrices_are_weighed_by_their_size() -> None:
    one = weight_errors([random(50, 256)], 4)
    both = weight_errors([random(50, 256), random(50, 256)], 4)
    assert both[:2] == pytest.approx(one[:2])
    assert both[2] == 2 * one[2]


def test_quality_of_a_trained_model() -> None:
    """Bounds: weights step / sqrt(12); logits as sums of independent errors of 4 products a layer, 2 layers and a head.

    Each product adds the relative error e of its weights to what it hands on, so that after n products the error is at
    most about e sqrt(n), n = 9, if the network does not amplify it.
    """
    model = trained(25)
    eight, four = quality(model, "w8"), quality(model, "w4")
    for found in (eight, four):
        # A group of 96 inputs is padded with zeros: 128 slots for 96 weights, and one of 256 for none.
        assert found.weight_error == pytest.approx(found.expected, rel=0.1)
        assert found.logit_error <= found.expected * math.sqrt(9)
    assert four.expected == pytest.approx(17 * eight.expected, rel=0.05)  # 255 steps in place of 15
    assert eight.perplexity == pytest.approx(eight.perplexity_before, rel=0.01)
    assert four.perplexity == pytest.approx(four.perplexity_before, rel=0.2)


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        bits_of("w5")
    assert str(caught.value) == "unknown quantisation 'w5'; did you mean 'w8'? (known: none, w8, w4)"


def test_packed_is_immutable() -> None:
    with pytest.raises(AttributeError):
        pack(random(1, 1), 4).bits = 8  # type: ignore[misc]
    assert isinstance(pack(random(1, 1), 4), Packed)
