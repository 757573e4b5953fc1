"""The Triton kernels of the engine in Triton's interpreter: tiles, splits, pages, windows, padding.

``test_inference_kernels.py`` runs this file in a process of its own: Triton looks at ``TRITON_INTERPRET`` once, when it
is first imported, and PyTorch may have imported it already.
"""
# mypy: disable-error-code="no-untyped-call"

from dataclasses import replace
from typing import Any

import pytest
import torch

from simulator.serving import Limits
from tests.workloads.gpt_configs import QWEN3, make
from workloads.inference import reference
from workloads.inference.engine import Engine
from workloads.inference.model import Runner
from workloads.inference.quantise import pack, unpack
from workloads.inference.steps import ragged


@pytest.fixture(scope="module")
def launch() -> Any:
    """`workloads.inference.launch`, imported only where this file is run and not where it is collected."""
    from workloads.inference import launch as found  # noqa: PLC0415

    return found


def near(found: torch.Tensor, wanted: torch.Tensor, limit: float = 1e-3) -> None:
    """Relative error of the whole: fp16 rounds to 1 in 2048."""
    assert torch.isfinite(found).all()
    assert float((found.double() - wanted.double()).norm()) <= limit * float(wanted.double().norm())


# rows of x in a program (1, 2, 4: multiply-adds, 0: unpack first), outputs, waves (100: every group a part of its own)
TILES = [
    (1, 16, 4),
    (1, 32, 0),
    (2, 16, 4),
    (4, 32, 100),
    (16, 32, 4),
    (16, 32, 0),
    (16, 32, 4, 4, 2, True),
    (32, 64, 100),
    (0, 32, 0),
]


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("bits", [4, 8])
def test_linear(launch: Any, bits: int, tile: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    for rows, inputs, dtype in ((1, 300, torch.float16), (3, 300, torch.float32), (3, 256, torch.float16),
                                (17, 300, torch.float16)):  # fmt: skip  # edges on all sides: outputs, inputs, rows
        packed = pack(torch.randn(70, inputs), bits)
        x = torch.randn(rows, inputs).to(dtype)
        out = launch.linear(x, packed.data, packed.scales, packed.zeros, bits, launch.Tile(*tile))
        near(out, x.double() @ unpack(packed, inputs, torch.float64).t())
    assert int(launch._counters(x.device).sum()) == 0  # the last program of each tile has reset its counter


@pytest.mark.parametrize(("heads", "kv_heads", "head", "window"), [(4, 2, 64, 0), (6, 2, 16, 5), (3, 1, 96, 0)])
def test_attention(launch: Any, heads: int, kv_heads: int, head: int, window: int) -> None:
    torch.manual_seed(0)
    keys, values = torch.randn(2, 40, 8, kv_heads, head, dtype=torch.float16)
    batch = ragged([(0, 1), (36, 1), (63, 1), (10, 40), (0, 33)], 40, 8, keys.device)
    q = torch.randn(len(batch.tokens), heads, head, dtype=torch.float16)
    where = batch.tables, batch.starts, batch.lengths, batch.decodes
    found = launch.attention(q, keys, values, *where, batch.longest, window)
    near(found, reference.attention(q.double(), keys.double(), values.double(), *where, window))


def test_a_padded_token_gets_zeros(launch: Any) -> None:
    keys, values = torch.randn(2, 4, 8, 2, 16)
    batch = replace(ragged([(5, 1), (9, 1)], 4, 8, keys.device), lengths=torch.tensor([6, 0], dtype=torch.int32))
    q = torch.randn(2, 4, 16)
    found = launch.attention(q, keys, values, batch.tables, batch.starts, batch.lengths, 2, 0, 0)
    assert found[0].abs().sum() > 0
    assert (found[1] == 0).all()


@pytest.mark.parametrize(("rotated", "normed"), [(True, True), (True, False), (False, False)])
def test_place(launch: Any, rotated: bool, normed: bool) -> None:
    torch.manual_seed(0)
    heads, kv_heads, head = 6, 2, 24
    qkv, gains, angles = torch.randn(5, (heads + 2 * kv_heads) * head), torch.randn(2, head), torch.randn(10, head // 2)
    positions = torch.tensor([3, 4, 9, 0, 1], dtype=torch.int32)
    slots = torch.tensor([3, 4, -1, 17, 20], dtype=torch.int32)
    turns = (angles.cos(), angles.sin()) if rotated else (None, None)
    norms = (gains[0], gains[1]) if normed else (None, None)

    def placed(place: Any) -> tuple[torch.Tensor, ...]:
        keys, values = torch.zeros(2, 3, 8, kv_heads, head)
        return (*place(qkv, keys, values, *turns, positions, slots, *norms, 1e-6), keys, values)

    found, wanted = placed(launch.place), placed(reference.place)
    for one, two in zip(found, wanted, strict=True):
        near(one, two, 1e-5)


def test_rows(launch: Any) -> None:
    torch.manual_seed(0)
    x, y, weight = torch.randn(5, 200), torch.randn(5, 200), torch.randn(200)
    for added in (y, None):
        for one, two in zip(
            launch.add_norm(x, added, weight, 1e-5), reference.add_norm(x, added, weight, 1e-5), strict=True
        ):
            near(one, two, 1e-5)
    near(launch.gate(x), reference.gate(x), 1e-5)


@pytest.mark.parametrize("scheme", ["none", "w4"])
def test_the_engine_on_the_kernels(scheme: str) -> None:
    """Tokens in fp32 by the kernels, and by the reference in fp64, which takes no kernel."""
    said = []
    for model in (make(QWEN3), make(QWEN3).double()):
        engine = Engine(Runner(model, scheme), Limits(max_batch=2, max_tokens=9, context=64, block_size=8, blocks=8))
        for length in (3, 12):
            engine.add(range(length), 3)
        said.append([done.tokens for _, done in sorted(engine.run().items())])
    assert said[0] == said[1]
