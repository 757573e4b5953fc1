"""Times a fused chain against the same chain kernel by kernel, on this machine's CPU and one thread."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import torch

from hw_models import load_chip
from simulator.costs import compute_model
from simulator.errors import UsageError
from simulator.passes.prices import Prices
from workloads.compiler.fusion.examples import SwiGLU
from workloads.compiler.fusion.fused import check, fuse
from workloads.compiler.fusion.rule import chains

ROWS, COLUMNS = 1024, 4096  # 16 MiB a tensor of fp32: more than a laptop's last-level cache holds of four
_RUNS = 9


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of one call on one thread, median of several.

    torch         the module as it is written, every result in new memory; *kept* its kernels one by one into memory
                  that is there already, as *fused* does.
    bytes_before  that the kernels read and write, by the graph; *bytes_after* those of the one kernel.
    compile       seconds of trace, rule, generation, compilation and check.
    error         largest, relative to 1 + |x|, against fp64.
    """

    rows: int
    columns: int
    dtype: str
    torch: float
    kept: float
    fused: float
    kernels: int
    bytes_before: int
    bytes_after: int
    compile: float
    error: float

    @property
    def speedup(self) -> float:
        """Against PyTorch's kernels into memory that is there already: what fusion itself gains."""
        return self.kept / self.fused


def measure(rows: int = ROWS, columns: int = COLUMNS, dtype: torch.dtype = torch.float32) -> Measured:
    """Measure SwiGLU on *rows* x *columns*; UsageError unless both are positive."""
    if rows < 1 or columns < 1:
        raise UsageError(f"{rows} rows of {columns} columns: both must be positive")
    made = torch.Generator().manual_seed(0)
    args = [torch.randn(rows, columns, generator=made).to(dtype) for _ in range(3)]
    module = SwiGLU()
    start = time.perf_counter()
    kernel = fuse(module, *args)
    compiled = time.perf_counter() - start
    after = chains(kernel.graph, Prices(compute_model("roofline", load_chip("h200"))))
    with _one_thread(), torch.no_grad():
        out = torch.empty_like(args[0])
        eager = _seconds(lambda: module(*args))
        kept = _seconds(lambda: _into(out, *args))
        fused = _seconds(lambda: kernel.into(out, *args))
    return Measured(
        rows=rows,
        columns=columns,
        dtype=str(dtype).removeprefix("torch."),
        torch=eager,
        kept=kept,
        fused=fused,
        kernels=len(kernel.graph),
        bytes_before=sum(op.nbytes for op in kernel.graph),
        bytes_after=sum(op.nbytes for op in after),
        compile=compiled,
        error=check(kernel, module, args),
    )


def _into(out: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, residual: torch.Tensor) -> None:
    torch.ops.aten.silu.out(gate, out=out)
    torch.mul(out, up, out=out)
    torch.add(residual, out, out=out)


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _seconds(call: Callable[[], object]) -> float:
    call()
    times = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return median(times)
