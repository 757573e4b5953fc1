"""The fusion rule of lab 9: what it fuses, the kernels it makes of that, and what it refuses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from frontends import trace
from hw_models import load_chip
from simulator.errors import TraceError, UsageError
from simulator.passes import PASSES
from simulator.simulation import compiled_graph
from workloads.compiler.fusion.examples import Modulated, SwiGLU
from workloads.compiler.fusion.fused import check, fuse
from workloads.compiler.fusion.measure import measure
from workloads.compiler.fusion.operations import OPERATIONS
from workloads.compiler.fusion.rule import registered


class Every(nn.Module):
    """Every operator that the generator has a word for."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Apply it."""
        first = (x.sigmoid() + y.relu()).exp().sqrt()
        second = (x.tanh() * y).exp().rsqrt()
        return (-first - functional.silu(y) * second) / x.exp()


def args(count: int, *shape: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape).to(dtype) for _ in range(count)]


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (2, 3, 13), (0, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernel_gives_what_the_module_gives(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    given = args(3, *shape, dtype=dtype)
    got = fuse(SwiGLU(), *given)(*given)
    wanted = SwiGLU()(*(each.double() for each in given))
    assert got.dtype is dtype
    assert got.shape == given[0].shape
    # one rounding: half a unit in the last of 24 or of 8 bits, and the error of the exponential
    step = 2.0**-8 if dtype is torch.bfloat16 else 2.0**-20
    assert torch.allclose(got.double(), wanted, rtol=step, atol=step)


def test_one_rounding_is_no_worse_than_one_a_kernel() -> None:
    given = args(3, 500, 3, dtype=torch.bfloat16)
    exact = SwiGLU()(*(each.double() for each in given))
    fused, eager = (each.double() for each in (fuse(SwiGLU(), *given)(*given), SwiGLU()(*given)))
    assert (fused - exact).abs().mean() < (eager - exact).abs().mean()


@pytest.mark.parametrize("rows", [1, 5])
def test_a_vector_is_read_again_for_every_row(rows: int) -> None:
    given = [*args(1, rows, 7), *args(2, 7)]
    kernel = fuse(Modulated(), *given)
    assert (kernel.chain.rows, kernel.chain.columns) == (rows, 7)
    assert torch.allclose(kernel(*given), Modulated()(*given), atol=1e-6)


def test_every_operator() -> None:
    given = args(2, 31, 3)
    kernel = fuse(Every(), *given)
    assert {step.target for step in kernel.chain.steps} == set(OPERATIONS)
    assert torch.allclose(kernel(*given), Every()(*given), atol=1e-5)


def test_large_arguments_neither_overflow_nor_vanish() -> None:
    class Sigmoid(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x.sigmoid() * y

    x = torch.tensor([-200.0, -87.0, -20.0, 0.0, 20.0, 87.0, 200.0])
    kernel = fuse(Sigmoid(), x, x)
    assert torch.allclose(kernel(x, torch.ones(7)), x.sigmoid(), atol=1e-7)


def test_strides_do_not_matter() -> None:
    given = [each.T for each in args(3, 5, 4)]
    kernel = fuse(SwiGLU(), *args(3, 4, 5))
    assert torch.allclose(kernel(*given), SwiGLU()(*given), atol=1e-6)


def test_the_source_is_one_loop() -> None:
    source = fuse(SwiGLU(), *args(3, 4, 6)).source
    loop = source[source.index("def kernel") :]
    assert loop == (
        'def kernel(x0, x1, x2, out):\n    """silu, mul, add"""\n'
        "    for i in range(out.shape[0]):\n        for j in range(out.shape[1]):\n"
        "            v0 = x0[i, j]\n            v1 = x1[i, j]\n            v2 = x2[i, j]\n"
        "            v3 = v0 / (ONE + exponential(-v0))\n            v4 = v3 * v1\n            v5 = v2 + v4\n"
        "            out[i, j] = v5\n"
    )


def test_the_kernel_is_made_of_vector_instructions() -> None:
    given = args(3, 64, 64)
    kernel = fuse(SwiGLU(), *given)
    kernel(*given)
    code = "".join(kernel.kernel.inspect_llvm().values())  # type: ignore[attr-defined]
    assert "x float>" in code
    assert "call float @expf" not in code


TRITON = """
import torch
from workloads.compiler.fusion.examples import Modulated, SwiGLU
from workloads.compiler.fusion.fused import fuse, load

torch.manual_seed(0)
for module, shapes in ((SwiGLU(), [(5, 300)] * 3), (Modulated(), [(5, 300), (300,), (300,)])):
    for dtype, step in ((torch.float32, 1e-5), (torch.bfloat16, 2.0**-7)):  # the interpreter cuts bf16 off
        given = [torch.randn(shape).to(dtype) for shape in shapes]
        kernel = fuse(module, *given)
        out = torch.empty_like(given[0])
        load(kernel.triton).launch(*(given[index] for index in kernel.order), out)
        wanted = module(*(each.double() for each in given))
        assert torch.allclose(out.double(), wanted, rtol=step, atol=step)
print("equal")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Triton exists for Linux only")
def test_the_triton_kernel_in_its_interpreter() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRITON], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )  # fmt: skip
    assert done.stdout == "equal\n", done.stderr


def test_the_rule_in_the_simulated_graph() -> None:
    graph = trace(SwiGLU(), args(3, 1024, 4096))
    with registered():
        report = compiled_graph(graph, load_chip("h200"), passes=("chains",)).reports[0]
    assert "chains" not in PASSES
    # silu reads and writes 1 tensor, mul and add read 2 and write 1: 8 tensors of 16 MiB; fused: 3 read, 1 written
    assert (report.before.kernels, report.before.nbytes) == (3, 8 * 2**24)
    assert (report.after.kernels, report.after.nbytes) == (1, 4 * 2**24)
    assert report.after.time < report.before.time / 1.5


def kernels(module: nn.Module, *given: Tensor) -> list[str]:
    with registered():
        return [op.target for op in compiled_graph(trace(module, given), load_chip("h200"), passes=("chains",)).graph]


def test_a_result_that_is_needed_elsewhere_is_not_fused_away() -> None:
    class Both(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            inner = x.exp()
            return inner, inner.relu()

    assert kernels(Both(), torch.ones(4, 4)) == ["aten.exp", "aten.relu"]


def test_what_the_generator_cannot_write_stays() -> None:
    class Mixed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (functional.gelu(x).relu() * 2).exp().sigmoid()

    # which gelu, and times what, the graph does not say
    assert kernels(Mixed(), torch.ones(4, 4)) == ["aten.gelu", "aten.relu", "aten.mul", "fused.exp+sigmoid"]


class Alpha(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.add(x, y, alpha=2).relu()


def test_an_argument_that_the_graph_does_not_hold_is_found_by_the_check() -> None:
    with pytest.raises(TraceError, match=r"^the kernel of add, relu is off by \d\.\de-01 from Alpha: an argument that "
                       r"the graph does not hold, such as alpha of an addition$"):  # fmt: skip
        fuse(Alpha(), *args(2, 8, 8))


def test_the_check_can_fail() -> None:
    given = args(3, 8, 8)
    kernel = fuse(SwiGLU(), *given)
    assert check(kernel, SwiGLU(), given) < 1e-6
    with pytest.raises(TraceError):
        check(kernel, type("Other", (SwiGLU,), {"forward": lambda _, x, y, z: z + x * y})(), given)


def test_what_is_no_chain() -> None:
    with pytest.raises(TraceError) as error:
        fuse(nn.GELU(), *args(1, 4, 4))
    assert str(error.value) == (
        "GELU is 1 operators (aten.gelu), not one chain of these on whole tensors: aten.add, aten.sub, aten.mul, "
        "aten.div, aten.neg, aten.relu, aten.exp, aten.sigmoid, aten.silu, aten.tanh, aten.sqrt, aten.rsqrt"
    )


def test_types_without_a_kernel() -> None:
    with pytest.raises(UsageError) as error:
        fuse(SwiGLU(), *args(3, 4, 4, dtype=torch.float16))
    assert str(error.value) == "arguments of torch.float16; wanted all torch.float32 or all torch.bfloat16"


def test_arguments_of_another_shape() -> None:
    kernel = fuse(SwiGLU(), *args(3, 4, 6))
    with pytest.raises(UsageError) as error:
        kernel(*args(3, 6, 4))
    assert str(error.value) == ("the kernel was generated for [4, 6] fp32 as argument 0; got [6, 4] torch.float32")


def test_a_measurement() -> None:
    found = measure(rows=64, columns=256)
    assert (found.kernels, found.bytes_before, found.bytes_after) == (3, 8 * 65536, 4 * 65536)
    assert min(found.torch, found.kept, found.fused, found.compile) > 0
    assert found.error < 1e-6
    with pytest.raises(UsageError) as error:
        measure(rows=0)
    assert str(error.value) == "0 rows of 4096 columns: both must be positive"
