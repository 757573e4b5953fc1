"""The engine where Triton or numba is not installed: plain torch computes the same."""

import sys
from collections.abc import Iterator

import pytest
import torch

from workloads.gpt.generate import tiny
from workloads.gpt.model import Model
from workloads.inference import bench, operator, reference
from workloads.inference.__main__ import main
from workloads.inference.cache import make_pages
from workloads.inference.model import Runner
from workloads.inference.quantise import pack
from workloads.inference.steps import ragged


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither numba nor Triton: looking for them finds nothing, and importing what needs them fails."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(operator, "find_spec", lambda _: None)
    for name in ("numba", "triton", "workloads.inference.compiled", "workloads.inference.launch"):
        monkeypatch.setitem(sys.modules, name, None)
    operator.kernels_on.cache_clear()
    yield
    operator.kernels_on.cache_clear()


@pytest.mark.usefixtures("nothing")
def test_no_kernels_without_triton(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert not operator.kernels_on("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert main(["device-run", "--out", "out"]) == 2
    assert capsys.readouterr().err == (
        "device-run: Triton is not installed (it exists for Linux only: pip install 'xpusim[triton]')\n"
    )


@pytest.mark.usefixtures("nothing")
def test_products_without_numba() -> None:
    torch.manual_seed(0)
    x, packed = torch.randn(3, 200), pack(torch.randn(16, 200), 4)
    wanted = reference.linear(x, packed.data, packed.scales, packed.zeros, 4)
    assert torch.equal(operator.linear(x, packed.data, packed.scales, packed.zeros, 4), wanted)
    assert bench._numba() is None


def logits(scheme: str) -> torch.Tensor:
    torch.manual_seed(0)
    runner = Runner(Model(tiny(), context=64).eval(), scheme, context=64)
    pages = make_pages(runner.config, 16, 16, runner.dtype, runner.device)
    for keys, values in pages:
        keys.normal_()
        values.normal_()
    found: torch.Tensor = runner(ragged([(40, 1), (7, 1)], 16, 16, runner.device), pages)
    return found


@pytest.mark.parametrize("scheme", ["none", "w4"])
def test_a_step_without_numba_is_the_same(scheme: str, request: pytest.FixtureRequest) -> None:
    with_numba = logits(scheme)
    request.getfixturevalue("nothing")
    torch.testing.assert_close(logits(scheme), with_numba, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("nothing")
def test_steps_are_traced_without_either() -> None:
    from workloads.inference.traced import step_trace  # noqa: PLC0415  what it loads is what is tested

    graph = step_trace(tiny(), "bf16")("decode", 2, 32)
    assert not graph.uncovered
